"""Laws of `explain node`: what a purchase is said to be is what a slow look at the catalogue finds; purchases of random plans."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kubewright.api import labels as names
from kubewright.api.karpenter import NodeClaim
from kubewright.explain.choice import Choice, Offer, choice
from kubewright.lifecycle import bought, purchase
from kubewright.scheduling.requirements import compatible
from kubewright.solver.problem import PlannedClaim, Pool, Problem
from kubewright.solver.select import select
from kubewright.solver.solve import solve
from tests.conformance.adapter import read
from tests.conformance.problems import problem as random_problem

few = settings(max_examples=60, deadline=None)


def buyable(asked: Problem, pool: Pool, planned: PlannedClaim) -> list[Offer]:
    """Every offer that the cloud could answer with, the cheapest first; looked up one by one."""
    known = names.WELL_KNOWN | asked.settings.well_known_labels
    found = [
        Offer(kind.name, offering.zone, offering.capacity_type, offering.price)
        for kind in pool.instance_types
        for offering in kind.offerings
        if kind.name in planned.instance_types
        and offering.available
        and compatible(planned.requirements, offering.requirements, known) is None
    ]
    return sorted(found, key=lambda o: (o.usd_per_hour, o.instance_type, o.zone, o.capacity_type))


def launched(claim: NodeClaim, offer: Offer) -> NodeClaim:
    told = {names.INSTANCE_TYPE: offer.instance_type, names.ZONE: offer.zone, names.CAPACITY_TYPE: offer.capacity_type}
    return replace(claim, metadata=replace(claim.metadata, labels={**claim.metadata.labels, **told}))


def stories(seed: int) -> list[tuple[Choice, list[Offer], Offer, PlannedClaim]]:
    """Every purchase of a random plan, with what the cloud could have taken and what it did take."""
    asked = select(*read(random_problem(seed)[0])).problem
    chance, found = random.Random(seed), []
    for planned in solve(asked).claims:
        pool = next(p for p in asked.pools if p.node_pool.name == planned.node_pool)
        could = buyable(asked, pool, planned)
        took = chance.choice(could)
        claim = purchase.node_claim(planned, pool.node_pool, "claim")
        claim = replace(claim, metadata=replace(claim.metadata, annotations=bought.note(planned, "provisioned")))
        found.append((choice(launched(claim, took), pool, asked.pods, asked.settings), could, took, planned))
    return found


@few
@given(st.integers(0, 5000))
def test_prices_rank_and_runner_up_are_those_of_a_slow_look(seed: int) -> None:
    for told, could, took, planned in stories(seed):
        sold = [o for o in told.offers if not o.why_not]
        assert sold == could[: len(sold)]
        assert told.for_sale == len(could)
        assert told.rank == 1 + len([o for o in could if o.usd_per_hour < took.usd_per_hour])
        assert told.usd_per_hour == took.usd_per_hour
        assert told.runner_up == next((o for o in could if o != took), None)
        assert could[0].usd_per_hour == planned.usd_per_hour == told.bought_for.usd_per_hour or planned.usd_per_hour == 0
        assert told.bought_for.count == len(planned.pods)
        assert set(told.bought_for.pods) <= set(planned.pods)


@few
@given(st.integers(0, 5000))
def test_steps_add_up_to_the_list_that_the_cloud_was_asked_for(seed: int) -> None:
    for told, _, _, planned in stories(seed):
        left = told.types
        for step in told.steps:
            assert step.removed > 0
            assert step.left == left - step.removed
            left = step.left
        assert left == len(planned.instance_types)


@few
@given(st.integers(0, 5000))
def test_the_cloud_is_said_to_have_taken_the_cheapest_exactly_when_it_has(seed: int) -> None:
    for told, could, took, _ in stories(seed):
        is_cheapest = took.usd_per_hour == could[0].usd_per_hour
        assert told.picked.startswith("The cloud took the cheapest") == is_cheapest
        if not is_cheapest:
            dearer = [o for o in could if o.usd_per_hour < took.usd_per_hour]
            assert f"than {len(dearer)} that can be bought now, from {dearer[0]}" in told.picked


@given(st.lists(st.text("abcdefghij-", min_size=1, max_size=253), max_size=40), st.floats(0, 100))
def test_the_note_on_a_claim_is_small_and_read_back(pods: list[str], usd: float) -> None:
    planned = PlannedClaim("c", "p", {}, {}, {}, (), (), {}, (), tuple(sorted(pods)), usd)
    (text,) = bought.note(planned, "provisioned").values()
    assert len(text) < 1000
    claim = NodeClaim()
    read_back = bought.of(replace(claim, metadata=replace(claim.metadata, annotations={bought.BOUGHT_FOR: text})))
    assert read_back is not None
    assert (read_back.count, read_back.why) == (len(pods), "provisioned")
    assert read_back.pods == tuple(sorted(pods))[: len(read_back.pods)]
    for broken in ("", "{", "[]", '{"count": "x"}'):
        assert bought.of(replace(claim, metadata=replace(claim.metadata, annotations={bought.BOUGHT_FOR: broken}))) is None
