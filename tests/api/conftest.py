"""`async def` tests with a `door` argument run once for each door, inside that door's own event loop."""

import inspect
from typing import Any

import pytest

from tests.api.doors import DirectDoor, Door, HttpDoor, RealDoor

_DOORS = ["direct", "http", pytest.param("real", marks=pytest.mark.needs_go)]


@pytest.fixture(scope="session")
def _real_door(plane: Any) -> RealDoor:
    return RealDoor(plane)


@pytest.fixture(params=_DOORS)
def door(request: pytest.FixtureRequest) -> Any:
    match request.param:
        case "direct":
            return DirectDoor()
        case "http":
            return HttpDoor()
        case _:
            return request.getfixturevalue("_real_door")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj) or "door" not in pyfuncitem.funcargs:
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    others = {name: pyfuncitem.funcargs[name] for name in names if name != "door"}

    async def test(opened: Door) -> None:
        await pyfuncitem.obj(door=opened, **others)

    pyfuncitem.funcargs["door"].run(test)
    return True
