"""Whatever happened to CapacityBuffers and what they point at, the pods that stand in are those of what is there."""

from hypothesis import given
from hypothesis import strategies as st

from kubewright.api.buffers import CapacityBuffer, CapacityBufferSpec, ScalableReference, TemplateReference
from kubewright.api.core import Deployment, PodTemplate, PodTemplateSpec, ReplicaSet, StatefulSet, WorkloadSpec
from kubewright.api.meta import ObjectMeta
from kubewright.kube.informer import Informer
from kubewright.state.buffers import Buffers
from tests.builders import pod

KINDS = (CapacityBuffer, PodTemplate, Deployment, StatefulSet, ReplicaSet)


def fresh() -> tuple[Buffers, dict[type, Informer]]:
    replica_sets, stateful_sets = Informer(None, ReplicaSet), Informer(None, StatefulSet)
    made = Buffers(None, replica_sets, stateful_sets)
    return made, {
        CapacityBuffer: made.objects,
        PodTemplate: made.templates,
        Deployment: made.deployments,
        StatefulSet: stateful_sets,
        ReplicaSet: replica_sets,
    }


def meta(name, version):
    return ObjectMeta(name=name, namespace="default", uid=f"uid-{name}", resource_version=str(version))


@st.composite
def objects(draw, version):
    kind = draw(st.sampled_from(KINDS))
    name = draw(st.sampled_from("ab"))
    template = PodTemplateSpec(spec=pod(cpu=draw(st.sampled_from(("1", "2")))).spec)
    if kind is PodTemplate:
        return PodTemplate(metadata=meta(name, version), template=template)
    if kind is not CapacityBuffer:
        spec = WorkloadSpec(replicas=draw(st.integers(0, 4)), template=template)
        return kind(metadata=meta(name, version), spec=spec)
    of = draw(st.sampled_from(("PodTemplate", "Deployment", "StatefulSet", "ReplicaSet")))
    target = draw(st.sampled_from("abc"))
    pointing = (
        {"pod_template_ref": TemplateReference(name=target)}
        if of == "PodTemplate"
        else {"scalable_ref": ScalableReference(api_group="apps", kind=of, name=target)}
    )
    sizes = draw(st.sampled_from(({"replicas": 2}, {"percentage": 50, "replicas": 1}, {"limits": {"cpu": "3"}})))
    return CapacityBuffer(metadata=meta(name, version), spec=CapacityBufferSpec(**pointing, **sizes))


@given(st.data())
def test_every_history_ends_in_the_pods_of_its_end(data):
    live, informers = fresh()
    there: dict[tuple[type, str], object] = {}
    for version in range(data.draw(st.integers(1, 12))):
        one = data.draw(objects(version + 1))
        key = type(one), one.key
        if key in there and data.draw(st.booleans()):
            informers[key[0]]._drop(one.key)
            del there[key]
        else:
            informers[key[0]]._put(one)
            there[key] = one
        if data.draw(st.booleans()):
            assert live.pods is live.pods, "asked again, the same"
    end, empty = fresh()
    for (kind, _), one in there.items():
        empty[kind]._put(one)
    assert live.pods == end.pods
    assert [p.key for p in live.pods] == sorted(p.key for p in live.pods)


def test_who_points_at_a_thing_is_known_by_kind_and_name():
    live, informers = fresh()
    for name, spec in (
        ("by-template", CapacityBufferSpec(pod_template_ref=TemplateReference(name="a"), replicas=1)),
        ("by-workload", CapacityBufferSpec(scalable_ref=ScalableReference(api_group="apps", kind="Deployment", name="a"))),
    ):
        informers[CapacityBuffer]._put(CapacityBuffer(metadata=meta(name, 1), spec=spec))
    assert live.pointing_at(PodTemplate(metadata=meta("a", 1))) == ["default/by-template"]
    assert live.pointing_at(Deployment(metadata=meta("a", 1))) == ["default/by-workload"]
    assert live.pointing_at(StatefulSet(metadata=meta("a", 1))) == []
