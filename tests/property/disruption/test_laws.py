"""What holds for every cluster, whatever disruption decides."""

from collections import Counter
from datetime import timedelta
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kubewright.api import labels as names
from kubewright.disruption import budgets
from kubewright.disruption.decisions import decide
from kubewright.disruption.memory import Memory
from kubewright.disruption.reasons import Reason
from kubewright.disruption.validation import Rejected, validate
from kubewright.scheduling.resources import pod_requests
from kubewright.solver.nodes import allocatable_of
from kubewright.solver.problem import Snapshot, SolverSettings
from kubewright.solver.select import select
from kubewright.solver.solve import solve
from tests.builders import NOW
from tests.property.disruption.world import GATES, SETTINGS, TYPES, carried_out, closed, clusters, price, usd

LATER = NOW + timedelta(hours=1)


def until_empty_is_done(cluster: Snapshot, chosen) -> tuple[Snapshot, list]:
    """Carry out empty nodes first, so that what is found next is consolidation."""
    found = decide(cluster, chosen, NOW, Memory())
    while found.commands and found.commands[0].reason is Reason.EMPTY:
        cluster = carried_out(cluster, found.commands)
        found = decide(cluster, chosen, NOW, Memory())
    return cluster, list(found.commands)


@settings(deadline=None, max_examples=150)
@given(clusters(), GATES)
def test_cost_never_rises_even_if_every_machine_is_launched_at_its_dearest(cluster, chosen):
    found = decide(cluster, chosen, NOW, Memory()).commands
    assert usd(carried_out(cluster, found)) <= usd(cluster)
    for command in found:
        source = sum(price(c.known) for c in command.candidates)
        dearest = 0.0
        for claim in command.replacements:
            zones, kinds = claim.requirements.get(names.ZONE), claim.requirements[names.CAPACITY_TYPE]
            dearest += max(
                o.price
                for t in TYPES
                if t.name in claim.instance_types
                for o in t.offerings
                if kinds.has(o.capacity_type) and (zones is None or zones.has(o.zone))
            )
        assert dearest < source


@settings(deadline=None, max_examples=100)
@given(clusters(), GATES)
def test_no_budget_of_nodes_or_of_pods_is_broken_by_what_is_proposed(cluster, chosen):
    found = decide(cluster, chosen, NOW, Memory()).commands
    going = [c for command in found for c in command.candidates]
    assert len({c.name for c in going}) == len(going)
    for reason in {command.reason for command in found}:
        left = budgets.remaining((p.node_pool for p in cluster.pools), budgets.usage(cluster.nodes), reason, NOW)
        for name, count in Counter(c.pool.name for c in going).items():
            assert count <= left.left[name]
    (guard,) = cluster.surroundings.budgets
    moved = [sum(1 for p in c.known.pods if p.metadata.labels["app"] == "guarded") for c in going]
    with_guarded = [n for n in moved if n]
    assert sum(with_guarded) <= guard.status.disruptions_allowed or len(with_guarded) == 1
    assert not with_guarded or guard.status.disruptions_allowed > 0


@settings(deadline=None, max_examples=150)
@given(clusters(), GATES)
def test_every_pod_that_had_a_home_has_one_afterwards(cluster, chosen):
    """Judged apart from the search: room by adding up, topology by counting, and by the scheduler asked about all at once."""
    found = decide(cluster, chosen, NOW, Memory()).commands
    after = carried_out(cluster, found)
    assert sorted(p.key for n in after.nodes for p in n.pods) == sorted(p.key for n in cluster.nodes for p in n.pods)
    for known in after.nodes:
        used = Counter()
        for one in known.pods:
            used.update(pod_requests(one))
        room = allocatable_of(known)
        assert all(amount <= room[name] for name, amount in used.items())
        assert sum(1 for p in known.pods if p.metadata.labels["app"] == "alone") <= 1
    going = {c.name for command in found for c in command.candidates}
    leaving = replace(
        cluster, nodes=tuple(replace(n, marked_for_deletion=n.node.name in going or n.marked_for_deletion) for n in cluster.nodes)
    )
    assert not solve(select(leaving, SolverSettings(reserved_strict=False)).problem).unplaced


@settings(deadline=None, max_examples=150)
@given(clusters(budget="100%", allowed=99), GATES)
def test_looking_again_after_its_own_action_soon_finds_nothing(cluster, chosen):
    """Mostly at once. Pods that fit on a machine just bought may go there later, and then it costs less every time."""
    cluster, _ = until_empty_is_done(cluster, chosen)
    costs = [usd(cluster)]
    for _ in range(4):
        found = decide(cluster, chosen, LATER, Memory()).commands
        if not found:
            break
        cluster = carried_out(cluster, found)
        costs.append(usd(cluster))
    assert not found
    assert all(after < before for before, after in pairwise(costs))


@settings(deadline=None, max_examples=150)
@given(clusters(budget="100%", allowed=99), GATES)
def test_run_again_after_its_own_action_it_proposes_nothing_for_what_stood_there_before(cluster, chosen):
    """Among the machines that stay, one look leaves nothing to a second one; room on those just bought is left aside here."""
    cluster, _ = until_empty_is_done(cluster, chosen)
    once = decide(cluster, chosen, NOW, Memory()).commands
    after = carried_out(cluster, once)
    fresh = {n.node.name for n in after.nodes} - {n.node.name for n in cluster.nodes}
    after = replace(after, nodes=tuple(closed(n) if n.node.name in fresh else n for n in after.nodes))
    again = decide(after, chosen, LATER, Memory()).commands
    assert not again, [str(c) for c in again]


@settings(deadline=None, max_examples=100)
@given(clusters(), GATES)
def test_a_node_is_never_replaced_by_another_like_it(cluster, chosen):
    def place(known):
        carried = known.node.metadata.labels
        return carried[names.INSTANCE_TYPE], carried[names.ZONE], carried[names.CAPACITY_TYPE]

    for command in decide(cluster, chosen, NOW, Memory()).commands:
        gone = {place(c.known) for c in command.candidates}
        for claim in command.replacements:
            zones, kinds = claim.requirements.get(names.ZONE), claim.requirements[names.CAPACITY_TYPE]
            for kind, zone, capacity_type in gone:
                like = kind in claim.instance_types and kinds.has(capacity_type) and (zones is None or zones.has(zone))
                assert not like


@settings(deadline=None, max_examples=60)
@given(clusters(), st.integers(0, 300))
def test_every_search_ends_within_its_steps_and_nobody_is_starved(cluster, steps):
    """With however few steps, looks that follow each other reach everybody, and what the cluster is in the end costs no more."""
    few = replace(SETTINGS, disruption=replace(SETTINGS.disruption, search_steps=steps))
    found = decide(cluster, few, NOW, Memory())
    most = max(len(n.pods) for n in cluster.nodes)
    rounds = 12 * (len(cluster.nodes) + sum(len(n.pods) for n in cluster.nodes))
    assert found.steps <= steps + rounds + 20 * most
    assert found.out_of_steps == bool(found.memory.unreached)
    named = {n.node.name for n in cluster.nodes}
    assert set(found.memory.unreached) <= named


@settings(deadline=None, max_examples=60)
@given(clusters(), GATES)
def test_a_command_holds_when_it_is_looked_at_again_at_once(cluster, chosen):
    for command in decide(cluster, chosen, NOW, Memory()).commands[:1]:
        again = validate(command, cluster, chosen, NOW, Memory())
        assert not isinstance(again, Rejected), again
        assert [c.name for c in again.candidates] == [c.name for c in command.candidates]


@settings(deadline=None, max_examples=60)
@given(clusters(), GATES)
def test_every_node_that_stays_says_why(cluster, chosen):
    found = decide(cluster, chosen, NOW, Memory())
    going = {c.name for command in found.commands for c in command.candidates}
    for known in cluster.nodes:
        assert (known.node.name in found.stays) != (known.node.name in going)


@settings(deadline=None, max_examples=30)
@given(clusters(), GATES)
def test_the_same_cluster_gives_the_same_decisions(cluster, chosen):
    assert decide(cluster, chosen, NOW, Memory()) == decide(cluster, chosen, NOW, Memory())


@settings(deadline=None, max_examples=30)
@given(clusters())
def test_nothing_is_done_to_what_is_frozen_or_not_seen(cluster):
    frozen = replace(SETTINGS, disruption=replace(SETTINGS.disruption, frozen=True))
    assert not decide(cluster, frozen, NOW, Memory()).commands
    assert not decide(replace(cluster, silent=("Pod",)), SETTINGS, NOW, Memory()).commands
    (first, second) = cluster.pools
    held = replace(first.node_pool.metadata, annotations={"kubewright.sh/freeze": "true"})
    cluster = replace(cluster, pools=(replace(first, node_pool=replace(first.node_pool, metadata=held)), second))
    found = decide(cluster, SETTINGS, NOW, Memory()).commands
    assert all(c.pool.name != first.node_pool.name for command in found for c in command.candidates)
