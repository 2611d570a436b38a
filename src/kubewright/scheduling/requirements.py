"""Sets of requirements: what a node offers, what a pod asks, and whether the two agree.

A set is a mapping from label key to `Requirement`; a key it lacks may be anything. Source: spec/scheduling 2.5, 2.6, 2.8.
"""

from collections.abc import Collection, Iterable, Mapping

from kubewright.api import labels as names
from kubewright.api.core import NodeSelectorTerm, PodSpec
from kubewright.api.karpenter import NodeSelectorRequirement
from kubewright.api.meta import Labels, SelectorRequirement
from kubewright.scheduling.refusal import Because, Refusal
from kubewright.scheduling.requirement import DOES_NOT_EXIST, IN, NOT_IN, Requirement, nowhere, requirement

Requirements = Mapping[str, Requirement]

_NEGATIVE = (NOT_IN, DOES_NOT_EXIST)
_HIDDEN = (names.HOSTNAME, names.REGISTERED, names.INITIALIZED)


def of_labels(labels: Labels, aliases: Mapping[str, str] = names.ALIASES) -> dict[str, Requirement]:
    """Every label as a requirement for exactly its value."""
    found: dict[str, Requirement] = {}
    for key, value in labels.items():
        add(found, Requirement(names.normalize(key, aliases), frozenset((value,))))
    return found


def of_expressions(
    expressions: Iterable[SelectorRequirement | NodeSelectorRequirement], aliases: Mapping[str, str] = names.ALIASES
) -> dict[str, Requirement]:
    """All expressions at once; several of one key are intersected.

    What cannot be read (Gt without a number, which the API server lets pass) holds nowhere, as for kube-scheduler.
    """
    found: dict[str, Requirement] = {}
    for e in expressions:
        floor = e.min_values if isinstance(e, NodeSelectorRequirement) else None
        key = names.normalize(e.key, aliases)
        try:
            one = requirement(key, e.operator, e.values, floor)
        except ValueError:
            one = nowhere(key)
        add(found, one)
    return found


def of_term(term: NodeSelectorTerm, aliases: Mapping[str, str] = names.ALIASES) -> dict[str, Requirement]:
    """A required node selector term's expressions; `matchFields` are left to the caller (spec/scheduling 2.6).

    An empty term holds nowhere, as for kube-scheduler; the reference buys a node that will not be used.
    """
    if not term.match_expressions and not term.match_fields:
        return {names.HOSTNAME: nowhere(names.HOSTNAME)}
    return of_expressions(term.match_expressions, aliases)


def of_pod(spec: PodSpec, *, preferences: bool, aliases: Mapping[str, str] = names.ALIASES) -> dict[str, Requirement]:
    """The node selector and the first required affinity term; with `preferences` the heaviest preferred term as well.

    Of equally heavy terms the one written first counts. Source: spec/scheduling 2.6.
    """
    found = of_labels(spec.node_selector, aliases)
    affinity = spec.affinity.node_affinity if spec.affinity else None
    if affinity is None:
        return found
    if affinity.required is not None and affinity.required.node_selector_terms:
        add_all(found, of_term(affinity.required.node_selector_terms[0], aliases))
    if preferences and affinity.preferred:
        heaviest = max(affinity.preferred, key=lambda p: p.weight)
        add_all(found, of_expressions(heaviest.preference.match_expressions, aliases))
    return found


def add(into: dict[str, Requirement], one: Requirement) -> None:
    """Narrow `into` by `one`, in place."""
    before = into.get(one.key)
    into[one.key] = one if before is None else before & one


def add_all(into: dict[str, Requirement], more: Requirements) -> None:
    for one in more.values():
        add(into, one)


def both(a: Requirements, b: Requirements) -> dict[str, Requirement]:
    """What satisfies `a` and `b`."""
    merged = dict(a)
    add_all(merged, b)
    return merged


def agree(existing: Requirement, incoming: Requirement) -> bool:
    """Whether two requirements of one key can hold together; two that both do without a value always can."""
    return existing.intersects(incoming) or (existing.operator in _NEGATIVE and incoming.operator in _NEGATIVE)


def conflict(existing: Requirements, incoming: Requirements) -> Refusal | None:
    """The keys on which both sides have a say and cannot agree, as one refusal; None when there are none.

    Source: spec/scheduling 2.5 Intersects.
    """
    clashing = sorted(k for k in incoming if k in existing and not agree(existing[k], incoming[k]))
    if not clashing:
        return None
    texts = (f"key {k}, {incoming[k]} not in {existing[k]}" for k in clashing)
    first = clashing[0]
    return Refusal(
        Because.LABEL,
        "",
        str(incoming[first]),
        str(existing[first]),
        {"keys": ",".join(clashing), "detail": "; ".join(texts)},
        curable=False,
    )


def unknown_label(existing: Requirements, incoming: Requirements, undefined_ok: Collection[str]) -> Refusal | None:
    """The first key that is asked for but that nothing offers; None when there is none.

    Source: spec/scheduling 2.5 Compatible.
    """
    for key in sorted(incoming):
        if key in existing or key in undefined_ok or incoming[key].operator in _NEGATIVE:
            continue
        hint = typo_hint(key, undefined_ok, existing)
        return Refusal(
            Because.UNKNOWN_LABEL,
            "",
            str(incoming[key]),
            "",
            {"keys": key, "hint": hint} if hint else {"keys": key},
            curable=False,
        )
    return None


def compatible(existing: Requirements, incoming: Requirements, undefined_ok: Collection[str] = ()) -> Refusal | None:
    """Why `incoming` cannot be met by `existing`, or None.

    `undefined_ok` are keys that `existing` may leave open: the well-known labels against pools and open claims, nothing against
    nodes that exist. Source: spec/scheduling 2.5.
    """
    return unknown_label(existing, incoming, undefined_ok) or conflict(existing, incoming)


def typo_hint(key: str, well_known: Collection[str], existing: Requirements) -> str:
    """The key that was probably meant, "" if none is close.

    Close is one edit away. Differs from the reference on purpose, which also proposes any longer key that merely ends in the same
    word.
    """
    for known in (*sorted(well_known), *sorted(existing)):
        if known not in _HIDDEN and _one_edit_apart(key, known):
            return known
    return ""


def text(requirements: Requirements) -> str:
    """The set as Karpenter prints it: members sorted, hostname left out. Source: spec/scheduling 2.8."""
    return ", ".join(sorted(str(r) for r in requirements.values() if r.key != names.HOSTNAME))


def expressions(one: Requirement) -> tuple[NodeSelectorRequirement, ...]:
    """`one` as NodeClaims write it.

    Excluded values beside bounds are kept as a NotIn of their own, where the reference loses them (spec/scheduling 2.8 [Q]).
    """
    written: list[NodeSelectorRequirement] = []
    if one.at_least is not None:
        written.append(_expression(one, "Gte", (str(one.at_least),)))
    if one.at_most is not None:
        written.append(_expression(one, "Lte", (str(one.at_most),)))
    if not written or (one.complement and one.values):
        written.append(_expression(one, one.operator, tuple(sorted(one.values)) if one.operator in (IN, NOT_IN) else ()))
    return tuple(written)


def anything(key: str) -> Requirement:
    return Requirement(key, complement=True)


def _expression(one: Requirement, operator: str, values: tuple[str, ...]) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(key=one.key, operator=operator, values=values, min_values=one.min_values)


def _one_edit_apart(a: str, b: str) -> bool:
    if a == b or abs(len(a) - len(b)) > 1:
        return False
    short, long = sorted((a, b), key=len)
    start = next((i for i, (x, y) in enumerate(zip(short, long, strict=False)) if x != y), len(short))
    return short[start + (len(short) == len(long)) :] == long[start + 1 :]
