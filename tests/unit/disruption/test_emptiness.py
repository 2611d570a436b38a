from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.api import labels
from kubewright.api.karpenter import Budget
from kubewright.catalogue.types import InstanceType, Offering
from kubewright.disruption import emptiness
from kubewright.disruption.candidates import Candidate, candidates
from kubewright.disruption.consolidatable import consolidatable, is_under_consolidate_after
from kubewright.disruption.marking import tainted, untainted
from kubewright.disruption.reasons import Class, Decision
from kubewright.lifecycle import claims
from kubewright.scheduling.requirement import requirement
from kubewright.solver.problem import Pool, Snapshot, Surroundings
from tests.unit.lifecycle.builders import DAEMON, T0, at, claim, deleted, known, labelled, pdb, pod, pool


def types(price=0.1):
    offering = Offering(
        {
            labels.ZONE: requirement(labels.ZONE, "In", ["a"]),
            labels.CAPACITY_TYPE: requirement(labels.CAPACITY_TYPE, "In", ["spot"]),
        },
        price,
    )
    return (InstanceType("m5.large", {}, (offering,), {}),)


def snapshot(*nodes, pools=None, budgets=(), now=T0):
    listed = pools if pools is not None else [pool(budgets=(Budget(nodes="100%"),))]
    return Snapshot(now, nodes, (), tuple(Pool(p, types()) for p in listed), Surroundings(budgets=tuple(budgets)))


def names(command):
    return [] if command is None else [c.name for c in command.candidates]


def noted(state, **annotations):
    node = labelled(state.node, annotations=annotations)
    return type(state)(node, state.claim, state.pods, state.marked_for_deletion)


def why(state, *, budgets=(), pools=None, how=Class.GRACEFUL):
    found = candidates(snapshot(state, budgets=budgets, pools=pools), how)
    return found.blocked[0].why if found.blocked else ""


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (type(known())(None, known().claim), "isn't registered"),
        (known(stage="Registered"), "isn't initialized"),
        (known(marked=True), "deleting or marked"),
        (noted(known(), **{labels.DO_NOT_DISRUPT: "true"}), "annotation"),
        (known(pool="other"), "NodePool not found (NodePool=other)"),
        (known(pods=(pod(annotations={labels.DO_NOT_DISRUPT: "true"}),)), "(Pod=default/p-1)"),
        (known(pods=(pod(owner=DAEMON, annotations={labels.DO_NOT_DISRUPT: "true"}),)), "(Pod=default/p-1)"),
    ],
)
def test_what_stands_in_the_way_is_named(state, text):
    assert text in why(state)


def test_a_nominated_node_is_left_alone_until_it_is_over():
    one = known()
    nominated = type(one)(one.node, one.claim, (), False, at(20))
    assert "nominated" in why(nominated)
    assert emptiness.find(snapshot(nominated, now=at(20))).command is not None


def test_budgets_of_pods_block_a_node_by_name():
    one = known(pods=(pod(),))
    assert why(one, budgets=[pdb("web", allowed=0)]) == "PDB prevents pod evictions (PDB=default/web)"
    assert why(one, budgets=[pdb("web", allowed=1)]) == ""
    two = [pdb("a", allowed=1), pdb("b", allowed=1)]
    assert why(one, budgets=two) == "Eviction does not support multiple PDBs (PDB(s)=[default/a default/b])"


def test_pods_do_not_block_an_eventual_disruption_that_has_a_grace_period():
    one = known(pods=(pod(annotations={labels.DO_NOT_DISRUPT: "true"}),))
    spec = msgspec.structs.replace(one.claim.spec, termination_grace_period="1h")
    bounded = type(one)(one.node, msgspec.structs.replace(one.claim, spec=spec), one.pods)
    assert why(bounded, how=Class.EVENTUAL) == ""
    assert why(one, how=Class.EVENTUAL) != ""
    assert why(bounded) != ""


def test_a_pool_that_sells_nothing_offers_no_candidates():
    assert "NodePool not found" in candidates(Snapshot(T0, (known(),), (), (Pool(pool()),)), Class.GRACEFUL).blocked[0].why


def test_empty_means_without_pods_that_need_a_home():
    daemons = known("n-1", pods=(pod(owner=DAEMON),))
    finished = known("n-2", pods=(deleted(pod()),))
    busy = known("n-3", pods=(pod(),))
    fresh = known("n-4", quiet=False)
    assert names(emptiness.find(snapshot(daemons, finished, busy, fresh)).command) == ["n-1", "n-2"]


def test_nothing_goes_where_consolidation_is_off():
    assert emptiness.find(snapshot(known(), pools=[pool(consolidate_after="Never")])).command is None


def test_the_command_says_what_it_does():
    command = emptiness.find(snapshot(known("n-1"), known("n-2"))).command
    assert command.decision is Decision.DELETE
    assert str(command).startswith("Empty/")
    assert str(command).endswith(": delete: nodepools=[general]: [n-1, n-2] (savings: $0.00)")
    assert command.id == emptiness.find(snapshot(known("n-1"), known("n-2"))).command.id


def test_the_dearest_goes_first_when_a_budget_lets_only_one():
    cheap, dear = known("n-1"), known("n-2")
    place = {labels.ZONE: "a", labels.CAPACITY_TYPE: "spot"}
    dear = type(dear)(labelled(dear.node, labels={**dear.node.metadata.labels, **place}), dear.claim)
    one = pool(budgets=(Budget(nodes="1"),))
    found = emptiness.find(snapshot(cheap, dear, pools=[one]))
    assert names(found.command) == ["n-2"]
    assert [c.name for c in found.held] == ["n-1"]
    assert found.eligible == 2


def test_second_thoughts_keep_what_is_still_true():
    command = emptiness.find(snapshot(known("n-1"), known("n-2"), known("n-3"))).command
    now_busy = known("n-2", pods=(pod(),))
    assert names(emptiness.confirm(command, snapshot(known("n-1"), now_busy, known("n-4")))) == ["n-1"]
    assert emptiness.confirm(command, snapshot(now_busy)) is None
    shut = [pool(budgets=(Budget(nodes="0"),))]
    assert emptiness.confirm(command, snapshot(known("n-1"), pools=shut)) is None


MACHINES = st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans(), st.sampled_from(["a", "b"])), max_size=10)
BUDGETS = st.lists(st.sampled_from(["0", "1", "3", "10%", "50%", "100%"]), max_size=2)


@given(MACHINES, BUDGETS, BUDGETS)
def test_no_budget_is_ever_broken_and_only_empty_nodes_go(machines, first, second):
    listed = [
        known(f"n-{i}", marked=m, ready=r, pods=(pod(),) if p else (), pool=name) for i, (m, r, p, name) in enumerate(machines)
    ]
    both = [
        pool("a", budgets=tuple(Budget(nodes=b) for b in first)),
        pool("b", budgets=tuple(Budget(nodes=b) for b in second)),
    ]
    command = emptiness.find(snapshot(*listed, pools=both)).command
    going = () if command is None else command.candidates
    assert all(c.is_empty for c in going)
    for one, texts in zip(both, (first, second), strict=True):
        mine = [n for n in listed if claims.pool_of(n.claim) == one.name]
        down = sum(1 for n in mine if n.marked_for_deletion or n.node.status.conditions[0].status != "True")
        chosen = sum(1 for c in going if c.pool.name == one.name)
        for text in texts:
            limit = -(-int(text[:-1]) * len(mine) // 100) if text.endswith("%") else int(text)
            assert chosen == 0 or down + chosen <= limit


def test_consolidatable_is_counted_from_the_last_pod_event():
    one = claim(stage="Initialized")
    rule = pool(consolidate_after="30s")
    assert consolidatable(one, rule, at(29)) == (one, timedelta(seconds=1))
    ready, again = consolidatable(one, rule, at(30))
    assert claims.is_set(ready, claims.CONSOLIDATABLE)
    assert again is None
    assert consolidatable(ready, rule, at(31))[0] is ready
    moved = claims.with_status(ready, last_pod_event_time=at(40))
    cleared, again = consolidatable(moved, rule, at(41))
    assert not claims.is_set(cleared, claims.CONSOLIDATABLE)
    assert again == timedelta(seconds=29)


def test_consolidatable_at_once_never_or_not_yet():
    one = claim(stage="Initialized")
    assert claims.is_set(consolidatable(one, pool(consolidate_after="0s"), T0)[0], claims.CONSOLIDATABLE)
    assert consolidatable(one, pool(consolidate_after="Never"), at(10**6)) == (one, None)
    assert consolidatable(claim(stage="Registered"), pool(), at(10**6))[1] is None


def test_a_node_that_settles_takes_no_moved_pods():
    one = claim(stage="Initialized")
    assert is_under_consolidate_after(one, pool(consolidate_after="30s"), at(29))
    assert not is_under_consolidate_after(one, pool(consolidate_after="30s"), at(30))
    assert not is_under_consolidate_after(one, pool(consolidate_after="0s"), T0)
    assert not is_under_consolidate_after(None, None, T0)


def test_marking_and_unmarking_a_node_leaves_it_as_it_was():
    before = known().node
    assert untainted(tainted(before)) == before
    assert tainted(tainted(before)) == tainted(before)


def test_candidates_know_their_price():
    one = known()
    place = {labels.ZONE: "a", labels.CAPACITY_TYPE: "spot"}
    one = type(one)(labelled(one.node, labels={**one.node.metadata.labels, **place}), one.claim)
    (found,) = candidates(snapshot(one), Class.GRACEFUL).found
    assert isinstance(found, Candidate)
    assert found.usd_per_hour == 0.1
