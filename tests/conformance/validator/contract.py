"""What NodePools promise: their limits, minValues, reservations, requirements. Imports nothing of kubewright."""

from collections.abc import Iterator

from tests.conformance.validator.amounts import ZERO, J, amounts
from tests.conformance.validator.places import POOL, Cluster, allows


def contract(answer: J, cluster: Cluster) -> Iterator[tuple[str, str]]:
    """(pod, what is wrong) for every pod of a new node that its NodePool does not allow."""
    used: dict[str, dict[str, object]] = {}
    for name in cluster.pools:
        used[name] = dict(_used(name, cluster))
    held: dict[str, int] = {}
    for new in answer.get("newNodes") or ():
        pool = cluster.pools.get(new["nodePool"])
        if pool is None:
            continue
        for why in (*_of_pool(new, pool, cluster), *_reserved(new, cluster, held), *_within(new, pool, cluster, used)):
            for pod in new["pods"]:
                yield pod, why


def _of_pool(new: J, pool: J, cluster: Cluster) -> Iterator[str]:
    if pool["spec"].get("replicas") is not None:
        yield "a static NodePool buys nothing for pods"
    if len(set(new["instanceTypes"])) != len(new["instanceTypes"]):
        yield "an instance type is listed twice"
    listed = [cluster.types.get(t) for t in new["instanceTypes"]]
    if None in listed:
        yield "no such instance type"
    strict = (cluster.problem.get("minValuesPolicy") or "Strict") == "Strict"
    for r in pool["spec"]["template"]["spec"].get("requirements") or ():
        key = r["key"]
        operator, *values = new["requirements"].get(key, ["Exists"])
        if r["operator"] == "In" and operator == "In" and not set(values) <= set(r["values"]):
            yield f"outside the NodePool's {key}"
        if r["operator"] == "NotIn" and operator == "In" and set(values) & set(r["values"]):
            yield f"outside the NodePool's {key}"
        if r.get("minValues") and strict:
            found = {v for t in listed if t for q in t["requirements"] if q["key"] == key for v in q.get("values") or ()}
            if len(found) < r["minValues"]:
                yield f"fewer than {r['minValues']} values of {key}"
        for kind in listed:
            for q in (kind or {}).get("requirements") or ():
                own = {key: [r["operator"], *(r.get("values") or ())]}
                if q["key"] == key and q["operator"] == "In" and not any(allows(own, key, v) for v in q["values"]):
                    yield f"{kind and kind['name']} is outside the NodePool's {key}"


def _reserved(new: J, cluster: Cluster, held: dict[str, int]) -> Iterator[str]:
    if new["requirements"].get("karpenter.sh/capacity-type") != ["In", "reserved"]:
        return
    limits: dict[str, int] = {}
    mine = set()
    for kind in cluster.types.values():
        for offering in kind.get("offerings") or ():
            where = {r["key"]: r["values"][0] for r in offering["requirements"]}
            identity = next((v for k, v in where.items() if k.endswith("reservation-id")), "")
            if identity:
                capacity = offering.get("reservationCapacity", 0)
                limits[identity] = min(limits.get(identity, capacity), capacity)
                if kind["name"] in new["instanceTypes"] and all(allows(new["requirements"], k, v) for k, v in where.items()):
                    mine.add(identity)
    for identity in mine:
        held[identity] = held.get(identity, 0) + 1
        if held[identity] > limits[identity]:
            yield f"reservation {identity} is used up"


def _used(name: str, cluster: Cluster) -> Iterator[tuple[str, object]]:
    """Capacity of the NodePool's nodes that stay."""
    total = {"nodes": ZERO}
    claims = {c.get("status", {}).get("providerID"): c for c in cluster.of("NodeClaim")}
    seen: set[object] = set()
    for one in (*cluster.of("Node"), *cluster.of("NodeClaim")):
        identity = one.get("spec", {}).get("providerID") or one.get("status", {}).get("providerID")
        if (one["metadata"].get("labels") or {}).get(POOL) != name or identity in seen:
            continue
        seen.add(identity)
        claim = claims.get(identity)
        if (claim or one)["metadata"].get("deletionTimestamp"):
            continue
        total["nodes"] += 1
        for resource, amount in amounts(one.get("status", {}).get("capacity")).items():
            total[resource] = total.get(resource, ZERO) + amount
    yield from total.items()


def _within(new: J, pool: J, cluster: Cluster, used: dict[str, dict[str, object]]) -> Iterator[str]:
    limits = amounts(pool["spec"].get("limits"))
    if not limits:
        return
    mine = used[new["nodePool"]]
    largest = {"nodes": ZERO + 1}
    for name in new["instanceTypes"]:
        for resource, amount in amounts((cluster.types.get(name) or {}).get("capacity")).items():
            largest[resource] = max(largest.get(resource, ZERO), amount)
    for resource, limit in limits.items():
        total = mine.get(resource, ZERO) + largest.get(resource, ZERO)  # type: ignore[operator]
        mine[resource] = total
        if total > limit:
            yield f"over the NodePool's limit of {resource}"
