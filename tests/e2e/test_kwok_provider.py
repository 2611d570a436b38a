"""The example of a third-party provider: it sells what Karpenter's own kwok provider sells, and answers twice the same."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kubewright.cloud import plugins
from kubewright.errors import ConfigError
from tests.plane import crds
from tests.plane.kwok_provider import EXAMPLE, python_path


@pytest.fixture
def catalogue(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLE / "src"))
    from kubewright_kwok import catalogue as found

    return found


@pytest.mark.needs_go
def test_it_sells_what_karpenter_sells(catalogue: Any) -> None:
    ours = {one.name: one for one in catalogue.load("")}
    theirs = {one.name: one for one in catalogue.load(str(crds.kwok_instance_types()))}
    assert ours.keys() == theirs.keys()
    for name, one in ours.items():
        assert (one.capacity, one.overhead, one.requirements) == (
            theirs[name].capacity,
            theirs[name].overhead,
            theirs[name].requirements,
        )
        sold = {(o.zone, o.capacity_type): o.price for o in one.offerings}
        assert sold == pytest.approx({(o.zone, o.capacity_type): o.price for o in theirs[name].offerings})


def test_a_file_that_cannot_be_read_is_named(catalogue: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"INSTANCE_TYPES_FILE_PATH names '/absent/types.json'"):
        catalogue.load("/absent/types.json")
    (tmp_path / "types.json").write_text('[{"name": "a"}]', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"types.json.*missing required field"):
        catalogue.load(str(tmp_path / "types.json"))


def test_it_is_found_by_its_entry_point_and_only_when_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--cloud: found 'kwok', which is neither built in.*write one of aws"):
        plugins.find("kwok", ("aws",))
    for entry in reversed(python_path(tmp_path).split(":")):
        monkeypatch.syspath_prepend(entry)
    assert plugins.find("kwok") is sys.modules["kubewright_kwok"].make
