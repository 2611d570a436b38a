"""Pods, their eviction, and Deployments."""

import pytest

from kubewright.api.core import Pod, PodDisruptionBudget, ResourceRequirements, Toleration
from kubewright.api.meta import LabelSelector, ObjectMeta
from kubewright.errors import Conflict, Invalid, NotFound, ServerUnavailable, TooManyRequests
from kubewright.kube.client import MergePatch
from tests.api.doors import Door
from tests.api.things import Deployment, DeploymentSpec, WholePodSpec, budget, container, pod, running, spec

WEB = {"app": "web"}


async def test_a_pod_without_a_node_goes_at_once(door: Door) -> None:
    await door.client.create(pod(door))
    await door.client.delete(Pod, "one", door.namespace)
    with pytest.raises(NotFound):
        await door.client.get(Pod, "one", door.namespace)


async def test_a_pod_on_a_node_stays_until_its_kubelet_lets_go(door: Door) -> None:
    await door.client.create(pod(door, spec_=spec(node_name="no-such-node", termination_grace_period_seconds=50)))
    await door.client.delete(Pod, "one", door.namespace)
    held = await door.client.get(Pod, "one", door.namespace)
    assert held.metadata.deletion_grace_period_seconds == 50
    assert held.metadata.deletion_timestamp is not None
    assert held.metadata.generation == 2
    await door.client.delete(Pod, "one", door.namespace, grace_period_s=10)
    shorter = await door.client.get(Pod, "one", door.namespace)
    assert shorter.metadata.deletion_grace_period_seconds == 10
    assert shorter.metadata.deletion_timestamp is not None
    assert shorter.metadata.deletion_timestamp < held.metadata.deletion_timestamp
    await door.client.delete(Pod, "one", door.namespace, grace_period_s=40)
    assert (await door.client.get(Pod, "one", door.namespace)).metadata.deletion_grace_period_seconds == 10
    await door.client.patch(Pod, "one", MergePatch({"metadata": {"labels": {"a": "b"}}}), door.namespace)
    assert (await door.client.get(Pod, "one", door.namespace)).metadata.labels == {"a": "b"}, "a write is not the kubelet's leave"
    await door.client.delete(Pod, "one", door.namespace, grace_period_s=0)
    with pytest.raises(NotFound):
        await door.client.get(Pod, "one", door.namespace)


async def test_a_pod_that_ended_needs_no_grace(door: Door) -> None:
    await door.client.create(pod(door, spec_=spec(node_name="no-such-node")))
    await door.client.patch(Pod, "one", MergePatch({"status": {"phase": "Succeeded"}}), door.namespace, subresource="status")
    await door.client.delete(Pod, "one", door.namespace)
    with pytest.raises(NotFound):
        await door.client.get(Pod, "one", door.namespace)


async def test_status_and_spec_of_a_pod_are_written_apart(door: Door) -> None:
    await door.client.create(pod(door))
    both = MergePatch({"status": {"phase": "Running"}, "metadata": {"labels": {"a": "b"}}})
    changed = await door.client.patch(Pod, "one", both, door.namespace)
    assert (changed.status.phase, changed.metadata.labels) == ("Pending", {"a": "b"})
    spec_too = MergePatch({"status": {"phase": "Running"}, "spec": {"nodeName": "x"}})
    changed = await door.client.patch(Pod, "one", spec_too, door.namespace, subresource="status")
    assert (changed.status.phase, changed.spec.node_name) == ("Running", "")


async def test_a_pods_spec_stays_as_it_was(door: Door) -> None:
    await door.client.create(pod(door))
    with pytest.raises(Invalid) as caught:
        await door.client.patch(Pod, "one", MergePatch({"spec": {"nodeSelector": {"a": "b"}}}), door.namespace)
    assert "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`" in caught.value.message


async def test_a_gated_pod_may_be_narrowed_and_opened_but_not_gated_again(door: Door) -> None:
    await door.client.create(pod(door, spec_=spec(scheduling_gates=({"name": "example.com/wait"},))))
    narrowed = await door.client.patch(Pod, "one", MergePatch({"spec": {"nodeSelector": {"a": "b"}}}), door.namespace)
    assert narrowed.spec.node_selector == {"a": "b"}
    opened = await door.client.patch(Pod, "one", MergePatch({"spec": {"schedulingGates": None}}), door.namespace)
    assert opened.spec.scheduling_gates == ()
    with pytest.raises(Invalid, match="only deletion is allowed, but found new scheduling gate"):
        await door.client.patch(Pod, "one", MergePatch({"spec": {"schedulingGates": [{"name": "x"}]}}), door.namespace)


async def test_requests_come_from_limits_and_quantities_in_one_spelling(door: Door) -> None:
    resources = ResourceRequirements(
        limits={"cpu": "1000m", "memory": "1024Mi", "ephemeral-storage": "0.5Gi"}, requests={"memory": "512Mi"}
    )
    made = await door.client.create(pod(door, spec_=spec(containers=(container(resources=resources),))))
    found = made.spec.containers[0].resources
    assert found.limits == {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "512Mi"}
    assert found.requests == {"cpu": "1", "memory": "512Mi", "ephemeral-storage": "512Mi"}


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (spec(containers=()), "spec.containers: Required value"),
        (spec(containers=(container(image=""),)), "spec.containers[0].image: Required value"),
        (spec(containers=(container(), container())), 'spec.containers[1].name: Duplicate value: "app"'),
        (
            spec(restart_policy="Sometimes"),
            'spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"',
        ),
        (
            spec(containers=(container(resources=ResourceRequirements(requests={"cpu": "2"}, limits={"cpu": "1"})),)),
            'spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
        ),
        (
            spec(tolerations=(Toleration(operator="Equal", value="x"),)),
            'operator must be Exists when `key` is empty, which means "match all values and all keys"',
        ),
        (spec(node_selector={"a b": "c"}), 'spec.nodeSelector: Invalid value: "a b": name part must consist of'),
    ],
)
async def test_a_pod_that_cannot_be(door: Door, bad: WholePodSpec, text: str) -> None:
    with pytest.raises(Invalid) as caught:
        await door.client.create(pod(door, spec_=bad))
    assert text in caught.value.message
    assert caught.value.status == 422


async def test_a_quantity_that_is_none_is_a_bad_request(door: Door) -> None:
    resources = ResourceRequirements(requests={"cpu": "two"})
    with pytest.raises(Invalid) as caught:
        await door.client.create(pod(door, spec_=spec(containers=(container(resources=resources),))))
    assert caught.value.status == 400
    assert caught.value.message.startswith(
        'Pod in version "v1" cannot be handled as a Pod: quantities must match the regular expression'
    )


async def test_an_unknown_priority_class_is_forbidden(door: Door) -> None:
    with pytest.raises(Exception, match="no PriorityClass with name missing was found") as caught:
        await door.client.create(pod(door, spec_=spec(priority_class_name="missing")))
    assert getattr(caught.value, "status", 0) == 403
    made = await door.client.create(pod(door, spec_=spec(priority_class_name="system-cluster-critical")))
    assert made.spec.priority == 2_000_000_000


async def test_eviction_without_a_budget_deletes(door: Door) -> None:
    await running(door, "one", labels=WEB)
    await door.client.evict("one", door.namespace)
    with pytest.raises(NotFound):
        await door.client.evict("one", door.namespace)


async def test_eviction_spends_the_budget_and_then_waits(door: Door) -> None:
    for name in ("a", "b", "c"):
        await running(door, name, labels=WEB)
    await door.client.create(budget(door, min_available=2, labels=WEB))
    await door.settled("budget", allowed=1, healthy=3, desired=2)
    await door.client.evict("a", door.namespace)
    with pytest.raises(TooManyRequests) as caught:
        await door.client.evict("b", door.namespace)
    assert caught.value.message == "Cannot evict pod as it would violate the pod's disruption budget."
    assert caught.value.details is not None
    assert caught.value.details["causes"][0]["reason"] == "DisruptionBudget"
    assert "The disruption budget budget needs 2 healthy pods and has " in caught.value.details["causes"][0]["message"]
    left = {item.name for item in (await door.client.list(Pod, door.namespace)).items}
    assert left == {"b", "c"}


async def test_two_budgets_on_one_pod_are_an_error(door: Door) -> None:
    await running(door, "one", labels=WEB)
    for name in ("first", "second"):
        await door.client.create(budget(door, name, min_available=0, labels=WEB))
    with pytest.raises(ServerUnavailable) as caught:
        await door.client.evict("one", door.namespace)
    assert caught.value.status == 500
    assert (
        caught.value.message == "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    )


async def test_a_pending_pod_needs_no_budget(door: Door) -> None:
    await door.client.create(pod(door, labels=WEB))
    await door.client.create(budget(door, min_available=5, labels=WEB))
    await door.client.evict("one", door.namespace)
    with pytest.raises(NotFound):
        await door.client.get(Pod, "one", door.namespace)


@pytest.mark.parametrize(("policy", "goes"), [("AlwaysAllow", True), (None, False)])
async def test_a_pod_that_is_not_ready_goes_by_policy(door: Door, policy: str | None, goes: bool) -> None:
    await running(door, "one", labels=WEB, ready=False)
    await door.client.create(budget(door, min_available=1, labels=WEB, policy=policy))
    await door.settled("budget", allowed=0, healthy=0, desired=1)
    if goes:
        await door.client.evict("one", door.namespace)
        return
    with pytest.raises(TooManyRequests):
        await door.client.evict("one", door.namespace)


async def test_an_unready_pod_goes_when_the_budget_is_healthy_without_it(door: Door) -> None:
    await running(door, "ready", labels=WEB)
    await running(door, "broken", labels=WEB, ready=False)
    await door.client.create(budget(door, min_available=1, labels=WEB))
    before = await door.settled("budget", allowed=0, healthy=1, desired=1)
    await door.client.evict("broken", door.namespace)
    after = await door.client.get(PodDisruptionBudget, "budget", door.namespace)
    assert after.status.disruptions_allowed == before.status.disruptions_allowed


async def test_an_eviction_of_another_uid_is_a_conflict(door: Door) -> None:
    await running(door, "one", labels=WEB)
    with pytest.raises(Conflict):
        await door.client.evict("one", door.namespace, uid="11111111-2222-3333-4444-555555555555")
    await door.client.get(Pod, "one", door.namespace)


def deployment(door: Door, **fields: object) -> Deployment:
    template = {"metadata": {"labels": WEB}, "spec": {"containers": [{"name": "app", "image": "registry.invalid/app:1"}]}}
    written: dict[str, object] = {"replicas": 0, "selector": LabelSelector(match_labels=WEB), "template": template, **fields}
    return Deployment(metadata=ObjectMeta(name="web", namespace=door.namespace), spec=DeploymentSpec(**written))  # type: ignore[arg-type]


async def test_generation_counts_changes_of_spec_alone(door: Door) -> None:
    made = await door.client.create(deployment(door))
    assert made.metadata.generation == 1
    assert made.spec.strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}
    labelled = await door.client.patch(Deployment, "web", MergePatch({"metadata": {"labels": {"a": "b"}}}), door.namespace)
    assert labelled.metadata.generation == 1
    status = MergePatch({"status": {"observedGeneration": 1}})
    assert (await door.client.patch(Deployment, "web", status, door.namespace, subresource="status")).metadata.generation == 1
    paused = await door.client.patch(Deployment, "web", MergePatch({"spec": {"paused": True}}), door.namespace)
    assert paused.metadata.generation == 2


async def test_a_deployment_keeps_its_selector(door: Door) -> None:
    await door.client.create(deployment(door))
    with pytest.raises(Invalid) as caught:
        await door.client.patch(
            Deployment, "web", MergePatch({"spec": {"selector": {"matchLabels": {"b": "c"}}}}), door.namespace
        )
    assert "field is immutable" in caught.value.message


async def test_a_deployment_selects_its_own_pods(door: Door) -> None:
    with pytest.raises(Invalid) as caught:
        await door.client.create(deployment(door, selector=LabelSelector(match_labels={"other": "label"})))
    assert caught.value.message == (
        'Deployment.apps "web" is invalid: spec.template.metadata.labels: Invalid value: {"app":"web"}: '
        "`selector` does not match template `labels`"
    )
