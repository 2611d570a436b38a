"""Laws of reserved capacity: promised once, used up, and sure in whatever order machines are launched."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kubewright.api import labels as names
from kubewright.api.karpenter import NodeClaim, NodeClaimSpec, NodeSelectorRequirement
from kubewright.api.meta import ObjectMeta
from kubewright.catalogue.columns import Columns
from kubewright.catalogue.types import Offering
from kubewright.explain.karpenter import karpenter_text
from kubewright.explain.sentences import sentence
from kubewright.packing import plan
from kubewright.scheduling.refusal import Because
from kubewright.settings import Packing, Settings
from kubewright.solver.problem import SolverSettings, StateNode
from kubewright.solver.reservations import Reservations
from kubewright.solver.solve import solve
from tests.builders import S_TYPES, ask, needs, node_pool, one_of, pods

KEY = "example.com/reservation-id"
WELL_KNOWN = names.WELL_KNOWN | {KEY}


def reserved(kind, zone, name, capacity):
    """The type with one more offering, from a reservation."""
    requirements = {
        names.ZONE: one_of(names.ZONE, zone),
        names.CAPACITY_TYPE: one_of(names.CAPACITY_TYPE, names.RESERVED),
        KEY: one_of(KEY, name),
    }
    sold = kind.requirements[names.CAPACITY_TYPE].values | {names.RESERVED}
    known = kind.requirements.get(KEY, one_of(KEY)).values | {name}
    more = {names.CAPACITY_TYPE: one_of(names.CAPACITY_TYPE, *sold), KEY: one_of(KEY, *known)}
    offering = Offering(requirements, 0.00001, reservation_capacity=capacity)
    return replace(kind, requirements={**kind.requirements, **more}, offerings=(*kind.offerings, offering))


class Held:
    """As much of a claim as settling asks for."""

    def __init__(self, index, held):
        self.index = index
        self.held = held


def table(capacities):
    kind = S_TYPES[0]
    for name, capacity in capacities.items():
        kind = reserved(kind, "a", name, capacity)
    return Columns([kind], WELL_KNOWN)


def seats(capacities, claims):
    """Whether everybody can have a machine: a plain search."""
    machines = [name for name, n in capacities.items() for _ in range(n)]
    if len(machines) < len(claims):
        return False
    return any(all(m in may for m, may in zip(p, claims, strict=False)) for p in itertools.permutations(machines, len(claims)))


capacities = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2), min_size=1, max_size=3)
wishes = st.lists(st.sets(st.sampled_from("abcd"), max_size=3).map(frozenset), max_size=6)


@given(capacities, wishes)
def test_a_machine_is_promised_exactly_as_long_as_everybody_can_have_one(known, asked):
    reservations = Reservations([table(known)], strict=True)
    holding: list[frozenset[str]] = []
    for i, may in enumerate(asked):
        if reservations.hold(i, may):
            holding.append(may & known.keys())
            assert seats(known, holding)
        else:
            assert not seats(known, [*holding, may & known.keys()])


@given(capacities, wishes, st.randoms(use_true_random=False))
def test_after_settling_nobody_comes_away_without_whoever_is_launched_first(known, asked, chance):
    reservations = Reservations([table(known)], strict=True)
    claims = [Held(i, may) for i, may in enumerate(asked) if reservations.hold(i, may)]
    wished = {c.index: c.held for c in claims}
    reservations.settle(claims)
    left = dict(known)
    chance.shuffle(claims)
    for claim in claims:
        assert claim.held
        assert claim.held <= wished[claim.index]
        free = sorted(name for name in claim.held if left[name])
        assert free, "somebody else took what this claim was promised"
        left[chance.choice(free)] -= 1


@given(capacities, wishes, st.data())
def test_letting_go_makes_room_and_asking_again_changes_nothing(known, asked, data):
    reservations = Reservations([table(known)], strict=True)
    holding = [i for i, may in enumerate(asked) if reservations.hold(i, may)]
    for i in holding:
        assert reservations.hold(i, asked[i])
    if holding:
        gone = data.draw(st.sampled_from(holding))
        reservations.release(gone)
        assert reservations.hold(gone, asked[gone])


@given(st.integers(0, 3), st.integers(0, 3), st.integers(1, 9), st.booleans())
def test_two_pools_use_up_what_is_reserved_and_never_more(in_a, in_b, count, strict):
    kind = reserved(reserved(S_TYPES[1], "a", "r-a", in_a), "b", "r-b", in_b)
    pools = [node_pool("one", weight=9, requirements=(needs(names.ZONE, "a"),)), node_pool("two")]
    how = SolverSettings(well_known_labels=frozenset({KEY}), reserved_strict=strict)
    found = solve(ask(pods(count, cpu="3"), pools, (kind,), settings=how))
    assert found.unplaced == {}
    held = [c for c in found.claims if c.requirements[names.CAPACITY_TYPE].values == {names.RESERVED}]
    assert len(found.claims) == count
    assert len([c for c in held if c.requirements[KEY].values == {"r-a"}]) <= in_a
    assert all(c.requirements[KEY].values <= {"r-a"} for c in held if c.node_pool == "one")
    assert len(held) == min(count, in_a), "the heavier pool takes all, and buys what it lacks in its own zone"


def test_a_claim_takes_no_more_pods_than_its_reserved_machine_holds():
    small = reserved(S_TYPES[0], "a", "r", 1)
    types = (small, *S_TYPES[1:4])
    how = SolverSettings(well_known_labels=frozenset({KEY}))
    found = solve(ask(pods(4, cpu="1"), types=types, settings=how))
    held = [c for c in found.claims if c.requirements[names.CAPACITY_TYPE].values == {names.RESERVED}]
    assert [(c.instance_types, len(c.pods)) for c in held] == [(("s2",), 2)]
    assert sum(len(c.pods) for c in found.claims) == 4


def test_what_was_bought_before_and_is_not_launched_yet_counts():
    kind = reserved(S_TYPES[1], "a", "r", 2)
    requirements = (
        NodeSelectorRequirement(key=names.CAPACITY_TYPE, operator="In", values=(names.RESERVED,)),
        NodeSelectorRequirement(key=KEY, operator="In", values=("r",)),
    )
    coming = NodeClaim(metadata=ObjectMeta(name="coming"), spec=NodeClaimSpec(requirements=requirements))
    how = SolverSettings(well_known_labels=frozenset({KEY}))
    found = solve(ask(pods(3, cpu="3"), types=(kind,), settings=how, nodes=[StateNode(None, coming)]))
    held = [c for c in found.claims if c.requirements[names.CAPACITY_TYPE].values == {names.RESERVED}]
    assert (len(held), len(found.claims)) == (1, 3)


def test_who_may_use_nothing_but_reserved_capacity_is_told_when_it_is_taken():
    kind = reserved(S_TYPES[1], "a", "r", 1)
    only = node_pool(requirements=(needs(names.CAPACITY_TYPE, names.RESERVED),))
    how = SolverSettings(well_known_labels=frozenset({KEY}))
    found = solve(ask(pods(2, cpu="3"), [only], (kind,), settings=how))
    assert len(found.claims) == 1
    ((refusal,),) = found.unplaced.values()
    assert (refusal.because, refusal.wanted) == (Because.RESERVED, "r")
    assert "could not be reserved" in karpenter_text(refusal)
    assert "Allow on-demand as well" in sentence(refusal)


def test_pods_beside_reserved_machines_are_packed_as_well_as_without_any():
    """Reservations take what they hold; the rest costs what it would cost alone."""
    kind = reserved(reserved(S_TYPES[1], "a", "r-a", 2), "b", "r-b", 2)
    types = (S_TYPES[0], kind, *S_TYPES[2:4])
    how, better = SolverSettings(well_known_labels=frozenset({KEY})), Settings(packing=Packing.IMPROVE)
    rest = plan(ask(pods(30, cpu="1700m"), types=types[:1] + S_TYPES[1:4], settings=how), better)
    whole = plan(ask(pods(30 + 4 * 2, cpu="1700m"), types=types, settings=how), better)
    held = [c for c in whole.claims if c.requirements[names.CAPACITY_TYPE].values == {names.RESERVED}]
    assert [len(c.pods) for c in held] == [2] * 4
    assert whole.usd_per_hour == pytest.approx(rest.usd_per_hour, abs=0.001)
    assert whole.unplaced == {}
    assert len({key for c in whole.claims for key in c.pods}) == 38
