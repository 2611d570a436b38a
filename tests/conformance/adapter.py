"""kubewright behind the oracle's JSON: one problem a line in, one answer a line out (`python -m tests.conformance.adapter`).

The format is the oracle's own (`tests/conformance/oracle/README.md`), with three keys more: `packing` names a method (`improve`,
the default, or `first-fit`), `defaultConstraints` are the cluster's default spread, and an instance type's `attachLimits` (CSI
driver → volumes) hold for its new nodes.
`seconds` is the solver's time from decoded objects to Plan.
"""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from kubewright.api import labels as names
from kubewright.api.core import (
    CSINode,
    DaemonSet,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    ReplicaSet,
    Service,
    StatefulSet,
    StorageClass,
    TopologySpreadConstraint,
)
from kubewright.api.karpenter import NodeClaim, NodePool
from kubewright.api.meta import Condition, Object
from kubewright.api.quantity import parse_map
from kubewright.catalogue.types import InstanceType, Offering
from kubewright.explain.karpenter import karpenter_text
from kubewright.packing import plan
from kubewright.scheduling.requirement import Requirement, requirement
from kubewright.settings import MinValuesPolicy, Packing, PreferencePolicy, Settings
from kubewright.solver.problem import Plan, Pool, Snapshot, SolverSettings, StateNode, Surroundings
from kubewright.solver.select import select

KINDS: Mapping[str, type[Object]] = {
    cls.RESOURCE.kind: cls
    for cls in (
        CSINode,
        DaemonSet,
        Namespace,
        Node,
        NodeClaim,
        NodePool,
        PersistentVolume,
        PersistentVolumeClaim,
        Pod,
        PodDisruptionBudget,
        ReplicaSet,
        Service,
        StatefulSet,
        StorageClass,
    )
}
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class BadProblem(Exception):
    """The problem cannot be read."""


def answer(problem: Mapping[str, Any]) -> dict[str, Any]:
    """The oracle's answer to one problem, by kubewright."""
    try:
        snapshot, settings = read(problem)
    except (BadProblem, ValueError, msgspec.ValidationError, OSError) as error:
        return {"newNodes": None, "existingNodes": None, "errors": {}, "seconds": None, "error": str(error)}
    seconds: list[float] = []
    method = Packing(problem.get("packing") or "improve")
    # First fit alone needs no bound, which the oracle's answer has no place for.
    packing = None if method is Packing.FIRST_FIT else Settings(packing=method)
    result: Plan | None = None
    ignored: Mapping[str, Any] = {}
    for _ in range(max(1, problem.get("repeat") or 1)):
        start = time.perf_counter()
        selection = select(snapshot, settings)
        again = plan(selection.problem, packing)
        seconds.append(time.perf_counter() - start)
        result = result or again
        ignored = selection.ignored
    assert result is not None
    errors = {key: "; ".join(map(karpenter_text, reasons)) for key, reasons in result.unplaced.items()}
    del ignored  # the reference does not list pods that it ignores
    return {
        "newNodes": [
            {
                "nodePool": claim.node_pool,
                "pods": list(claim.pods),
                "instanceTypes": list(claim.instance_types),
                "requirements": {key: _shown(one) for key, one in claim.requirements.items()},
                "requests": {name: _quantity(amount) for name, amount in claim.requests.items()},
                "labels": dict(claim.labels),
            }
            for claim in result.claims
        ],
        "existingNodes": [{"name": name, "pods": list(pods)} for name, pods in result.existing.items()],
        "errors": errors,
        "seconds": seconds,
    }


def read(problem: Mapping[str, Any]) -> tuple[Snapshot, SolverSettings]:
    """The oracle's JSON as our own values."""
    raw_types = problem.get("instanceTypes") or []
    if problem.get("instanceTypesFile"):
        raw_types = json.loads(Path(problem["instanceTypesFile"]).read_text())
    well_known = frozenset(problem.get("wellKnownLabels") or ())
    types = tuple(_instance_type(t) for t in raw_types)
    objects: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    for index, raw in enumerate(problem.get("objects") or ()):
        cls = KINDS.get(raw.get("kind", ""))
        if cls is None:
            raise BadProblem(f"object {index}: kind {raw.get('kind')!r} is not one of {', '.join(sorted(KINDS))}")
        one = msgspec.convert(_as_go_reads(raw), cls)
        if not one.metadata.uid:
            one = replace(one, metadata=replace(one.metadata, uid=f"{index:08}-0000-0000-0000-000000000000"))
        objects[cls.RESOURCE.kind].append(one)
    pods: list[Pod] = objects["Pod"]
    settings = SolverSettings(
        preference_policy=PreferencePolicy(problem.get("preferencePolicy") or "Respect"),
        min_values_policy=MinValuesPolicy(problem.get("minValuesPolicy") or "Strict"),
        well_known_labels=well_known,
        default_constraints=msgspec.convert(problem.get("defaultConstraints") or (), tuple[TopologySpreadConstraint, ...]),
    )

    def by_key(kind: str) -> tuple[Any, ...]:
        return tuple(sorted(objects[kind], key=lambda o: o.key))

    around = Surroundings(
        by_key("DaemonSet"),
        by_key("Namespace"),
        by_key("Service"),
        by_key("ReplicaSet"),
        by_key("StatefulSet"),
        by_key("PersistentVolumeClaim"),
        by_key("PersistentVolume"),
        by_key("StorageClass"),
        by_key("CSINode"),
        by_key("PodDisruptionBudget"),
    )
    snapshot = Snapshot(
        NOW,
        _places(objects["Node"], objects["NodeClaim"], pods),
        tuple(sorted((p for p in pods if not p.spec.node_name), key=lambda p: p.key)),
        tuple(Pool(_ready(p), types) for p in by_key("NodePool")),
        around,
    )
    return snapshot, settings


def _as_go_reads(raw: Any) -> Any:
    """JSON without its nulls, which mean absent, and with fractions as text, which only quantities are."""
    if isinstance(raw, dict):
        return {key: _as_go_reads(value) for key, value in raw.items() if value is not None}
    if isinstance(raw, list):
        return [_as_go_reads(value) for value in raw if value is not None]
    return repr(raw) if isinstance(raw, float) else raw


def _places(nodes: Sequence[Node], claims: Sequence[NodeClaim], pods: Sequence[Pod]) -> tuple[StateNode, ...]:
    on: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.spec.node_name:
            on.setdefault(pod.spec.node_name, []).append(pod)
    by_provider = {c.status.provider_id: c for c in claims if c.status.provider_id}
    found: list[StateNode] = []
    for node in nodes:
        claim = by_provider.pop(node.spec.provider_id, None) if node.spec.provider_id else None
        found.append(StateNode(node, claim, tuple(sorted(on.get(node.name, ()), key=lambda p: p.key))))
    found += [StateNode(None, claim) for claim in by_provider.values()]
    return tuple(sorted(found, key=lambda s: (s.node or s.claim).name if (s.node or s.claim) else ""))


def _ready(pool: NodePool) -> NodePool:
    return replace(pool, status=replace(pool.status, conditions=(Condition(type="Ready", status="True"),)))


def _instance_type(raw: Mapping[str, Any]) -> InstanceType:
    return InstanceType(
        raw["name"],
        _requirements(raw.get("requirements") or ()),
        tuple(
            Offering(
                _requirements(o.get("requirements") or ()),
                o.get("price", 0.0),
                o.get("available", False),
                o.get("reservationCapacity", 0),
            )
            for o in raw.get("offerings") or ()
        ),
        parse_map(raw.get("capacity") or {}),
        parse_map(raw.get("overhead") or {}),
        attach_limits=raw.get("attachLimits") or {},
    )


def _requirements(raw: Sequence[Mapping[str, Any]]) -> dict[str, Requirement]:
    found: dict[str, Requirement] = {}
    for r in raw:
        key = names.normalize(r["key"])
        one = requirement(key, r["operator"], r.get("values") or ())
        found[key] = found[key] & one if key in found else one
    return found


def _shown(one: Requirement) -> list[str]:
    return [one.operator, *sorted(one.values)]


def _quantity(amount: int) -> str:
    whole, rest = divmod(amount, 10**9)
    return str(whole) if not rest else f"{-(-amount // 10**6)}m"


def main() -> int:
    for line in sys.stdin:
        if line.strip():
            print(json.dumps(answer(json.loads(line))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
