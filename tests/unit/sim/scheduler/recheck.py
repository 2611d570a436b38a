"""A second opinion on a placement: every rule again, straight from the wire objects, one pod and one node at a time, slowly.

Shares nothing with the scheduler it judges but the text of the Kubernetes documentation.
"""

from fractions import Fraction
from typing import Any

Item = dict[str, Any]

UNITS = {"m": Fraction(1, 1000), "": Fraction(1), "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30)}


def amount(text: str) -> Fraction:
    unit = next(u for u in ("m", "Ki", "Mi", "Gi", "") if text.endswith(u))
    return Fraction(text.removesuffix(unit)) * UNITS[unit]


def labels(obj: Item) -> Item:
    found: Item = obj["metadata"].get("labels") or {}
    return found


def broken(pod: Item, node: Item, nodes: list[Item], standing: list[Item]) -> list[str]:
    """The rules that `pod` would break on `node`, with `standing` (bound pods) there already."""
    rules = {
        "resources": fits(pod, node, standing),
        "taints": tolerates(pod, node),
        "node affinity": wants(pod, node),
        "host ports": ports_free(pod, node, standing),
        "spread": spreads(pod, node, nodes, standing),
        "affinity": has_company(pod, node, nodes, standing),
        "anti-affinity": keeps_apart(pod, node, nodes, standing),
    }
    return [name for name, holds in rules.items() if not holds]


def on(node: Item, standing: list[Item]) -> list[Item]:
    return [p for p in standing if p["spec"]["nodeName"] == node["metadata"]["name"]]


def fits(pod: Item, node: Item, standing: list[Item]) -> bool:
    there = [*on(node, standing), pod]
    room = node["status"]["allocatable"]
    for resource in ("cpu", "memory"):
        asked = [amount(c["resources"]["requests"][resource]) for p in there for c in p["spec"]["containers"]]
        if sum(asked) > amount(room[resource]):
            return False
    return len(there) <= int(room["pods"])


def tolerates(pod: Item, node: Item) -> bool:
    for taint in node["spec"].get("taints", []):
        if taint["effect"] == "PreferNoSchedule":
            continue
        for toleration in pod["spec"].get("tolerations", []):
            any_key = "key" not in toleration and toleration.get("operator") == "Exists"
            key = any_key or toleration.get("key") == taint["key"]
            value = toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")
            effect = toleration.get("effect") in (None, taint["effect"])
            if key and value and effect:
                break
        else:
            return False
    return True


def wants(pod: Item, node: Item) -> bool:
    have = labels(node)
    for key, value in pod["spec"].get("nodeSelector", {}).items():
        if have.get(key) != value:
            return False
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity")
    if not affinity:
        return True
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return any(all(expression(e, have) for e in term["matchExpressions"]) for term in terms)


def expression(asked: Item, have: Item) -> bool:
    value = have.get(asked["key"])
    if asked["operator"] == "Exists":
        return value is not None
    if asked["operator"] == "DoesNotExist":
        return value is None
    inside = value in asked["values"]
    return inside if asked["operator"] == "In" else not inside


def ports_free(pod: Item, node: Item, standing: list[Item]) -> bool:
    taken = {port["hostPort"] for p in on(node, standing) for c in p["spec"]["containers"] for port in c.get("ports", [])}
    return not any(port["hostPort"] in taken for c in pod["spec"]["containers"] for port in c.get("ports", []))


def picked(selector: Item, pod: Item) -> bool:
    return all(labels(pod).get(k) == v for k, v in selector["matchLabels"].items())


def spreads(pod: Item, node: Item, nodes: list[Item], standing: list[Item]) -> bool:
    rules = [r for r in pod["spec"].get("topologySpreadConstraints", []) if r["whenUnsatisfiable"] == "DoNotSchedule"]
    keys = [r["topologyKey"] for r in rules]
    for rule in rules:
        key = rule["topologyKey"]
        if key not in labels(node):
            return False
        counts: dict[str, int] = {}
        for one in nodes:
            counted = all(k in labels(one) for k in keys) and wants(pod, one)
            if rule.get("nodeTaintsPolicy") == "Honor":
                counted = counted and tolerates(pod, one)
            if counted:
                value = labels(one)[key]
                matching = [p for p in on(one, standing) if picked(rule["labelSelector"], p)]
                counts[value] = counts.get(value, 0) + len(matching)
        least = min(counts.values(), default=0)
        if len(counts) < rule.get("minDomains", 1):
            least = 0
        after = counts.get(labels(node)[key], 0) + picked(rule["labelSelector"], pod)
        if after - least > rule["maxSkew"]:
            return False
    return True


def terms(pod: Item, side: str) -> list[Item]:
    found: list[Item] = pod["spec"].get("affinity", {}).get(side, {}).get("requiredDuringSchedulingIgnoredDuringExecution", [])
    return found


def same_domain(key: str, one: Item, other: Item) -> bool:
    return key in labels(one) and labels(one)[key] == labels(other).get(key)


def home(pod: Item, nodes: list[Item]) -> Item:
    return next(n for n in nodes if n["metadata"]["name"] == pod["spec"]["nodeName"])


def has_company(pod: Item, node: Item, nodes: list[Item], standing: list[Item]) -> bool:
    asked = terms(pod, "podAffinity")
    if any(t["topologyKey"] not in labels(node) for t in asked):
        return False
    friends = [p for p in standing if all(picked(t["labelSelector"], p) for t in asked)]
    if all(any(same_domain(t["topologyKey"], node, home(p, nodes)) for p in friends) for t in asked):
        return True
    anywhere = any(t["topologyKey"] in labels(home(p, nodes)) for p in friends for t in asked)
    return not anywhere and all(picked(t["labelSelector"], pod) for t in asked)


def keeps_apart(pod: Item, node: Item, nodes: list[Item], standing: list[Item]) -> bool:
    for other in standing:
        where = home(other, nodes)
        for one, two in ((pod, other), (other, pod)):
            for term in terms(one, "podAntiAffinity"):
                if picked(term["labelSelector"], two) and same_domain(term["topologyKey"], node, where):
                    return False
    return True
