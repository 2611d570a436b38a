import asyncio
from pathlib import Path

import pytest

from kubewright.clock import Clock
from kubewright.errors import ConfigError
from kubewright.metrics import Registry
from kubewright.operator.options import parse
from kubewright.operator.process import _keeper, _leading
from kubewright.sim import loop
from kubewright.sim.apiserver.direct import DirectClient
from kubewright.sim.apiserver.store import Store


def test_the_metric_says_who_leads():
    """Two processes: the second leads when the first hands the lease on."""
    clock = Clock(loop.EPOCH)
    options = parse(["--leader-election-namespace=default"], {})

    async def main() -> None:
        store = Store(clock)
        shown = [Registry(), Registry()]

        def leads() -> list[float | None]:
            return [r.value("leader_election_master_status", name=options.leader_election_name) for r in shown]

        async def lead() -> None:
            await asyncio.Event().wait()

        first, second = (asyncio.create_task(_leading(options, DirectClient(store), clock, r)(lead)) for r in shown)
        await asyncio.sleep(10)
        assert sorted(leads()) == [0, 1]
        leader, other = (first, second) if leads()[0] else (second, first)
        before = leads()
        leader.cancel()
        await asyncio.wait([leader])
        await asyncio.sleep(10)
        assert leads() == before[::-1]
        other.cancel()
        await asyncio.wait([other])
        assert leads() == [0, 0]

    loop.run(main())


def test_records_are_written_only_where_somebody_asks(tmp_path: Path):
    clock = Clock(loop.EPOCH)
    assert _keeper(parse([], {}), clock) is None
    assert _keeper(parse(["--record", str(tmp_path / "new" / "records")], {}), clock) is not None
    assert (tmp_path / "new" / "records").is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="--record: found"):
        _keeper(parse([], {"KUBEWRIGHT_RECORD": str(tmp_path / "file")}), clock)
