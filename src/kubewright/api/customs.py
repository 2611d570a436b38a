"""Strict checks of our own kinds in manifests: the CRD's schema and rules, runtime validation, and what neither can see.

Karpenter's CRD also accepts what can never work; a manifest is the place to say so.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from kubewright.api import crds, cron, duration, quantity, schema, validation
from kubewright.api.contradictions import contradictions
from kubewright.api.crds import parts
from kubewright.api.findings import NO_QUANTITY, Finding, leaf, near_quantity, nearest, nest, parent, quoted
from kubewright.api.karpenter import NodePool
from kubewright.api.rules.aws import FAMILIES

Obj = Mapping[str, Any]

KINDS: Mapping[tuple[str, str], str] = {
    (f"{crd['spec']['group']}/{crd['spec']['versions'][0]['name']}", crd["spec"]["names"]["kind"]): name
    for name, crd in crds.CRDS.items()
}
"""(apiVersion, kind) → `plural.group`."""

_CLASS = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
_EXAMPLES: Mapping[str, Any] = {
    "spec": {},
    "nodeClassRef": _CLASS,
    "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}],
    "template": {"spec": {"nodeClassRef": _CLASS, "requirements": []}},
    "amiSelectorTerms": [{"alias": "al2023@latest"}],
    "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "my-cluster"}}],
    "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": "my-cluster"}}],
    "consolidateAfter": "0s",
    "expireAfter": "720h",
    "terminationGracePeriod": "48h",
    "nodes": "10%",
    "schedule": "0 9 * * mon-fri",
    "duration": "8h",
    "volumeSize": "100Gi",
    "group": "karpenter.k8s.aws",
    "kind": "EC2NodeClass",
    "name": "default",
    "key": "karpenter.sh/capacity-type",
    "operator": "In",
    "effect": "NoSchedule",
    "value": "true",
    "interfaceType": "interface",
    "networkCardIndex": 0,
    "deviceIndex": 0,
    "alias": "al2023@latest",
    "role": "KarpenterNodeRole-my-cluster",
    "instanceProfile": "my-instance-profile",
    "labels": {"team": "batch"},
    "tags": {"team": "batch"},
    "evictionHard": {"memory.available": "5%"},
    "kubeReserved": {"cpu": "100m", "memory": "256Mi"},
    "systemReserved": {"cpu": "100m", "memory": "256Mi"},
    "price": "0.10",
    "priceAdjustment": "-10%",
}
"""Name of a field → something that may stand there."""

_AMI = {"spec": {"amiSelectorTerms": [{"alias": "al2023@latest"}]}}
_BY_RULE: tuple[tuple[str, Any], ...] = (
    ("must specify exactly one of ['role'", {"spec": {"role": "KarpenterNodeRole-my-cluster"}}),
    ("if set, amiFamily must be", None),
    ("must specify amiFamily", {"spec": {"amiFamily": "AL2023"}}),
    (
        "'schedule' must be set",
        nest("spec.disruption.budgets[0]", {"nodes": "10%", "schedule": "0 9 * * mon-fri", "duration": "8h"}),
    ),
    ("only 'limits.nodes'", nest("spec.limits", {"nodes": 10})),
    ("snapshotID", nest("spec.blockDeviceMappings[0].ebs", {"snapshotID": "snap-0123456789abcdef0"})),
)


def check(obj: Obj) -> Iterator[Finding]:
    """Everything wrong with an object of one of our kinds, but for its metadata."""
    name = KINDS[str(obj["apiVersion"]), str(obj["kind"])]
    root = crds.schema_of(name)
    for path in schema.unknown_fields(obj, root):
        if not path.startswith("metadata."):
            yield _unknown(path, obj, root)
    full = schema.default_and_prune(obj, root)
    problems = [p for p in schema.validate(full, None, root) if p.field != "<nil>"]
    yield from (_finding(p, root) for p in problems)
    if any(p.blocking for p in problems):
        return
    yield from _amounts(full, root, "", {p.field for p in problems})
    if obj["kind"] == "NodePool":
        yield from _node_pool(full, problems)
    elif obj["kind"] == "NodeClaim":
        yield from _requirements(full["spec"], "spec", problems, {})
    elif obj["kind"] == "EC2NodeClass":
        yield from _node_class(full)


def _unknown(path: str, obj: Obj, root: schema.Schema) -> Finding:
    name, above = leaf(path), parent(path)
    siblings = _fields_at(above, root)
    value = value_at(obj, path)
    found = f"found {quoted(value)}, but there is no field of this name"
    near = nearest(name, siblings)
    elsewhere = [p for p in _paths(root, "") if leaf(p) == name and p.startswith("spec")]
    if near is not None:
        right = f"{above}.{near}" if above else near
        return Finding(path, f"{found}; did you mean {near}?", nest(right, value))
    if len(elsewhere) == 1:
        return Finding(path, f"{found} here; it belongs at {elsewhere[0]}", nest(elsewhere[0], value))
    return Finding(path, f"{found}; take it out, or use one of: {', '.join(sorted(siblings))}")


def _finding(problem: schema.Problem, root: schema.Schema) -> Finding:
    path, found = problem.field, problem.found
    node = _node_at(path, root)
    name = leaf(path).partition("[")[0]
    if problem.reason == "FieldValueRequired":
        mended = _example(name, node)
        return Finding(path, "found nothing, but it is required", nest(path, mended))
    if problem.allowed:
        right = nearest(str(found), problem.allowed) or problem.allowed[0]
        says = f"found {quoted(found)}; it must be one of {', '.join(problem.allowed)}"
        return Finding(path, says, nest(path, right))
    if problem.reason == "FieldValueTypeInvalid":
        return Finding(path, _type_text(found, node), nest(path, _converted(found, node, name, path)))
    if problem.reason in ("FieldValueTooMany", "FieldValueTooLong", "FieldValueDuplicate"):
        return Finding(path, f"found {quoted(found)}: {problem.message}; take out what is too much")
    rule = problem.message.removeprefix(f"Invalid value: {schema.show(found)}: ").removeprefix("Invalid value: ")
    for start, mended in _BY_RULE:
        if start in rule:
            return Finding(path, f"found {quoted(found)}: {rule}", mended or _AMI)
    if "is restricted" in rule or "restricted tag" in rule:
        return Finding(path, f"found {quoted(found)}: {rule}; take it out, or use a name of a domain of your own")
    if node is not None and node.get("pattern") == parts.QUANTITY and isinstance(found, str):
        return Finding(path, f"found {quoted(found)}, {NO_QUANTITY}", nest(path, near_quantity(found)))
    if not isinstance(found, dict | list) and node is not None and "pattern" in node:
        shape = f"it must match {node['pattern']}"
        return Finding(
            path, f"found {quoted(found)}; {shape if 'should match' in rule else rule}", _mended_text(path, name, node)
        )
    if isinstance(found, int) and node is not None:
        low, high = node.get("minimum", found), node.get("maximum", found)
        says = f"found {found}; it must be from {node.get('minimum', 'any')} to {node.get('maximum', 'any')}"
        return Finding(path, says, nest(path, min(max(found, low), high)))
    return Finding(path, f"found {quoted(found)}: {rule}", _rule_mend(path, name, found))


def _rule_mend(path: str, name: str, found: Any) -> Any:
    if name == "alias":
        family = nearest(str(found).partition("@")[0], FAMILIES) or "al2023"
        return nest(path, f"{family}@latest")
    if isinstance(found, list) and name == "requirements":
        return nest(path, [_mended_requirement(r) for r in found if isinstance(r, dict)])
    return nest(path, _EXAMPLES[name]) if name in _EXAMPLES else None


def _mended_requirement(requirement: Mapping[str, Any]) -> dict[str, Any]:
    mended = dict(requirement)
    values = mended.get("values") or []
    if mended.get("operator") in ("Gt", "Lt", "Gte", "Lte") and not (len(values) == 1 and values[0].isdigit()):
        mended["values"] = [next((v for v in values if v.isdigit()), "1")]
    elif mended.get("operator") == "In" and not values:
        mended["operator"] = "Exists"
        mended.pop("values", None)
    elif mended.get("operator") == "In" and mended.get("minValues", 0) > len(values):
        mended["minValues"] = len(values)
    return mended


def _mended_text(path: str, name: str, node: schema.Schema) -> Any:
    if node["pattern"] in (parts.LABEL_VALUE, parts.QUALIFIED_NAME):
        return nest(path, _EXAMPLES.get(name, "my-value"))
    if name == "id" or name.endswith("ID"):
        word = next((w for w in ("subnet", "sg", "ami", "cr", "pg") if w + "-" in node["pattern"]), "")
        return nest(path, f"{word}-0123456789abcdef0" if word else "123456789012")
    return nest(path, node.get("default", _EXAMPLES.get(name, "..."))) if name in _EXAMPLES or "default" in node else None


def _type_text(found: Any, node: schema.Schema | None) -> str:
    wanted = "a whole number or a text" if node and node.get("x-kubernetes-int-or-string") else _kind_name(node)
    return f"found {quoted(found)}; it must be {wanted}"


def _kind_name(node: schema.Schema | None) -> str:
    if node is not None and node.get("format") == "date-time":
        return "a moment such as 2026-01-31T00:00:00Z"
    names = {
        "integer": "a whole number",
        "string": "a text (in quotes if it looks like a number)",
        "boolean": "true or false",
        "array": "a list",
        "object": "a mapping",
    }
    return names.get(str(node.get("type")) if node else "", "of another type")


def _converted(found: Any, node: schema.Schema | None, name: str, path: str) -> Any:
    """What was probably meant, in the right type."""
    wanted = node.get("type") if node else None
    if wanted == "integer":
        digits = "".join(ch for ch in str(found) if ch.isdigit())
        return int(digits) if isinstance(found, str) and digits else max(1, round(found)) if isinstance(found, float) else 1
    if wanted == "boolean":
        return str(found).lower() in ("true", "yes", "1", "on")
    if wanted == "array":
        return (
            [found]
            if isinstance(found, str) and (node or {}).get("items", {}).get("type") == "string"
            else _EXAMPLES.get(name, [])
        )
    if wanted == "object":
        if isinstance(found, str) and "id" in (node or {}).get("properties", {}):
            return {"id": found}
        example = _EXAMPLES.get(name, {})
        return example[0] if path.endswith("]") and isinstance(example, list) else example
    if node is not None and node.get("format") == "date-time":
        return "2026-01-31T00:00:00Z"
    if node is not None and node.get("x-kubernetes-int-or-string"):
        return quantity.canonical(repr(found)) if isinstance(found, float) else "100"
    if isinstance(found, dict | list) or found is None:
        return _EXAMPLES.get(name, "...")
    text = str(found).lower() if isinstance(found, bool) else str(found)
    return text if name not in ("consolidateAfter", "expireAfter", "terminationGracePeriod") else f"{text}s"


def _example(name: str, node: schema.Schema | None) -> Any:
    if name in _EXAMPLES:
        return _EXAMPLES[name]
    if node is None:
        return "..."
    if "enum" in node:
        return node["enum"][0]
    return {"integer": 1, "boolean": True, "array": [], "object": {}}.get(node.get("type", ""), "...")


def _amounts(value: Any, node: schema.Schema, path: str, known: set[str]) -> Iterator[Finding]:
    """Quantities that the pattern lets pass but nobody can read, and negative ones."""
    if path in known:
        return
    if node.get("pattern") == parts.QUANTITY and not isinstance(value, dict | list):
        try:
            amount = quantity.parse(value)
        except ValueError:
            yield Finding(path, f"found {quoted(value)}, {NO_QUANTITY}", nest(path, near_quantity(str(value))))
            return
        if amount < 0:
            yield Finding(path, f"found {quoted(value)}; an amount cannot be negative", nest(path, str(value).lstrip("-")))
    elif isinstance(value, dict):
        for name, held in value.items():
            child = node.get("properties", {}).get(name, node.get("additionalProperties"))
            if isinstance(child, dict):
                yield from _amounts(held, child, f"{path}.{name}" if path else name, known)
    elif isinstance(value, list) and "items" in node:
        for index, item in enumerate(value):
            yield from _amounts(item, node["items"], f"{path}[{index}]", known)


def _node_pool(full: Obj, problems: list[schema.Problem]) -> Iterator[Finding]:
    spec = full["spec"]
    for index, budget in enumerate(spec.get("disruption", {}).get("budgets", ())):
        path = f"spec.disruption.budgets[{index}].schedule"
        if "schedule" in budget and not any(p.field == path for p in problems):
            try:
                cron.parse(budget["schedule"])
            except ValueError as problem:
                yield Finding(path, f"found {quoted(budget['schedule'])}: {problem}", nest(path, "0 9 * * mon-fri"))
    for path, text in (
        ("spec.disruption.consolidateAfter", spec.get("disruption", {}).get("consolidateAfter")),
        ("spec.template.spec.expireAfter", spec["template"]["spec"].get("expireAfter")),
        ("spec.template.spec.terminationGracePeriod", spec["template"]["spec"].get("terminationGracePeriod")),
    ):
        if isinstance(text, str) and not any(p.field == path for p in problems):
            yield from _readable(path, text)
    labels = spec["template"].get("metadata", {}).get("labels", {})
    yield from _requirements(spec["template"]["spec"], "spec.template.spec", problems, labels)
    if not problems:
        pool = msgspec.convert({"spec": spec}, NodePool)
        for text in validation.runtime_problems(pool):
            yield Finding("spec.template", text)


def _readable(path: str, text: str) -> Iterator[Finding]:
    try:
        duration.parse_nillable(text)
    except ValueError as problem:
        yield Finding(path, f"found {quoted(text)}: {problem}", nest(path, _EXAMPLES[leaf(path)]))


def _requirements(spec: Obj, path: str, problems: list[schema.Problem], labels: Mapping[str, str]) -> Iterator[Finding]:
    if any(p.field.startswith(f"{path}.requirements") for p in problems):
        return
    written = spec.get("requirements", ())
    for index, why in contradictions(written, labels):
        requirement = written[index]
        mended = [{"key": requirement["key"], "operator": "Exists"}]
        yield Finding(
            f"{path}.requirements[{index}]", f"found {why}, so no machine is ever bought", nest(f"{path}.requirements", mended)
        )


def _node_class(full: Obj) -> Iterator[Finding]:
    if "spec" not in full:
        # the CRD would take it, and nothing could ever be bought with it
        names = ("role", "amiSelectorTerms", "subnetSelectorTerms", "securityGroupSelectorTerms")
        yield Finding("spec", "found nothing, but machines need it", {"spec": {name: _EXAMPLES[name] for name in names}})
        return
    for index, mapping in enumerate(full["spec"].get("blockDeviceMappings", ())):
        size = mapping.get("ebs", {}).get("volumeSize")
        if size in ("Ti", "T"):
            path = f"spec.blockDeviceMappings[{index}].ebs.volumeSize"
            yield Finding(path, f'found "{size}", which has no number', nest(path, f"1{size}"))


def value_at(obj: Any, path: str) -> Any:
    """What stands at `path`; None if nothing does."""
    for step in path.replace("[", ".[").split("."):
        if step.startswith("["):
            index = int(step[1:-1])
            obj = obj[index] if isinstance(obj, list) and index < len(obj) else None
        else:
            obj = obj.get(step) if isinstance(obj, dict) else None
    return obj


def _node_at(path: str, root: schema.Schema) -> schema.Schema | None:
    node: Any = root
    for step in path.replace("[", ".[").split("."):
        if not isinstance(node, dict):
            return None
        if step.startswith("["):
            node = node.get("items")
        elif step in node.get("properties", {}):
            node = node["properties"][step]
        else:
            # a map's keys may have dots; what they hold is all alike
            return node.get("additionalProperties") if isinstance(node.get("additionalProperties"), dict) else None
    return node if isinstance(node, dict) else None


def _fields_at(path: str, root: schema.Schema) -> list[str]:
    if path == "":
        return list(root["properties"])
    node = _node_at(path, root)
    return list(node.get("properties", {})) if node else []


def _paths(node: schema.Schema, path: str) -> Iterator[str]:
    for name, child in node.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        yield here
        yield from _paths(child, here)
    if isinstance(node.get("items"), dict):
        yield from _paths(node["items"], path + "[0]")
