"""Finalization of claims, termination of Nodes, expiration, collection."""

from datetime import timedelta

import pytest

from kubewright.api import labels
from kubewright.api.core import Taint, Toleration, VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec
from kubewright.api.meta import ObjectMeta, find_condition
from kubewright.lifecycle import claims, collection, expiration, finalization, node_termination, nodes
from kubewright.lifecycle.effects import Count, Delete, Publish, Update
from kubewright.lifecycle.finalization import Stage
from kubewright.lifecycle.node_termination import Leaving
from tests.unit.lifecycle.builders import PROVIDER_ID, T0, at, claim, deleted, labelled, node, pod

OURS = ["karpenter.k8s.aws/ec2nodeclass"]


def attachment(name, volume):
    source = VolumeAttachmentSource(persistent_volume_name=volume)
    return VolumeAttachment(metadata=ObjectMeta(name=name), spec=VolumeAttachmentSpec(node_name="n-1", source=source))


def test_the_termination_time_is_written_once_before_anything_goes():
    one = deleted(claim(stage="Initialized", termination_grace_period="1h"), at(10))
    ending = finalization.next_stage(one, [node(registered=True)])
    update = ending.step.effects[0]
    assert isinstance(update, Update)
    assert update.after.metadata.annotations[labels.TERMINATION_TIMESTAMP] == "2026-01-01T13:00:10Z"
    assert finalization.with_deadline(update.after) is update.after
    assert ending.step.again == timedelta()


def test_nodes_go_before_the_machine():
    here, going = node("n-1", registered=True), deleted(node("n-2", registered=True))
    one = deleted(claim(stage="Registered"))
    ending = finalization.next_stage(one, [here, going])
    assert ending.stage is Stage.DRAINING
    assert ending.step.effects == (Delete(here),)
    assert finalization.next_stage(one, []).stage is Stage.MACHINE


def test_an_unregistered_claim_never_touches_nodes():
    assert finalization.next_stage(deleted(claim(stage="Launched")), [node()]).stage is Stage.MACHINE


def test_a_claim_without_a_machine_needs_no_cloud():
    assert finalization.next_stage(deleted(claim()), []).stage is Stage.DONE


def test_a_machine_is_asked_about_until_it_is_gone():
    one = deleted(claim(stage="Registered"))
    ending, step = finalization.machine_asked(one, T0, gone=False)
    assert claims.is_set(ending, claims.INSTANCE_TERMINATING)
    assert step.again == finalization.FIRST_POLL
    assert finalization.machine_asked(ending, at(60), gone=False)[1].again == finalization.POLL
    assert finalization.machine_asked(ending, at(60), gone=True)[1].again is None
    free, _ = finalization.released(ending)
    assert free.metadata.finalizers == ()


def test_a_closed_node_takes_nothing_new_and_closing_twice_changes_nothing():
    other = Taint(key="karpenter.sh/disrupted", effect="NoExecute")
    kept = Taint(key="a", effect="NoSchedule")
    closed = node_termination.closed(node(taints=(other, kept)))
    assert closed.spec.taints == (kept, labels.DISRUPTED_TAINT)
    assert closed.metadata.labels[node_termination.EXCLUDE_FROM_LOAD_BALANCERS] == "karpenter"
    assert node_termination.closed(closed) == closed


def progress(seconds, *, one=None, **leaving):
    one = deleted(claim(stage="Initialized")) if one is None else one
    return node_termination.progress(Leaving(deleted(node(registered=True)), one, **leaving), at(seconds))


def test_a_drain_lasts_five_seconds_even_if_nothing_was_there():
    first = progress(0)
    assert first.stage is node_termination.Stage.WAITING
    assert find_condition(first.claim.status.conditions, claims.DRAINED).status == "Unknown"
    assert progress(4, one=first.claim).stage is node_termination.Stage.WAITING
    done = progress(5, one=first.claim)
    assert done.stage is node_termination.Stage.MACHINE
    assert claims.is_set(done.claim, claims.DRAINED)
    assert claims.is_set(done.claim, claims.VOLUMES_DETACHED)
    assert [e.name for e in done.step.effects if isinstance(e, Count)] == ["nodes_drained_total"]
    assert not [e for e in progress(6, one=done.claim).step.effects if isinstance(e, Count)], "counted once"


def test_a_node_drains_its_pods_first_and_says_how_many_it_waits_for():
    found = progress(0, pods=(pod("a"), pod("b")))
    assert [p.name for p in found.leave] == ["a", "b"]
    assert found.step.again == node_termination.POLL
    (told,) = [e for e in found.step.effects if isinstance(e, Publish)]
    assert (told.reason, told.message) == ("FailedDraining", "Failed to drain node, 2 pods are waiting to be evicted")


def test_a_node_without_a_claim_is_done_once_it_is_empty():
    gone = node_termination.progress(Leaving(deleted(node()), None), T0)
    assert gone.stage is node_termination.Stage.DONE
    assert node_termination.progress(Leaving(deleted(node()), None, (pod(),)), T0).stage is node_termination.Stage.WAITING


def drained(**spec):
    one = deleted(claim(stage="Initialized", **spec))
    return claims.with_condition(one, claims.DRAINED, "True", now=T0)


def test_volumes_are_waited_for_unless_their_pod_stays():
    stays = pod("ds", tolerations=(Toleration(operator="Exists"),))
    found = progress(
        9, one=drained(), attachments=(attachment("va-2", "pv-2"), attachment("va-1", "pv-1"), attachment("va-3", None))
    )
    assert found.stage is node_termination.Stage.WAITING
    assert find_condition(found.claim.status.conditions, claims.VOLUMES_DETACHED).reason == "AwaitingVolumeDetachment"
    (told,) = [e for e in found.step.effects if isinstance(e, Publish)]
    assert told.message.endswith("(va-1, va-2)")
    kept = progress(9, one=drained(), pods=(stays,), attachments=(attachment("va-1", "pv-1"),), volumes_of=((stays.key, "pv-1"),))
    assert kept.stage is node_termination.Stage.MACHINE


def test_the_deadline_ends_the_wait_for_volumes():
    one = labelled(drained(), annotations={labels.TERMINATION_TIMESTAMP: "2026-01-01T12:01:00Z"})
    waiting = progress(60, one=one, attachments=(attachment("va-1", "pv-1"),))
    assert waiting.stage is node_termination.Stage.WAITING
    elapsed = progress(61, one=one, attachments=(attachment("va-1", "pv-1"),))
    assert elapsed.stage is node_termination.Stage.MACHINE
    assert find_condition(elapsed.claim.status.conditions, claims.VOLUMES_DETACHED).reason == "TerminationGracePeriodElapsed"


def test_a_termination_time_that_cannot_be_read_names_the_claim_and_the_mend():
    one = labelled(drained(), annotations={labels.TERMINATION_TIMESTAMP: "tomorrow"})
    with pytest.raises(ValueError, match=r"NodeClaim c-1: .*'tomorrow'; write a time such as"):
        progress(0, one=one)


def test_only_our_nodes_are_ended_by_us():
    mine = labelled(node(), finalizers=(labels.TERMINATION_FINALIZER,))
    assert node_termination.is_ours(mine, OURS)
    assert not node_termination.is_ours(node(), OURS)
    assert not node_termination.is_ours(labelled(mine, labels={}), OURS)
    assert node_termination.released(mine)[0].metadata.finalizers == ()


def test_a_claim_expires_at_its_own_age_and_is_not_deleted_twice():
    one = claim(expire_after="1h")
    assert expiration.expire(one, at(3599), 0).again == timedelta(seconds=1)
    step = expiration.expire(one, at(3600), 4)
    assert step.effects[0] == Delete(one)
    assert [e.amount for e in step.effects if isinstance(e, Count)] == [1, 4]
    assert not expiration.expire(deleted(one), at(9999), 0).effects
    assert expiration.expire(claim(expire_after="Never"), at(10**9), 0) == expiration.expire(claim(), at(10**9), 0)


def test_vanished_machines_take_their_claims_along_unless_the_node_is_ready():
    one, unregistered = claim("c-1", stage="Registered"), claim("c-2", stage="Launched")
    assert collection.orphans([unregistered, one], set(), {}) == (one,)
    assert collection.orphans([one], {PROVIDER_ID}, {}) == ()
    assert collection.orphans([one], set(), {PROVIDER_ID: [node()]}) == ()
    assert collection.orphans([one], set(), {PROVIDER_ID: [node(ready=False)]}) == (one,)
    assert collection.orphans([deleted(one)], set(), {}) == ()


def test_the_nodes_of_a_claim_are_found_by_provider_id():
    mine, other = node("n-1"), node("n-2", provider_id="aws:///x/i-2")
    assert nodes.of_claim(claim(stage="Launched"), [other, mine]) == (mine,)
    assert nodes.of_claim(claim(), [mine]) == ()
