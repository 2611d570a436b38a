"""What pods ask of each other: affinity, anti-affinity, spread. Imports nothing of kubewright.

kube-scheduler binds one pod after the other, and what it allows depends on who stands already. A plan is right when there is an
order in which every pod is let onto its node; orders are tried one after the other.
"""

import random
from collections.abc import Iterator, Sequence

from tests.conformance.validator.alone import MUST, could_be_on_own_nodes, daemons_on, on_own_nodes
from tests.conformance.validator.amounts import J
from tests.conformance.validator.places import HOST, Cluster, Place
from tests.conformance.validator.selecting import key_of, labels_of, namespace_of, selects, tolerated

_SHUFFLES = 40
Put = tuple[J, Place]


class Standing:
    """Who stands where, while pods are bound one by one."""

    def __init__(self, cluster: Cluster, every_domain: bool) -> None:
        self.cluster = cluster
        self.every_domain = every_domain
        self.on: list[tuple[Place, list[J]]] = [
            (p, [*(o for o in p.pods if key_of(o) not in p.put), *daemons_on(p, cluster)]) for p in cluster.places
        ]
        self._lists = {id(p): pods for p, pods in self.on}

    def bind(self, pod: J, place: Place) -> None:
        self._lists[id(place)].append(pod)

    def everyone(self) -> Iterator[tuple[Place, J]]:
        for place, pods in self.on:
            for pod in pods:
                yield place, pod


def together(cluster: Cluster, *, every_domain: bool = False) -> list[tuple[str, str]]:
    """(pod, what is wrong) for those that are let onto their nodes in no order that was tried.

    With `every_domain` spreads also look at domains where no node stands, but where NodePools could buy one.
    """
    puts = [(pod, place) for place in cluster.places for pod in place.pods if key_of(pod) in place.put]
    if not puts:
        return []
    best: list[tuple[str, str]] | None = None
    for order in _orders(puts, cluster):
        refused = _refused(order, cluster, every_domain)
        if not refused:
            return []
        if best is None or len(refused) < len(best):
            best = refused
    return best or []


def binding_order(cluster: Cluster) -> list[Put]:
    """The pods in an order in which each is let onto its node; those that are let there in none come last."""
    puts = [(pod, place) for place in cluster.places for pod in place.pods if key_of(pod) in place.put]
    best: list[Put] = puts
    fewest = len(puts) + 1
    for order in _orders(puts, cluster):
        bound: list[Put] = []
        left = len(_refused(order, cluster, every_domain=False, bound=bound))
        if left < fewest:
            fewest, best = left, [*bound, *(p for p in puts if all(p[0] is not b[0] for b in bound))]
        if not left:
            break
    return best


def _orders(puts: list[Put], cluster: Cluster) -> Iterator[list[Put]]:
    """Pods that must be spread before those that merely count, followers last; then the other way about; then by chance."""
    followed = {key_of(p): bool(_followed(p)) for p, _ in puts}
    spread = {key_of(p): bool(spreads(p, cluster)) for p, _ in puts}
    yield sorted(puts, key=lambda p: (followed[key_of(p[0])], not spread[key_of(p[0])]))
    if not any(followed.values()) and not any(spread.values()):
        return
    # Who may stand on few nodes alone is judged by these alone, and can wait until the others are even.
    reach = {key_of(p): sum(on_own_nodes(p, place) for place in cluster.places) for p, _ in puts}
    yield sorted(puts, key=lambda p: (followed[key_of(p[0])], not spread[key_of(p[0])], -reach[key_of(p[0])]))
    yield puts
    yield sorted(puts, key=lambda p: (followed[key_of(p[0])], spread[key_of(p[0])]))
    yield sorted(puts, key=lambda p: (not followed[key_of(p[0])], not spread[key_of(p[0])]))
    rng = random.Random(len(puts))
    for attempt in range(_SHUFFLES):
        mixed = rng.sample(puts, len(puts))
        yield mixed if attempt % 2 else sorted(mixed, key=lambda p: not spread[key_of(p[0])])


def _refused(order: Sequence[Put], cluster: Cluster, every_domain: bool, bound: list[Put] | None = None) -> list[tuple[str, str]]:
    """The first pod of the order that is let onto its node goes there, again and again; who is left then, and why."""
    standing = Standing(cluster, every_domain)
    waiting = list(order)
    while waiting:
        why: list[tuple[str, str]] = []
        for index, (pod, place) in enumerate(waiting):
            said = _objection(pod, place, standing)
            if not said:
                standing.bind(pod, place)
                if bound is not None:
                    bound.append((pod, place))
                del waiting[index]
                break
            why.append((key_of(pod), said))
        else:
            return why
    return []


def _objection(pod: J, place: Place, standing: Standing) -> str:
    """Why kube-scheduler would not let the pod onto the node now; "" when it would."""
    cluster = standing.cluster
    for other_place, other in standing.everyone():
        for term in _anti(pod):
            if _meets(term, place, other_place) and _term_picks(term, pod, other, cluster):
                return f"anti-affinity to {key_of(other)}"
        for term in _anti(other):
            if _meets(term, place, other_place) and _term_picks(term, other, pod, cluster):
                return f"anti-affinity of {key_of(other)}"
    return _lonely(pod, place, standing) or next(
        (
            f"spread over {c['topologyKey']}"
            for c in spreads(pod, cluster)
            if not _balanced(pod, c, place, standing, [s["topologyKey"] for s in spreads(pod, cluster)])
        ),
        "",
    )


def _lonely(pod: J, place: Place, standing: Standing) -> str:
    terms = _followed(pod)
    if not terms:
        return ""
    unsettled = next((t["topologyKey"] for t in terms if place.value(t["topologyKey"]) is None), None)
    if unsettled is not None:
        return f"affinity: {unsettled} is not settled"
    cluster = standing.cluster
    matching = [p for p, o in standing.everyone() if all(_term_picks(t, pod, o, cluster) for t in terms)]
    if not matching and all(_term_picks(t, pod, pod, cluster) for t in terms):
        return ""
    for term in terms:
        key = term["topologyKey"]
        if not any(p.value(key) == place.value(key) for p in matching):
            return f"affinity over {key}"
    return ""


def _followed(pod: J) -> list[J]:
    return list(((pod["spec"].get("affinity") or {}).get("podAffinity") or {}).get(MUST) or ())


def _anti(pod: J) -> list[J]:
    return list(((pod["spec"].get("affinity") or {}).get("podAntiAffinity") or {}).get(MUST) or ())


def _meets(term: J, one: Place, other: Place) -> bool:
    """Whether the two places might share the term's domain."""
    key = term["topologyKey"]
    return bool(one.labels.get(key, set()) & other.labels.get(key, set()))


def _term_picks(term: J, owner: J, other: J, cluster: Cluster) -> bool:
    names = set(term.get("namespaces") or ())
    wanted = term.get("namespaceSelector")
    if wanted is not None:
        names |= {n["metadata"]["name"] for n in cluster.of("Namespace") if selects(wanted, n)}
        if not wanted.get("matchLabels") and not wanted.get("matchExpressions"):
            names.add(namespace_of(other))
    elif not names:
        names = {namespace_of(owner)}
    selector = _with_keys(term.get("labelSelector"), owner, term.get("matchLabelKeys"), term.get("mismatchLabelKeys"))
    return namespace_of(other) in names and selects(selector, other)


def _with_keys(selector: J | None, owner: J, same: list[str] | None, different: list[str] | None = None) -> J | None:
    if selector is None or not (same or different):
        return selector
    own = labels_of(owner)
    more = [{"key": k, "operator": "In", "values": [own[k]]} for k in same or () if k in own]
    more += [{"key": k, "operator": "NotIn", "values": [own[k]]} for k in different or () if k in own]
    return {**selector, "matchExpressions": [*(selector.get("matchExpressions") or ()), *more]}


def spreads(pod: J, cluster: Cluster) -> list[J]:
    """The pod's constraints that must hold: its own, or the cluster's where it writes none."""
    written = pod["spec"].get("topologySpreadConstraints") or []
    if not written and cluster.problem.get("defaultConstraints"):
        selector = _deduced(pod, cluster)
        if selector:
            written = [{**c, "labelSelector": {"matchLabels": selector}} for c in cluster.problem["defaultConstraints"]]
    return [c for c in written if c.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"]


def _deduced(pod: J, cluster: Cluster) -> dict[str, str]:
    found: dict[str, str] = {}
    own = labels_of(pod)
    for service in cluster.of("Service"):
        chosen = service["spec"].get("selector")
        if chosen and namespace_of(service) == namespace_of(pod) and all(own.get(k) == v for k, v in chosen.items()):
            found |= chosen
    for owner in pod["metadata"].get("ownerReferences") or ():
        for one in cluster.of(owner["kind"]) if owner["kind"] in ("ReplicaSet", "StatefulSet") else ():
            if (one["metadata"]["name"], namespace_of(one)) == (owner["name"], namespace_of(pod)):
                found |= one["spec"]["selector"].get("matchLabels") or {}
    return found


def _balanced(pod: J, constraint: J, place: Place, standing: Standing, keys: list[str]) -> bool:
    """Whether the skew is right with this pod. A node that is going away may count or not: it may be gone by then."""
    value = place.value(constraint["topologyKey"])
    if value is None:
        return False
    selector = _with_keys(constraint.get("labelSelector"), pod, constraint.get("matchLabelKeys"))
    mine = int(selects(selector, pod))
    for leaving_counts in (True, False):
        counts = _counts(pod, constraint, selector, standing, keys, leaving_counts)
        least = min(counts.values(), default=0)
        another = standing.every_domain and constraint["topologyKey"] == HOST
        if another or len(counts) < (constraint.get("minDomains") or 0):
            least = 0
        if counts.get(value, 0) + mine - least <= constraint["maxSkew"]:
            return True
    return False


def _counts(pod: J, c: J, selector: J | None, standing: Standing, keys: list[str], leaving_counts: bool) -> dict[str, int]:
    honour_affinity = (c.get("nodeAffinityPolicy") or "Honor") == "Honor"
    honour_taints = c.get("nodeTaintsPolicy") == "Honor"
    key = c["topologyKey"]
    counts: dict[str, int] = {}
    if standing.every_domain and key != HOST:
        offered = standing.cluster.offered(key)
        counts = {v: 0 for v in offered if not honour_affinity or could_be_on_own_nodes(pod, key, v)}
    for place, pods in standing.on:
        value = place.value(key)
        if value is None or any(not place.labels.get(k) for k in keys) or (place.is_leaving and not leaving_counts):
            continue
        if honour_affinity and not on_own_nodes(pod, place):
            continue
        if honour_taints and tolerated(pod["spec"], place.taints) is not None:
            continue
        counts.setdefault(value, 0)
        for other in pods:
            going = other["metadata"].get("deletionTimestamp")
            if not going and namespace_of(other) == namespace_of(pod) and selects(selector, other):
                counts[value] += 1
    return counts
