"""Laws of CapacityBuffers: sizes, stand-in pods, and what real pods need never have to share with them."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kubewright.api.buffers import CapacityBuffer, CapacityBufferSpec, ScalableReference, TemplateReference
from kubewright.api.core import Deployment, PodTemplate, PodTemplateSpec, TemplateMeta, WorkloadSpec
from kubewright.api.meta import ObjectMeta
from kubewright.lifecycle.buffers import (
    Placed,
    Resolved,
    Unresolved,
    buffer_of,
    provisioned,
    resolve,
    resolved,
    size,
    virtual_pods,
)
from kubewright.scheduling.resources import pod_requests
from kubewright.solver.solve import solve
from tests.builders import NOW, ask, node_pool, pod

numbers = st.one_of(st.none(), st.integers(0, 20))


def buffer(name="room", **spec) -> CapacityBuffer:
    return CapacityBuffer(metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-{name}"), spec=CapacityBufferSpec(**spec))


def template(cpu="1", memory="1Gi") -> PodTemplateSpec:
    return PodTemplateSpec(metadata=TemplateMeta(labels={"app": "web"}), spec=pod(cpu=cpu, memory=memory).spec)


@given(numbers, numbers, numbers, st.one_of(st.none(), st.integers(0, 40)))
def test_the_size_is_the_larger_wish_within_the_limits(replicas, percentage, workload, limit):
    limits = None if limit is None else {"cpu": str(limit), "nobody/asks": "0"}
    found = size(buffer(replicas=replicas, percentage=percentage, limits=limits), template(cpu="2"), workload)
    wishes = [] if replicas is None else [replicas]
    if percentage is not None and workload is not None:
        share = -(-workload * percentage // 100)
        assert share >= 1 or not (workload and percentage), "rounded up to one at least"
        wishes.append(share)
    if limit is not None:
        assert found * 2 <= limit
        assert found == (min(max(wishes), limit // 2) if wishes else limit // 2)
    else:
        assert found == max(wishes, default=0)


@given(st.integers(0, 12))
def test_the_pods_are_the_same_every_time_and_tell_whose_they_are(count):
    one = buffer(replicas=count)
    found = Resolved(count, template())
    made = virtual_pods(one, found)
    assert made == virtual_pods(one, found)
    assert [p.metadata.uid for p in made] == [f"uid-room-{i}" for i in range(1, count + 1)]
    assert {buffer_of(p) for p in made} <= {"default/room"}
    assert all(pod_requests(p) == pod_requests(pod()) for p in made)
    assert all(p.metadata.labels == {"app": "web"} and not p.metadata.owner_references for p in made)
    assert buffer_of(pod()) == ""


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=6), st.integers(1, 4), st.integers(1, 7), st.integers(4, 24))
def test_real_pods_are_placed_as_if_there_were_no_buffer(sizes, count, cpu, limit):
    """Whatever the order of sizes and however short the limit is: what stands in takes what is left."""
    real = [pod(f"p{i}", cpu=str(n)) for i, n in enumerate(sizes)]
    extra = virtual_pods(buffer(replicas=count), Resolved(count, template(cpu=str(cpu))))
    pools = [node_pool(limits={"cpu": str(limit)})]
    alone = solve(ask(real, pools))
    both = solve(ask([*real, *extra], pools))
    placed_alone = {key for c in alone.claims for key in c.pods}
    placed = {key for c in both.claims for key in c.pods}
    assert placed_alone <= placed
    assert {k for k in both.unplaced if "capacity-buffer" not in k} == set(alone.unplaced)


def test_what_cannot_be_found_or_read_is_said_in_one_word():
    def none(*_):
        return None

    def reason(**spec):
        found = resolve(buffer(**spec), none, none)
        assert isinstance(found, Unresolved)
        return found.reason

    assert reason() == "ResolutionFailed"
    assert reason(pod_template_ref=TemplateReference(name="gone"), replicas=1) == "PodTemplateNotFound"
    assert reason(scalable_ref=ScalableReference(api_group="apps", kind="Deployment", name="gone")) == "ScalableRefNotFound"
    assert reason(scalable_ref=ScalableReference(api_group="batch", kind="Job", name="x")) == "ResolutionFailed"


def test_templates_and_workloads_are_read_and_a_workload_that_names_no_number_has_one():
    shape = template()
    written = PodTemplate(metadata=ObjectMeta(name="t", namespace="default", generation=3), template=shape)
    one = buffer(pod_template_ref=TemplateReference(name="t"), replicas=2, percentage=50)
    assert resolve(one, lambda *_: written, lambda *_: None) == Resolved(2, shape, 3), "a PodTemplate has no percentage"
    work = Deployment(metadata=ObjectMeta(name="d", namespace="default"), spec=WorkloadSpec(template=shape))
    of_work = buffer(scalable_ref=ScalableReference(api_group="apps", kind="Deployment", name="d"), percentage=10)
    assert resolve(of_work, lambda *_: None, lambda *_: work) == Resolved(1, shape)
    ten = replace(work, spec=replace(work.spec, replicas=21))
    assert resolve(of_work, lambda *_: None, lambda *_: ten) == Resolved(3, shape)


def test_status_says_what_happened_and_is_quiet_when_nothing_did():
    def said(one, kind):
        found = next(c for c in one.status.conditions if c.type == kind)
        return found.status, found.reason, found.message

    one = resolved(buffer(replicas=3), Resolved(3, template()), NOW)
    assert said(one, "ReadyForProvisioning") == ("True", "Resolved", "Pod template resolved successfully")
    assert one.status.replicas == 3
    assert provisioned(one, Placed(), NOW) is one
    partly = provisioned(one, Placed(existing=1, new=1, failed=1), NOW)
    assert said(partly, "Provisioning")[:2] == ("False", "RequiresNewCapacity")
    assert said(partly, "Provisioning")[2] == "1/3 virtual pods required new capacity, 1 failed"
    assert said(provisioned(one, Placed(existing=3), NOW), "Provisioning")[:2] == ("True", "FitsExistingCapacity")
    assert said(resolved(buffer(replicas=0), Resolved(0, template()), NOW), "Provisioning")[1] == "BufferEmpty"
    broken = resolved(one, Unresolved("PodTemplateNotFound", "gone"), NOW)
    assert said(broken, "ReadyForProvisioning")[:2] == ("False", "PodTemplateNotFound")
    assert said(broken, "Provisioning")[:2] == ("False", "NotReadyForProvisioning")
