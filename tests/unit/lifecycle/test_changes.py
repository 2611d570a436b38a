import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.api import labels
from kubewright.api.core import Taint
from kubewright.lifecycle import changes, claims, nodes
from kubewright.sim.apiserver.patching import apply_json, merge
from tests.unit.lifecycle.builders import T0, claim, labelled, node, pool

KEYS = st.sampled_from(["a", "b/c", "karpenter.sh/x~y", "d"])
MAPS = st.dictionaries(KEYS, st.text(alphabet="xyz", max_size=2), max_size=4)
TAINTS = st.lists(
    st.builds(Taint, key=st.sampled_from("abcd"), effect=st.sampled_from(["NoSchedule", "NoExecute"])), unique=True, max_size=4
)


def wire(obj):
    return msgspec.json.decode(msgspec.json.encode(obj))


def applied(before, after):
    """What a server makes of the patches."""
    found = wire(before)
    for change in changes.between(before, after):
        if change.operations:
            found = apply_json(found, change.operations)
        else:
            found = merge(found, change.body)
    return msgspec.convert(found, type(before))


@given(was=MAPS, now=MAPS, notes=MAPS, finalizers=st.lists(st.sampled_from("pqr"), unique=True))
def test_the_patches_of_a_claim_turn_the_one_into_the_other(was, now, notes, finalizers):
    before = labelled(claim(), labels=was)
    after = labelled(before, labels=now, annotations=notes, finalizers=tuple(finalizers))
    after = claims.with_condition(after, claims.LAUNCHED, "True", now=T0)
    assert applied(before, after) == after


@given(was=TAINTS, now=TAINTS, old=MAPS, new=MAPS)
def test_the_patch_of_a_node_keeps_the_taints_that_stay_where_they_are(was, now, old, new):
    before = labelled(node(taints=was), labels=old)
    kept = [t for t in was if t in now]
    after = labelled(nodes.with_taints(before, [*kept, *(t for t in now if t not in was)]), labels=new)
    assert applied(before, after) == after


def test_a_taint_is_removed_by_itself_so_that_the_time_on_another_survives():
    first, second = Taint(key="a", effect="NoExecute"), Taint(key="b", effect="NoSchedule")
    before = node(taints=[first, second])
    (change,) = changes.between(before, nodes.with_taints(before, [first]))
    assert change.operations == ({"op": "remove", "path": "/spec/taints/1"},)


def test_nothing_is_written_where_nothing_differs():
    assert changes.between(claim(), claim()) == ()


def test_a_difference_that_would_not_be_written_is_an_error():
    before = pool()
    after = msgspec.structs.replace(before, spec=msgspec.structs.replace(before.spec, weight=5))
    with pytest.raises(ValueError, match="general differs"):
        changes.between(before, after)


def test_two_objects_are_never_mixed_up():
    with pytest.raises(ValueError, match="not one object"):
        changes.between(claim("c-1"), claim("c-2"))


def test_status_goes_through_its_subresource_after_the_metadata():
    after = claims.with_condition(labelled(claim(), labels={labels.ZONE: "a"}), claims.LAUNCHED, "True", now=T0)
    assert [c.subresource for c in changes.between(claim(), after)] == ["", "status"]


def test_an_empty_message_is_written_because_the_crd_wants_one():
    after = claims.with_condition(claim(), claims.LAUNCHED, "True", now=T0)
    (change,) = changes.between(claim(), after)
    assert all({"message", "reason"} <= c.keys() for c in change.body["status"]["conditions"])
