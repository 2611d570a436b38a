"""The closed table: every field of PodSpec and NodePool is handled, refused, or irrelevant for a stated reason."""

from lightkube.models.core_v1 import PodSpec as WholePodSpec
from msgspec.structs import fields, replace

from kubewright.api.core import PodSpec
from kubewright.api.karpenter import NodeClaimTemplateSpec, NodePoolSpec, TemplateMetadata
from kubewright.scheduling.refusal import Because
from kubewright.solver.solve import solve
from kubewright.solver.support import HANDLED, NODE_POOL_SPEC, POD_SPEC, REFUSED
from tests.builders import ask, pod


def test_every_field_of_the_real_pod_spec_stands_in_the_table() -> None:
    assert set(WholePodSpec.__struct_fields__) - set(POD_SPEC) == set()


def test_every_handled_or_refused_field_is_decoded() -> None:
    decoded = {f.encode_name for f in fields(PodSpec)}
    assert {name for name, how in POD_SPEC.items() if how in (HANDLED, REFUSED)} - decoded == set()


def test_every_field_of_the_node_pool_stands_in_the_table() -> None:
    ours = {f.encode_name for f in fields(NodePoolSpec)} - {"template"}
    ours |= {f"template.spec.{f.encode_name}" for f in fields(NodeClaimTemplateSpec)}
    ours |= {f"template.metadata.{f.encode_name}" for f in fields(TemplateMetadata)}
    assert ours == set(NODE_POOL_SPEC)


def test_every_refused_field_keeps_the_pod_out_with_its_name() -> None:
    values = {
        "resourceClaims": {"resource_claims": ({"name": "gpu"},)},
        "workloadRef": {"workload_ref": {"name": "training"}},
        "schedulingGroup": {"scheduling_group": {"podGroupName": "training"}},
    }
    assert set(values) == {name for name, how in POD_SPEC.items() if how == REFUSED}
    for name, value in values.items():
        one = pod()
        plan = solve(ask([replace(one, spec=replace(one.spec, **value))]))
        (refusal,) = plan.unplaced["default/p"]
        assert refusal.because is Because.UNSUPPORTED
        assert refusal.facts["field"] == f"spec.{name}"
        assert plan.claims == ()
