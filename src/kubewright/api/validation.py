"""What the CRDs cannot see in a NodePool, and what is wrong with a requirement; texts are the reference's conditions and errors.

Source: spec/scheduling 2.9, 10.1.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from kubewright.api import aws_labels, labels
from kubewright.api.core import Taint
from kubewright.api.karpenter import NodeOverlay, NodePool

OPERATORS = ("DoesNotExist", "Exists", "Gt", "Gte", "In", "Lt", "Lte", "NotIn")
NUMERIC = ("Gt", "Gte", "Lt", "Lte")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute", "")
_NUMBER = re.compile(r"\+?\d+", re.ASCII)


class Vocabulary(msgspec.Struct, frozen=True):
    """Which labels people may use, and what they may be."""

    well_known: frozenset[str] = labels.WELL_KNOWN
    domains: frozenset[str] = labels.RESTRICTED_DOMAINS
    aliases: Mapping[str, str] = msgspec.field(default_factory=lambda: labels.ALIASES)
    values: Mapping[str, frozenset[str]] = msgspec.field(default_factory=lambda: labels.WELL_KNOWN_VALUES)


CORE = Vocabulary()
AWS = Vocabulary(aws_labels.WELL_KNOWN, aws_labels.RESTRICTED_DOMAINS, aws_labels.ALIASES, aws_labels.WELL_KNOWN_VALUES)


def runtime_problems(pool: NodePool, vocabulary: Vocabulary = AWS) -> tuple[str, ...]:
    """Why a NodePool that the API server took may still not be used; empty when it may.

    The reference prints them joined by "; " as the message of ValidationSucceeded=False.
    """
    spec = pool.spec.template.spec
    problems = list(_label_problems(pool.spec.template.metadata.labels or {}, vocabulary))
    problems += _taint_problems(spec.taints or (), spec.startup_taints or ())
    for r in spec.requirements:
        found = requirement_problems(r.key, r.operator, r.values, r.min_values, vocabulary)
        if found:
            problems.append(f"invalid value: {'; '.join(found)} in requirements, restricted")
    problems += [f'invalid key: "{r.key}" in requirements, restricted' for r in spec.requirements if r.key == labels.NODEPOOL]
    return tuple(problems)


def overlay_problems(overlay: NodeOverlay, vocabulary: Vocabulary = AWS) -> tuple[str, ...]:
    """Why a NodeOverlay that the API server took may still not be used; empty when it may. Source: spec/scheduling 9.1."""
    problems: list[str] = []
    for r in overlay.spec.requirements:
        found = requirement_problems(r.key, r.operator, r.values, r.min_values, vocabulary)
        if found:
            problems.append(f"invalid value: {'; '.join(found)} in requirements, restricted")
    for name in sorted(overlay.spec.capacity or {}):
        if name in labels.WELL_KNOWN_RESOURCES:
            problems.append(f'invalid key: "{name}" in resource, restricted')
        problems += [f"invalid value: {why} in resource" for why in labels.qualified_name_problems(name)]
    return tuple(problems)


def requirement_problems(
    key: str, operator: str, values: Sequence[str], min_values: int | None = None, vocabulary: Vocabulary = AWS
) -> list[str]:
    """Everything that is wrong with one requirement of a NodePool or a pod."""
    key = labels.normalize(key, vocabulary.aliases)
    problems: list[str] = []
    if operator not in OPERATORS:
        problems.append(f"key {key} has an unsupported operator {operator} not in [{' '.join(OPERATORS)}]")
    if labels.is_restricted(key, vocabulary.well_known, vocabulary.domains):
        problems.append(labels.restricted_text(key, vocabulary.well_known, vocabulary.domains))
    if operator == "In":
        problems += _known_value_problems(key, values, min_values, vocabulary)
    problems += [f"key {key} is not a qualified name, {why}" for why in labels.qualified_name_problems(key)]
    for value in values:
        problems += [f"invalid value {value} for key {key}, {why}" for why in labels.value_problems(value)]
    if operator == "In" and not values:
        problems.append(f"key {key} with operator {operator} must have a value defined")
    if operator == "In" and min_values is not None and len(values) < min_values:
        problems.append(
            f"key {key} with operator {operator} must have at least minimum number of values defined in 'values' field"
        )
    if operator in NUMERIC and not (len(values) == 1 and _NUMBER.fullmatch(values[0]) and int(values[0]) < 2**63):
        problems.append(f"key {key} with operator {operator} must have a single positive integer value")
    return problems


def _known_value_problems(key: str, values: Sequence[str], min_values: int | None, vocabulary: Vocabulary) -> Iterable[str]:
    """A mixture of good and bad values passes while enough good ones are left."""
    if key not in vocabulary.well_known or key not in vocabulary.values:
        return
    known = sorted(vocabulary.values[key])
    good = [value for value in values if value in known]
    written = f"[{' '.join(values)}]"
    if not good:
        yield f"no valid values found in {written} for {key}, expected one of: [{' '.join(known)}], got: {written}"
    elif min_values is not None and len(good) < min_values:
        yield (
            f"not enough valid values found in {written} for {key}, expected at least {min_values} valid values from: "
            f"[{' '.join(known)}], got: {len(good)}"
        )


def _label_problems(written: Mapping[str, str], vocabulary: Vocabulary) -> Iterable[str]:
    for key in sorted(written):
        if key == labels.NODEPOOL:
            yield f'invalid key name "{key}" in labels, restricted'
        for why in labels.qualified_name_problems(key):
            yield f'invalid key name "{key}" in labels, "{why}"'
        for why in labels.value_problems(written[key]):
            yield f"invalid value: {written[key]} for label[{key}], {why}"
        if labels.is_restricted(key, vocabulary.well_known, vocabulary.domains):
            yield f'invalid key name "{key}" in labels, {labels.restricted_text(key, vocabulary.well_known, vocabulary.domains)}'


def _taint_problems(taints: Iterable[Taint], startup_taints: Iterable[Taint]) -> Iterable[str]:
    seen: set[tuple[str, str]] = set()
    for field, group in (("taints", taints), ("startupTaints", startup_taints)):
        for taint in group:
            for why in labels.qualified_name_problems(taint.key):
                yield f"invalid value: {why} in {field}"
            for why in labels.qualified_name_problems(taint.value) if taint.value else ():
                yield f"invalid value: {why} in {field}"
            if taint.effect not in EFFECTS:
                yield f'invalid value: "{taint.effect}" in {field}'
            if (taint.key, taint.effect) in seen:
                yield f"duplicate taint Key/Effect pair {taint.key}={taint.effect}"
            seen.add((taint.key, taint.effect))
