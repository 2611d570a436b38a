"""The rules of NodePool, NodeClaim and NodeOverlay. Source: spec/scheduling 9.1, 9.3, 10.1, 10.4."""

import re
from collections.abc import Iterable

from kubewright.api import labels
from kubewright.api.rules.rule import EvaluationError, Json, Rule, every, get, has, items, mapping, text

NUMERIC = ("Gt", "Lt", "Gte", "Lte")
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)


def _list(texts: Iterable[str]) -> str:
    return "[" + ", ".join(f"'{t}'" for t in texts) + "]"


def _ends_in(domain: str) -> str:
    # what stands before the first slash, or the whole key
    return f"^[^/]*{domain.replace('.', '[.]')}(/|$)"


def _may_use(key: str, domain: str, allowed: tuple[str, ...]) -> bool:
    return key in allowed or not key.split("/", 1)[0].endswith(domain)


def restricted_domain(domain: str, allowed: Iterable[str]) -> Rule:
    """For one label key: its domain must not end in `domain`, unless the key is one of `allowed`."""
    keys = tuple(allowed)
    cel = f"self in {_list(keys)} || !self.matches('{_ends_in(domain)}')"
    return Rule(cel, f'label domain "{domain}" is restricted', lambda key, _: _may_use(text(key), domain, keys))


def restricted_domain_in_map(domain: str, allowed: Iterable[str]) -> Rule:
    """The same for every key of a label map."""
    keys = tuple(allowed)
    cel = f"self.all(key, key in {_list(keys)} || !key.matches('{_ends_in(domain)}'))"
    return Rule(cel, f'label domain "{domain}" is restricted', lambda m, _: all(_may_use(k, domain, keys) for k in mapping(m)))


def restricted_key(label: str) -> Rule:
    return Rule(f"self != '{label}'", f'label "{label}" is restricted', lambda key, _: key != label)


def restricted_key_in_map(label: str) -> Rule:
    return Rule(f"!('{label}' in self)", f'label "{label}" is restricted', lambda m, _: label not in mapping(m))


def not_empty(field: str, message: str) -> Rule:
    """For a string named `field`; `message` has the field's name filled in."""
    return Rule("size(self) > 0", message.format(field), lambda value, _: text(value) != "")


CORE_KEYS = (labels.CAPACITY_TYPE, labels.NODEPOOL)
"""Keys of Karpenter's own domain that people may use (the second is refused by a rule of its own where it makes no sense)."""


def requirement_key(*more: Rule, nodepool: bool) -> list[Rule]:
    """Rules of a requirement's key; `nodepool` is whether `karpenter.sh/nodepool` may be asked for."""
    pool = [] if nodepool else [restricted_key(labels.NODEPOOL)]
    return [restricted_domain(labels.GROUP, CORE_KEYS), *pool, restricted_key(labels.HOSTNAME), *more]


def label_map(*more: Rule) -> list[Rule]:
    """Rules of the labels that a NodePool puts on its nodes."""
    return [
        restricted_domain_in_map(labels.GROUP, CORE_KEYS),
        restricted_key_in_map(labels.NODEPOOL),
        restricted_key_in_map(labels.HOSTNAME),
        *more,
    ]


def _listed(operator: str) -> Rule:
    return Rule(
        f"self.all(r, r.operator != '{operator}' || size(r.values) > 0)",
        f"requirements with operator '{operator}' must have a value defined",
        lambda rs, _: every(items(rs), lambda r: get(r, "operator") != operator or bool(get(r, "values"))),
    )


IN_HAS_VALUES = _listed("In")
NOT_IN_HAS_VALUES = _listed("NotIn")


def _is_single_number(requirement: Json) -> bool:
    if get(requirement, "operator") not in NUMERIC:
        return True
    values = items(get(requirement, "values"))
    if len(values) != 1:
        return False
    written = text(values[0])
    if not _INTEGER.fullmatch(written) or not -(2**63) <= int(written) < 2**63:
        raise EvaluationError("type conversion error from 'string' to 'int'")
    return int(written) >= 0


def _numeric(message: str) -> Rule:
    return Rule(
        f"self.all(r, !(r.operator in {_list(NUMERIC)}) || (size(r.values) == 1 && int(r.values[0]) >= 0))",
        message,
        lambda rs, _: every(items(rs), _is_single_number),
    )


NUMERIC_HAS_ONE_NUMBER = _numeric(
    "requirements operator 'Gt', 'Lt', 'Gte', or 'Lte' must have a single positive integer value",
)
OVERLAY_NUMERIC_HAS_ONE_NUMBER = _numeric(
    "requirements operator 'Gt', 'Lt', 'Gte' or 'Lte' must have a single positive integer value",
)


def _has_min_values(requirement: Json) -> bool:
    if get(requirement, "operator") != "In" or not has(requirement, "minValues"):
        return True
    wanted = get(requirement, "minValues")
    assert isinstance(wanted, int), "schema types are checked before rules are asked"
    return len(items(get(requirement, "values"))) >= wanted


IN_HAS_MIN_VALUES = Rule(
    "self.all(r, !(r.operator == 'In' && has(r.minValues)) || size(r.values) >= r.minValues)",
    "requirements with 'minValues' must have at least that many values specified in the 'values' field",
    lambda rs, _: every(items(rs), _has_min_values),
)

REQUIREMENTS = (IN_HAS_VALUES, NUMERIC_HAS_ONE_NUMBER, IN_HAS_MIN_VALUES)
OVERLAY_REQUIREMENTS = (NOT_IN_HAS_VALUES, IN_HAS_VALUES, OVERLAY_NUMERIC_HAS_ONE_NUMBER)

GROUP_IS_IMMUTABLE = Rule(
    "oldSelf.group == self.group",
    "nodeClassRef.group is immutable",
    lambda new, old: get(new, "group") == get(old, "group"),
)
KIND_IS_IMMUTABLE = Rule(
    "oldSelf.kind == self.kind",
    "nodeClassRef.kind is immutable",
    lambda new, old: get(new, "kind") == get(old, "kind"),
)
SPEC_IS_IMMUTABLE = Rule("oldSelf == self", "spec is immutable", lambda new, old: new == old)

SCHEDULE_WITH_DURATION = Rule(
    "self.all(budget, has(budget.duration) == has(budget.schedule))",
    "'schedule' must be set with 'duration'",
    lambda budgets, _: all(has(b, "duration") == has(b, "schedule") for b in items(budgets)),
)

STATIC_STAYS_STATIC = Rule(
    "has(oldSelf.replicas) == has(self.replicas)",
    "Cannot transition NodePool between static (replicas set) and dynamic (replicas unset) provisioning modes",
    lambda new, old: has(new, "replicas") == has(old, "replicas"),
)
STATIC_LIMITS_NODES = Rule(
    "!(has(self.replicas) && has(self.limits)) || self.limits.all(name, name == 'nodes')",
    "only 'limits.nodes' is supported on static NodePools",
    lambda spec, _: not (has(spec, "replicas") and has(spec, "limits")) or set(mapping(get(spec, "limits"))) <= {"nodes"},
)
STATIC_HAS_NO_WEIGHT = Rule(
    "!(has(self.replicas) && has(self.weight))",
    "'weight' is not supported on static NodePools",
    lambda spec, _: not (has(spec, "replicas") and has(spec, "weight")),
)
NODE_POOL_SPEC = (STATIC_STAYS_STATIC, STATIC_LIMITS_NODES, STATIC_HAS_NO_WEIGHT)

ONE_PRICE = Rule(
    "!(has(self.price) && has(self.priceAdjustment))",
    "cannot set both 'price' and 'priceAdjustment'",
    lambda spec, _: not (has(spec, "price") and has(spec, "priceAdjustment")),
)
_CORE_RESOURCES = ("cpu", "memory", "ephemeral-storage", "pods")
EXTENDED_RESOURCES_ONLY = Rule(
    f"!self.exists(name, name in {_list(_CORE_RESOURCES)})",
    "invalid resource restricted",
    lambda capacity, _: not any(name in _CORE_RESOURCES for name in mapping(capacity)),
)
