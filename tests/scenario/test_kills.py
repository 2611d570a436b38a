"""An operator may die at any write: the next one finishes, nothing leaks, nothing is bought twice."""

import pytest

from kubewright.sim.faults import Kill, Process, Side, at_every_write, kills
from tests.conftest import FOUND
from tests.scenario.world import NODE_POOL, World, budget, deployment, is_clean, names, node_class, play, pool, relabel


def life(process: Process, restart_after_s: float = 5.0) -> None:
    """Up, down, and gone: every kind of write there is comes by."""

    async def story(world: World) -> None:
        world.apply(node_class(), pool(), budget(maxUnavailable=1), deployment(replicas=6))
        await world.until_running(6, within_s=600)
        assert len(world.claims()) == len(world.cloud.alive()) == 2, "bought once"
        world.delete(("karpenter.sh/v1", "NodeClaim"), world.claims()[0]["metadata"]["name"])
        await world.until(lambda: len(world.claims()) == 2 and len(world.running("web")) == 6 and settled(world), 900)
        world.scale("web", 0)
        await world.until_nothing_is_left(1800)
        assert world.cloud.sold() == 3, "nothing was bought twice"

    play(story, process=process)


def exchange(process: Process) -> None:
    """Two drifted machines are replaced, both at once; writes from before they drift were `life`'s."""

    async def story(world: World) -> None:
        world.apply(node_class(), pool(), budget(maxUnavailable=1), deployment(replicas=6))
        await world.until_running(6, within_s=600)
        await world.sleep(60)
        old = {c["metadata"]["name"] for c in world.claims()}
        assert len(old) == 2
        process.mark()
        relabel(world)
        least = 6

        def done() -> bool:
            nonlocal least
            least = min(least, len(world.running("web")))
            return not old & {c["metadata"]["name"] for c in world.claims()}

        await world.until(done, 1800, "the old machines are gone")
        await world.until(lambda: len(world.running("web")) == 6 and settled(world) and is_clean(world), 900)
        assert least >= 5, "the pods' budget held"
        assert len(world.claims()) == len(world.cloud.alive()) == 2, "no orphan"
        assert world.cloud.sold() == 4, "one new machine for each, none twice"
        assert all(c["metadata"]["labels"].get("team") == "blue" for c in world.claims())

    play(story, process=process)


def split(process: Process) -> None:
    """One machine becomes two smaller ones, bought by one order."""
    small = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.xlarge"]},
    ]
    large = [small[0], {**small[1], "values": ["m5.2xlarge"]}]

    async def story(world: World) -> None:
        world.apply(node_class(), pool(consolidate_after="Never", requirements=large), deployment(replicas=6))
        await world.until_running(6, within_s=600)
        await world.sleep(60)
        (old,) = world.claims()
        process.mark()
        world.patch(NODE_POOL, "general", {"spec": {"template": {"spec": {"requirements": small}}}})
        await world.until(lambda: old["metadata"]["name"] not in names(world.claims()), 1800, "the old machine is gone")
        await world.until(lambda: len(world.running("web")) == 6 and settled(world) and is_clean(world), 900)
        await world.sleep(60)
        assert len(world.claims()) == len(world.cloud.alive()) == 2, "no orphan"
        # Killed between the two purchases, the first is taken back before both are bought anew.
        assert world.cloud.sold() <= 3 + (process.lives > 1)

    play(story, process=process)


def telling(alive: Process, kill: Kill, side: Side) -> bool:
    """Not those at events, which change nothing: what stands before one stands after it, too."""
    passed = alive.writes if side is Side.BEFORE else alive.landed
    return kill.side is side and " Event " not in passed[kill.write - 1]


def settled(world: World) -> bool:
    return not [c for c in world.claims() if "deletionTimestamp" in c["metadata"]]


@pytest.mark.parametrize("side", Side)  # two tests, so that two workers share them
def test_an_operator_killed_at_any_write_is_finished_by_the_next(side, record_property):
    outcomes = at_every_write(life, chosen=lambda alive: [k for k in kills(alive) if k.side is side])
    failed = [o for o in outcomes if o.problem]
    record_property(
        FOUND, f"operator killed {side} every write, and finished by the next: {len(outcomes) - len(failed)} of {len(outcomes)}"
    )
    assert not failed
    assert len(outcomes) > 100


@pytest.mark.parametrize("side", Side)
def test_a_replacement_cut_short_at_a_third_of_its_writes_is_finished_by_the_next(side, record_property):
    """Of one machine like another; where every write is tried, see the order of two machines."""
    outcomes = at_every_write(
        exchange, chosen=lambda alive: [k for k in kills(alive, since_mark=True) if telling(alive, k, side)][::3]
    )
    failed = [o for o in outcomes if o.problem]
    record_property(
        FOUND, f"replacements cut short {side} every third write, and finished: {len(outcomes) - len(failed)} of {len(outcomes)}"
    )
    assert not failed
    assert len(outcomes) > 20


@pytest.mark.parametrize("side", Side)
def test_an_order_of_two_machines_cut_short_at_any_write_is_finished_or_taken_back(side, record_property):
    outcomes = at_every_write(split, chosen=lambda alive: [k for k in kills(alive, since_mark=True) if telling(alive, k, side)])
    failed = [o for o in outcomes if o.problem]
    record_property(
        FOUND, f"orders of two machines cut short {side} every write: {len(outcomes) - len(failed)} of {len(outcomes)}"
    )
    assert not failed
    assert len(outcomes) > 20


@pytest.mark.parametrize("side", Side)
def test_a_story_that_is_never_killed_where_it_should_be_is_not_counted_as_survived(side):
    (outcome,) = at_every_write(life, chosen=lambda alive: [Kill(len(alive.writes) + 10_000, side)])
    assert outcome.problem.startswith("it never came to write")
