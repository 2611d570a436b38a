"""Launch, registration, initialization, liveness."""

from datetime import timedelta

import pytest

from kubewright.api import labels
from kubewright.api.core import Taint
from kubewright.api.meta import find_condition
from kubewright.errors import CloudError, InsufficientCapacity, LaunchFailed, NodeClassNotReady
from kubewright.lifecycle import claims, initialization, launch, liveness, registration
from kubewright.lifecycle.effects import Count, Delete, Publish, Update
from tests.unit.lifecycle.builders import PROVIDER_ID, T0, TAINT, at, claim, labelled, node

MACHINE = launch.Launched(
    PROVIDER_ID, {labels.ZONE: "a", labels.NODEPOOL: "other"}, {"x": "cloud"}, {"cpu": "4"}, {"cpu": "3"}, "ami-1"
)
UNREGISTERED = (labels.UNREGISTERED_TAINT,)
NOT_READY = Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")
READINESS = Taint(key="readiness.k8s.io/x", effect="NoSchedule")


def condition(one, kind):
    found = find_condition(one.status.conditions, kind)
    return (found.status, found.reason, found.message)


def test_a_launched_claim_knows_its_machine_and_keeps_its_own_labels():
    one = launch.succeeded(labelled(claim(), annotations={"x": "claim", "y": "1"}), MACHINE, at(2))
    assert one.status.provider_id == PROVIDER_ID
    assert one.metadata.labels == {labels.ZONE: "a", labels.NODEPOOL: "general"}
    assert one.metadata.annotations == {"x": "cloud", "y": "1"}
    assert condition(one, "Launched") == ("True", "Launched", "")
    assert condition(one, "Ready")[0] == "Unknown"
    assert not launch.wanted(one)


@pytest.mark.parametrize(
    ("error", "reason", "told"),
    [
        (InsufficientCapacity("none left"), "insufficient_capacity", True),
        (NodeClassNotReady("wait"), "nodeclass_not_ready", False),
    ],
)
def test_a_claim_that_cannot_be_bought_goes_at_once(error, reason, told):
    _, step = launch.failed(claim(), error, T0)
    assert [e for e in step.effects if isinstance(e, Delete)] == [Delete(claim())]
    assert [e.labels["reason"] for e in step.effects if isinstance(e, Count)] == [reason]
    assert any(isinstance(e, Publish) for e in step.effects) is told


def test_other_failures_are_shown_and_retried():
    one, step = launch.failed(claim(), LaunchFailed("SubnetsNotFound", "no subnet"), T0)
    assert not step.effects
    assert condition(one, "Launched") == ("Unknown", "SubnetsNotFound", "no subnet")
    one, _ = launch.failed(claim(), CloudError("é" * 200), T0)
    assert condition(one, "Launched") == ("Unknown", "LaunchFailed", "é" * 150 + "...")
    assert launch.wanted(one)


def test_registration_waits_for_the_node_and_never_takes_one_of_two():
    one, step = registration.register(claim(stage="Launched"), [], T0)
    assert condition(one, "Registered") == ("Unknown", "NodeNotFound", "Node not registered with cluster")
    assert not step.effects
    one, step = registration.register(claim(stage="Launched"), [node("n-1"), node("n-2")], T0)
    assert condition(one, "Registered")[:2] == ("False", "MultipleNodesFound")
    assert not step.effects
    assert registration.register(one, [node("n-1")], T0)[0] == one  # terminal


def test_a_claim_without_a_machine_is_not_registered():
    assert registration.register(claim(), [node()], T0)[0] == claim()


def test_a_registered_node_takes_over_what_the_claim_says():
    startup = Taint(key="start", effect="NoExecute")
    one = labelled(claim(stage="Launched", taints=(TAINT,), startup_taints=(startup,)), annotations={"note": "n"})
    one = labelled(one, labels={**one.metadata.labels, "team": "a"})
    before = node(taints=UNREGISTERED)
    one, step = registration.register(one, [before], at(30))
    (update,) = [e for e in step.effects if isinstance(e, Update)]
    after = update.after
    assert update.before == before
    assert after.metadata.labels["team"] == "a"
    assert after.metadata.labels[labels.REGISTERED] == "true"
    assert after.metadata.annotations["note"] == "n"
    assert after.metadata.finalizers == (labels.TERMINATION_FINALIZER,)
    assert [(o.kind, o.name, o.block_owner_deletion) for o in after.metadata.owner_references] == [("NodeClaim", "c-1", True)]
    assert after.spec.taints == (TAINT, startup)
    assert not [e for e in step.effects if isinstance(e, Publish)]
    assert claims.is_set(one, claims.REGISTERED)
    assert one.status.node_name == "n-1"
    # asked again about what it made, it changes nothing
    assert registration.registered_node(after, one) == after


def test_a_missing_unregistered_taint_is_told_and_forgiven():
    one, step = registration.register(claim(stage="Launched"), [node()], T0)
    assert [e.reason for e in step.effects if isinstance(e, Publish)] == ["UnregisteredTaintMissing"]
    assert claims.is_set(one, claims.REGISTERED)


def test_taints_are_not_synced_to_a_node_that_says_so():
    before = node(taints=UNREGISTERED)
    before = labelled(before, labels={**before.metadata.labels, labels.DO_NOT_SYNC_TAINTS: "true"})
    after = registration.registered_node(before, claim(stage="Launched", taints=(TAINT,)))
    assert after.spec.taints == ()


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ([], "NodeNotFound"),
        ([node(ready=False, registered=True)], "NodeNotReady"),
        ([node(registered=True, taints=(Taint(key="start", effect="NoExecute"),))], "StartupTaintsExist"),
        (
            [node(registered=True, taints=(NOT_READY,))],
            "KnownEphemeralTaintsExist",
        ),
        ([node(registered=True, taints=(READINESS,))], "KnownEphemeralTaintsExist"),
    ],
)
def test_initialization_names_the_first_thing_that_is_missing(found, reason):
    one = claim(stage="Registered", startup_taints=(Taint(key="start", effect="NoExecute"),))
    one, step = initialization.initialize(one, found, T0)
    assert condition(one, "Initialized")[:2] == ("Unknown", reason)
    assert not step.effects


def test_a_requested_device_must_have_appeared():
    one = claim(stage="Registered")
    one = type(one)(
        metadata=one.metadata,
        status=one.status,
        spec=type(one.spec)(
            node_class_ref=one.spec.node_class_ref,
            resources=type(one.spec.resources)(requests={"nvidia.com/gpu": "1", "zero": "0"}),
        ),
    )
    one, _ = initialization.initialize(one, [node(registered=True)], T0)
    assert condition(one, "Initialized") == (
        "Unknown",
        "ResourceNotRegistered",
        'Resource "nvidia.com/gpu" was requested but not registered',
    )


def test_an_initialized_node_is_labelled_before_the_claim_says_so():
    one, step = initialization.initialize(claim(stage="Registered"), [node(registered=True)], at(40))
    (update,) = step.effects
    assert update.after.metadata.labels[labels.INITIALIZED] == "true"
    assert condition(one, "Ready") == ("True", "Ready", "")
    again, step = initialization.initialize(claim(stage="Registered"), [update.after], at(41))
    assert not step.effects
    assert claims.is_set(again, claims.INITIALIZED)


def test_liveness_gives_up_a_launch_after_five_and_a_registration_after_fifteen_minutes():
    assert liveness.check(claim(), at(299)).step.again == timedelta(seconds=1)
    late = liveness.check(claim(), at(300))
    assert late.failed
    assert Delete(claim()) in late.step.effects
    launched = claim(stage="Launched")
    assert not liveness.check(launched, at(899)).failed
    late = liveness.check(launched, at(900))
    assert [e.labels["reason"] for e in late.step.effects if isinstance(e, Count)] == ["registration_timeout"]
    assert not liveness.check(claim(stage="Registered"), at(10**6)).failed
