"""Exotic machines are bought only for what nothing else suits, and a new node gets no more volumes than it can attach."""

from msgspec.structs import replace

from kubewright.api import labels as names
from kubewright.api.core import (
    Node,
    NodeSpec,
    NodeStatus,
    PersistentVolumeClaim,
    PersistentVolumeClaimSource,
    PersistentVolumeClaimSpec,
    Pod,
    StorageClass,
    Volume,
)
from kubewright.api.karpenter import NodeClaim, NodeClaimStatus
from kubewright.api.meta import ObjectMeta
from kubewright.catalogue.types import InstanceType
from kubewright.scheduling.refusal import Because
from kubewright.solver.problem import StateNode, Surroundings
from kubewright.solver.solve import solve
from tests.builders import S_TYPES, ask, instance_type, needs, node_pool, pod, pods

EBS = "ebs.csi.aws.com"
METAL = replace(instance_type("x.metal", 64, 128, 1.0), exotic=True)
GPU = replace(instance_type("gpu", 8, 32, 0.01, more={"nvidia.com/gpu": "1"}), exotic=True)
TYPES = (*S_TYPES[:4], METAL, GPU)


def bought(problem: object) -> set[str]:
    return {name for claim in solve(problem).claims for name in claim.instance_types}  # type: ignore[arg-type]


def test_an_exotic_type_is_left_out_even_where_it_is_cheaper_or_larger() -> None:
    plan = solve(ask(pods(40), types=TYPES))
    assert not plan.unplaced
    assert not {"gpu", "x.metal"} & {name for claim in plan.claims for name in claim.instance_types}


def test_a_pod_that_asks_for_the_device_gets_it() -> None:
    assert bought(ask([pod(more={"nvidia.com/gpu": "1"})], types=TYPES)) == {"gpu"}


def test_a_pod_or_a_pool_that_names_it_gets_it() -> None:
    assert bought(ask([pod(node_selector={names.INSTANCE_TYPE: "x.metal"})], types=TYPES)) == {"x.metal"}
    assert bought(ask([pod()], [node_pool(requirements=(needs(names.INSTANCE_TYPE, "gpu"),))], TYPES)) == {"gpu"}


def test_a_pod_that_only_metal_can_hold_is_placed() -> None:
    assert bought(ask([pod(cpu="40"), *pods(3)], types=TYPES)) == {"x.metal"}


def test_min_values_that_plain_types_cannot_keep_take_exotic_ones_as_well() -> None:
    pool = node_pool(requirements=(needs(names.INSTANCE_TYPE, operator="Exists", min_values=6),))
    assert bought(ask([pod()], [pool], TYPES)) == {t.name for t in TYPES}


def limited(most: int) -> tuple[InstanceType, ...]:
    return tuple(replace(t, attach_limits={EBS: most + (t.name == "s16")}) for t in S_TYPES)


def with_volumes(count: int, per_pod: int = 1, provisioner: str = EBS) -> tuple[list[Pod], Surroundings]:
    made, claims = [], []
    for i in range(count):
        names_of = [f"data-{i}-{n}" for n in range(per_pod)]
        claims += [
            PersistentVolumeClaim(
                metadata=ObjectMeta(name=name, namespace="default"), spec=PersistentVolumeClaimSpec(storage_class_name="gp3")
            )
            for name in names_of
        ]
        volumes = tuple(Volume(name=n, persistent_volume_claim=PersistentVolumeClaimSource(claim_name=n)) for n in names_of)
        made.append(pod(f"p{i}", cpu="100m", memory="64Mi", volumes=volumes))
    kind = StorageClass(metadata=ObjectMeta(name="gp3"), provisioner=provisioner, volume_binding_mode="WaitForFirstConsumer")
    return made, Surroundings(claims=tuple(sorted(claims, key=lambda c: c.key)), storage_classes=(kind,))


def test_a_new_node_gets_no_more_volumes_than_it_can_attach() -> None:
    made, around = with_volumes(10)
    plan = solve(ask(made, types=limited(3), around=around))
    assert not plan.unplaced
    assert sorted(len(c.pods) for c in plan.claims) == [2, 4, 4]
    for claim in plan.claims:
        assert len(claim.pods) < 4 or claim.instance_types == ("s16",)


def test_a_driver_without_a_limit_is_not_limited() -> None:
    made, around = with_volumes(10, provisioner="other.example.com")
    assert len(solve(ask(made, types=limited(3), around=around)).claims) == 1


def test_a_pod_with_more_volumes_than_any_type_can_attach_says_so() -> None:
    made, around = with_volumes(1, per_pod=6)
    (refusal,) = solve(ask(made, types=limited(3), around=around)).unplaced["default/p0"]
    assert (refusal.because, refusal.facts) == (Because.VOLUME_LIMIT, {"driver": EBS, "wanted": "6", "most": "4"})


def test_a_machine_on_its_way_has_the_limit_of_its_type() -> None:
    made, around = with_volumes(5)
    amounts: dict[str, str | int] = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    own = {names.INSTANCE_TYPE: "s8", names.NODEPOOL: "default", names.ZONE: "a"}
    claim = NodeClaim(
        metadata=ObjectMeta(name="coming", labels=own),
        status=NodeClaimStatus(provider_id="x", capacity=amounts, allocatable=amounts),
    )
    plan = solve(ask(made, types=limited(3), around=around, nodes=[StateNode(None, claim)]))
    assert len(plan.existing["coming"]) == 3
    ready = Node(
        metadata=ObjectMeta(name="ready", labels={**own, names.REGISTERED: "true", names.INITIALIZED: "true"}),
        spec=NodeSpec(provider_id="x"),
        status=NodeStatus(capacity=amounts, allocatable=amounts),
    )
    assert len(solve(ask(made, types=limited(3), around=around, nodes=[StateNode(ready, claim)])).existing["ready"]) == 5
