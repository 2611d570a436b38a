"""The mirror, told in any order, is what it would be if it had been told only the end."""

import asyncio
from types import MappingProxyType

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from kubewright.api import labels
from kubewright.api.core import Node, Pod
from kubewright.api.karpenter import NodeClaim
from kubewright.api.meta import OwnerReference
from kubewright.clock import Clock
from kubewright.cloud.provider import NodeClassKind
from kubewright.lifecycle import claims, state
from kubewright.sim.loop import EPOCH
from kubewright.solver.problem import SolverSettings
from kubewright.solver.select import select
from kubewright.state.mirror import ASSUMED_FOR, Mirror
from tests.unit.lifecycle.builders import T0, at, claim, deleted, labelled, node, pod


class Seller:
    """As much of a provider as the mirror asks for without pools."""

    node_class_kinds = (NodeClassKind("karpenter.k8s.aws", "EC2NodeClass"),)
    well_known_labels = frozenset()
    label_aliases = MappingProxyType({})


def mirror() -> Mirror:
    return Mirror(None, Seller(), Clock(EPOCH))


def informer(of: Mirror, obj):
    return {Pod: of.pods, Node: of.nodes, NodeClaim: of.node_claims}[type(obj)]


def tell(of: Mirror, obj, version=1):
    informer(of, obj)._put(labelled(obj, resource_version=str(version)))


def untell(of: Mirror, obj):
    informer(of, obj)._drop(obj.key)


IDS = st.sampled_from(["", "aws:///a/i-1", "aws:///a/i-2", "aws:///a/i-3"])


@st.composite
def objects(draw):
    kind = draw(st.sampled_from(["pod", "node", "claim"]))
    if kind == "pod":
        made = pod(
            draw(st.sampled_from("pqr")),
            on=draw(st.sampled_from(["", "n-1", "n-2", "n-3"])),
            phase=draw(st.sampled_from(["Running", "Pending", "Succeeded"])),
        )
    elif kind == "node":
        made = node(draw(st.sampled_from(["n-1", "n-2", "n-3"])), provider_id=draw(IDS), registered=draw(st.booleans()))
        if draw(st.booleans()):
            made = labelled(made, labels={})
        elif draw(st.booleans()):
            made = labelled(made, labels={labels.NODEPOOL: "general"})
    else:
        made = claims.with_status(claim(draw(st.sampled_from(["c-1", "c-2"]))), provider_id=draw(IDS))
    return deleted(made) if draw(st.booleans()) and draw(st.booleans()) else made


EVENTS = st.lists(st.tuples(st.booleans(), objects(), st.booleans()), max_size=25)


@settings(max_examples=300)
@given(EVENTS)
def test_every_history_ends_in_the_mirror_of_its_end(events):
    lived = mirror()
    end = {}
    for version, (going, obj, look) in enumerate(events):
        if going:
            untell(lived, obj)
            end.pop((type(obj), obj.key), None)
        else:
            tell(lived, obj, version)
            end[type(obj), obj.key] = labelled(obj, resource_version=str(version))
        if look:
            lived.snapshot(T0)
    # Two claims of one machine are an accident in which the order may matter; the cloud makes sure that there are none.
    ids = [o.status.provider_id for o in end.values() if isinstance(o, NodeClaim) and o.status.provider_id]
    if len(ids) != len(set(ids)) or _was_shared(events):
        return
    fresh = mirror()
    for obj in end.values():
        informer(fresh, obj)._put(obj)
    assert lived.snapshot(T0) == fresh.snapshot(T0)


def _was_shared(events):
    owner = {}
    for _, obj, _ in events:
        if isinstance(obj, NodeClaim) and obj.status.provider_id:
            owner.setdefault(obj.status.provider_id, set()).add(obj.name)
    return any(len(names) > 1 for names in owner.values())


def test_what_did_not_change_is_shared_between_snapshots():
    lived = mirror()
    for i in (1, 2):
        tell(lived, node(f"n-{i}", provider_id=f"aws:///a/i-{i}"))
        tell(lived, claims.with_status(claim(f"c-{i}", stage="Launched"), provider_id=f"aws:///a/i-{i}"))
    before = lived.snapshot(T0)
    tell(lived, pod("p", on="n-1"))
    after = lived.snapshot(T0)
    assert after.nodes[1] is before.nodes[1]
    assert [p.name for p in after.nodes[0].pods] == ["p"]
    assert lived.snapshot(T0).nodes is after.nodes


def test_a_claim_and_its_node_are_one_and_the_claim_speaks_until_it_is_registered():
    lived = mirror()
    tell(lived, claim("c-1", stage="Launched"))
    assert [state.name(n) for n in lived.snapshot(T0).nodes] == ["c-1"]
    tell(lived, node("n-1"), 2)
    assert [state.name(n) for n in lived.snapshot(T0).nodes] == ["c-1"]
    tell(lived, node("n-1", registered=True), 3)
    (one,) = lived.snapshot(T0).nodes
    assert state.name(one) == "n-1"
    assert one.claim.name == "c-1"


def test_a_new_claim_holds_the_next_pass_up_until_its_machine_is_known_or_it_goes():
    async def main():
        lived = mirror()
        fresh = claim("c-1")
        lived.assume(fresh)
        now = lived._clock.now()
        assert lived.unlaunched(now) == ("c-1",)
        tell(lived, fresh)
        assert lived.unlaunched(now) == ("c-1",)
        tell(lived, deleted(fresh), 2)
        assert lived.unlaunched(now) == ()
        tell(lived, claim("c-1", stage="Launched"), 3)
        assert lived.unlaunched(now) == ()
        lived.assume(claim("c-2"))
        assert lived.unlaunched(now) == ("c-2",)
        assert lived.unlaunched(lived._clock.now() + ASSUMED_FOR) == (), "it never came to be"

    asyncio.run(main())


def test_somebody_elses_claims_are_nobody_here():
    lived = mirror()
    other = claim("c-1", stage="Launched")
    reference = msgspec.structs.replace(other.spec.node_class_ref, kind="Other")
    tell(lived, msgspec.structs.replace(other, spec=msgspec.structs.replace(other.spec, node_class_ref=reference)))
    assert lived.snapshot(T0).nodes == ()
    assert lived.unlaunched(T0) == ()


def test_marks_and_nominations_show_and_can_be_taken_back():
    lived = mirror()
    tell(lived, claim("c-1", stage="Registered"))
    tell(lived, node("n-1", registered=True))
    lived.nominate("n-1", at(20))
    lived.mark(["aws:///eu-west-1a/i-0001"])
    (one,) = lived.snapshot(T0).nodes
    assert (one.marked_for_deletion, one.nominated_until) == (True, at(20))
    lived.unmark(["aws:///eu-west-1a/i-0001"])
    assert not lived.snapshot(T0).nodes[0].marked_for_deletion


def test_a_finished_pod_of_a_stateful_set_that_ends_is_handed_over_with_a_node_that_goes():
    """Its successor comes once it is gone, and needs a home; other finished pods need none. Source: scheduling 1.2."""
    owner = OwnerReference(api_version="apps/v1", kind="StatefulSet", name="db", uid="db-uid", controller=True)
    lived = mirror()
    tell(lived, claim("c-1", stage="Registered"))
    tell(lived, node("n-1", registered=True))
    tell(lived, deleted(pod("db-0", owner=owner, phase="Failed")))
    tell(lived, pod("db-1", owner=owner, phase="Failed"))
    tell(lived, deleted(pod("web", phase="Failed")))
    assert lived.snapshot(T0).nodes[0].pods == ()
    lived.mark(["aws:///eu-west-1a/i-0001"])
    asked = select(lived.snapshot(T0), SolverSettings()).problem
    assert [p.key for p in asked.pods] == ["default/db-0"]
    untell(lived, pod("db-0"))
    assert lived.snapshot(T0).nodes[0].pods == ()


def test_what_the_objects_say_is_going_is_marked_by_itself():
    lived = mirror()
    tell(lived, deleted(claim("c-1", stage="Registered")))
    assert lived.snapshot(T0).nodes[0].marked_for_deletion


def test_a_managed_node_counts_only_when_enough_is_known_of_it():
    lived = mirror()
    tell(lived, labelled(node("n-1"), labels={labels.NODEPOOL: "general"}))
    assert lived.snapshot(T0).nodes == ()
    tell(lived, labelled(node("n-1"), labels={labels.NODEPOOL: "general", labels.INSTANCE_TYPE: "m5.large"}), 2)
    assert len(lived.snapshot(T0).nodes) == 1
    tell(lived, labelled(node("n-2", provider_id=""), labels={}))
    assert [state.name(n) for n in lived.snapshot(T0).nodes] == ["n-1", "n-2"]


def test_pods_wait_in_order_and_leave_the_queue_when_they_are_bound_or_done():
    lived = mirror()
    for name in "cab":
        tell(lived, pod(name, on=""))
    assert [p.name for p in lived.snapshot(T0).pods] == ["a", "b", "c"]
    tell(lived, pod("a", on="n-9"), 2)
    tell(lived, pod("b", on="", phase="Failed"), 2)
    assert [p.name for p in lived.snapshot(T0).pods] == ["c"]


def waiting(name: str) -> Pod:
    return labelled(pod(name, on="", phase="Pending"), uid=name)


def bound_to(waits: Pod, where: str) -> Pod:
    return msgspec.structs.replace(waits, spec=msgspec.structs.replace(waits.spec, node_name=where))


def nominated(of: Mirror) -> bool:
    (known,) = of.snapshot(T0).nodes
    return known.nominated_until is not None


def in_a_loop(body) -> None:
    """The mirror asks its clock, which asks the loop."""

    async def main() -> None:
        body(mirror())

    asyncio.run(main())


def test_a_nomination_ends_when_the_last_pod_it_was_made_for_is_bound_or_gone():
    def body(of: Mirror) -> None:
        tell(of, node("n"))
        for name in ("a", "b"):
            tell(of, waiting(name))
        of.nominate("n", at(20), [waiting("a").key, waiting("b").key])
        assert nominated(of)
        tell(of, bound_to(waiting("a"), "n"), version=2)
        assert nominated(of), "one is still to come"
        untell(of, waiting("b"))
        assert not nominated(of)

    in_a_loop(body)


def test_a_nomination_that_others_need_as_well_keeps_its_time():
    def body(of: Mirror) -> None:
        tell(of, node("n"))
        tell(of, waiting("a"))
        of.nominate("n", at(20))
        of.nominate("n", at(20), [waiting("a").key])
        tell(of, bound_to(waiting("a"), "n"), version=2)
        assert nominated(of)
        of.nominate("n", at(30), ["default/of-a-node-that-goes"])
        assert nominated(of), "pods that do not wait yet cannot be seen to arrive"

    in_a_loop(body)
