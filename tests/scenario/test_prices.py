"""People's own prices and commitments, told on virtual time."""

from pathlib import Path

import msgspec
import pytest

from kubewright.catalogue.prices import read
from kubewright.errors import ConfigError
from kubewright.operator.options import parse
from kubewright.settings import Packing, PriceRow, Settings
from kubewright.sim.faults import Process, Side, at_every_write, kills
from tests.conftest import FOUND
from tests.scenario.world import Item, World, deployment, node_class, play, pool

TYPE = "node.kubernetes.io/instance-type"
COMMITMENT = "kubewright.sh/commitment"
OTHER = {"m5.xlarge": "m6i.xlarge", "m6i.xlarge": "m5.xlarge"}


def priced(*rows: PriceRow) -> Settings:
    return Settings(cluster_name="sandbox", prices=rows)


def types(world: World) -> list[str]:
    return sorted(n["metadata"]["labels"][TYPE] for n in world.nodes())


def usual() -> str:
    """What is bought at list prices."""
    bought = {}

    async def story(world: World):
        world.apply(node_class(), pool(), deployment(replicas=1))
        await world.until_running(1)
        (bought["type"],) = types(world)

    play(story)
    return bought["type"]


def annotated(world: World) -> list[Item]:
    return [c for c in world.claims() if COMMITMENT in c["metadata"].get("annotations", {})]


def test_a_price_of_ones_own_turns_the_purchase():
    other = OTHER[usual()]

    async def story(world: World):
        world.apply(node_class(), pool(), deployment(replicas=1))
        await world.until_running(1)
        assert types(world) == [other]

    play(story, settings=priced(PriceRow(instance_type=other, usd_per_hour=0.05)))


def test_reserved_instances_are_used_up_first_and_count_while_they_run():
    other = OTHER[usual()]

    async def story(world: World):
        world.apply(node_class(), pool(), deployment(replicas=9))
        await world.until_running(9)
        assert types(world).count(other) == 2
        assert len(annotated(world)) == 2
        world.scale("web", 12)
        await world.until_running(12)
        assert len(annotated(world)) == 2, "both run already"
        world.scale("web", 0)
        await world.until_nothing_is_left()
        world.scale("web", 3)
        await world.until_running(3)
        assert types(world) == [other], "one that has come free is used again"

    play(story, settings=priced(PriceRow(name="ri", instance_type=other, usd_per_hour=0.1, up_to_instances=2)))


def test_what_a_commitment_covers_is_sold_out_and_the_pods_go_elsewhere():
    other = OTHER[usual()]

    async def story(world: World):
        world.cloud.sell_out(other)
        world.apply(node_class(), pool(), deployment(replicas=3))
        await world.until_running(3)
        assert types(world) == [OTHER[other]]

    play(story, settings=priced(PriceRow(name="ri", instance_type=other, usd_per_hour=0.1, up_to_instances=2)))


def test_the_example_in_the_docs_is_read_by_the_flag_and_says_the_same_in_both_tongues(tmp_path):
    text = (Path(__file__).parents[2] / "docs/prices.md").read_text(encoding="utf-8")
    blocks = {kind: text.split(f"```{kind}\n")[1].split("```")[0] for kind in ("yaml", "csv")}
    rows = read(blocks["yaml"], "p.yaml")
    assert len(rows) == 5
    assert read(blocks["csv"], "p.csv") == rows
    for kind, body in blocks.items():
        file = tmp_path / f"prices.{kind}"
        file.write_text(body, encoding="utf-8")
        assert parse(["--price-file", str(file)], {}).settings.prices == rows
        assert parse([], {"KUBEWRIGHT_PRICE_FILE": str(file)}).settings.prices == rows


def test_machines_that_are_paid_anyway_are_kept_and_those_that_cost_go():
    other = OTHER[usual()]
    row = PriceRow(name="ri", instance_type=other, usd_per_hour=0.12, up_to_instances=2, paid_anyway=True)

    async def story(world: World):
        sizes = pool()
        sizes["spec"]["template"]["spec"]["requirements"][1]["values"] = [*OTHER, "m5.2xlarge", "m6i.2xlarge", "m5.large"]
        world.apply(node_class(), sizes, deployment(replicas=11))
        await world.until_running(11)
        assert types(world).count(other) == 2
        assert len(types(world)) == 3
        world.scale("web", 6)
        await world.until(lambda: types(world) == [other, other] and len(world.running("web")) == 6, 3600)
        world.scale("web", 2)
        await world.sleep(1800)
        assert set(types(world)) == {other}, "no smaller machine is bought at list price for them"

    play(story, settings=priced(row))


def test_what_costs_nothing_is_not_emptied_into_what_costs():
    other = OTHER[usual()]
    row = PriceRow(name="ri", instance_type=other, usd_per_hour=0.12, up_to_instances=2, paid_anyway=True)

    async def story(world: World):
        sizes = pool()
        sizes["spec"]["template"]["spec"]["requirements"][1]["values"] = [other, "m5.4xlarge"]
        world.apply(node_class(), sizes, deployment(replicas=15))
        await world.until_running(15)
        assert types(world) == sorted([other, other, "m5.4xlarge"])
        await world.sleep(1800)
        # kube-scheduler may have left one without pods, and that one may go.
        assert not [e for e in world.events("DisruptionTerminating") if "Underutilized" in e["message"]]

    # First fit, which buys the larger machine.
    play(story, settings=msgspec.structs.replace(priced(row), packing=Packing.FIRST_FIT))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("gone.yaml", None, "gone.yaml: it cannot be read [(]No such file"),
        (
            "bad.yaml",
            "prices: [{instanceType: m5.xlarge}]",
            "bad.yaml, row 1, field usdPerHour: found None; write what a machine",
        ),
    ],
)
def test_a_price_file_that_cannot_be_used_stops_the_start(tmp_path, name, text, said):
    if text is not None:
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=said):
        parse([f"--price-file={tmp_path / name}"], {})


def life(process: Process) -> None:
    rows = (PriceRow(name="ri", family="m5", instance_type="m5.xlarge", discount=0.4, up_to_instances=2),)

    async def story(world: World) -> None:
        world.apply(node_class(), pool(), deployment(replicas=9))
        await world.until_running(9, within_s=900)
        assert len(annotated(world)) == 2, "used up, and not twice"
        assert world.cloud.sold() == 3

    play(story, process=process, settings=priced(*rows))


@pytest.mark.parametrize("side", Side)
def test_an_operator_killed_while_buying_neither_forgets_nor_overdraws_a_commitment(side, record_property):
    def buying(alive: Process):
        passed = alive.writes if side is Side.BEFORE else alive.landed
        wanted = ("create NodeClaim", "create_fleet", "Fleet")
        return [k for k in kills(alive) if k.side is side and any(w in passed[k.write - 1] for w in wanted)]

    outcomes = at_every_write(life, chosen=buying)
    failed = [o for o in outcomes if o.problem]
    record_property(FOUND, f"commitments kept though killed {side} a purchase: {len(outcomes) - len(failed)} of {len(outcomes)}")
    assert not failed
    assert len(outcomes) >= 3
