"""Which pods a provisioning pass plans for, and which it leaves alone and why.

Source: spec/scheduling 1.1 to 1.5, 4.3.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from kubewright.api import labels as names
from kubewright.api import selectors
from kubewright.api.core import Pod, PodDisruptionBudget
from kubewright.api.duration import parse as parse_duration
from kubewright.api.meta import find_condition, is_true, owned_by
from kubewright.scheduling.refusal import Because, Refusal
from kubewright.scheduling.requirement import DOES_NOT_EXIST, Requirement
from kubewright.scheduling.requirements import of_labels, of_pod
from kubewright.scheduling.taints import covers
from kubewright.scheduling.volumes import Storage, claim_keys, invalid
from kubewright.settings import Settings
from kubewright.solver.problem import Problem, Snapshot, SolverSettings, StateNode

_FINISHED = ("Succeeded", "Failed")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte")


class Selection(msgspec.Struct, frozen=True):
    """The problem of a pass, and the pods that were left out of it."""

    problem: Problem
    ignored: Mapping[str, Refusal]
    """Pod key → why it is not planned for; `facts["opt-out"]` marks pods that asked for that."""


def select(snapshot: Snapshot, settings: SolverSettings) -> Selection:
    """Provisionable pending pods and the pods of leaving nodes, against the nodes that stay."""
    aliases = {**names.ALIASES, **settings.label_aliases}
    well_known = names.WELL_KNOWN | settings.well_known_labels
    around = snapshot.surroundings
    storage = Storage(
        {c.key: c for c in around.claims},
        {v.name: v for v in around.volumes},
        {s.name: s for s in around.storage_classes},
        aliases,
    )
    ignored: dict[str, Refusal] = {}
    chosen: list[Pod] = []
    for pod in snapshot.pods:
        if not is_provisionable(pod):
            continue
        refusal = invalid_pod(pod, storage, aliases, well_known)
        if refusal is None:
            chosen.append(pod)
        else:
            ignored[pod.key] = refusal
    staying = tuple(place for place in snapshot.nodes if not is_leaving(place))
    leaving = tuple(place for place in snapshot.nodes if is_leaving(place))
    for place in leaving:
        chosen += [pod for pod in place.pods if must_move(pod, around.budgets, snapshot.now)]
    # What stands in for a CapacityBuffer need not be valid or provisionable; a real pod of the same name goes before it.
    real = {pod.key for pod in chosen}
    chosen += [pod for pod in snapshot.virtual if pod.key not in real]
    chosen.sort(key=lambda pod: pod.key)
    problem = Problem(snapshot.now, tuple(chosen), staying, snapshot.pools, around, settings, leaving)
    return Selection(problem, dict(sorted(ignored.items())))


def problem_from(snapshot: Snapshot, settings: SolverSettings | Settings) -> Problem:
    """The problem of a pass over `snapshot`; see `select` for the pods that are left out."""
    return select(snapshot, solver_settings(settings) if isinstance(settings, Settings) else settings).problem


def solver_settings(settings: Settings, well_known: frozenset[str] = frozenset()) -> SolverSettings:
    return SolverSettings(
        settings.preference_policy,
        settings.min_values_policy,
        settings.ignore_dra_requests,
        settings.feature_gates,
        well_known,
    )


def is_provisionable(pod: Pod) -> bool:
    """Whether new capacity could help the pod. Source: spec/scheduling 1.1."""
    scheduled = find_condition(pod.status.conditions, "PodScheduled")
    return (
        scheduled is not None
        and scheduled.reason == "Unschedulable"
        and not pod.spec.node_name
        and not pod.status.nominated_node_name
        and not owned_by(pod.metadata, "apps/v1", "DaemonSet")
        and not owned_by(pod.metadata, "v1", "Node")
    )


def is_leaving(place: StateNode) -> bool:
    """Whether a node is on its way out, by a mark or by what its objects say. Source: spec/scheduling 4.3."""
    if place.marked_for_deletion:
        return True
    if place.claim is not None:
        ending = is_true(place.claim.status.conditions, "InstanceTerminating")
        return ending or place.claim.metadata.deletion_timestamp is not None
    return place.node is not None and place.node.metadata.deletion_timestamp is not None


def must_move(pod: Pod, budgets: tuple[PodDisruptionBudget, ...], now: datetime) -> bool:
    """Whether a pod of a leaving node needs a new place now. Source: spec/scheduling 1.2."""
    return is_reschedulable(pod) and is_disruptable(pod, now) and not is_blocked(pod, budgets, now)


def is_active(pod: Pod) -> bool:
    return pod.status.phase not in _FINISHED and pod.metadata.deletion_timestamp is None


def is_reschedulable(pod: Pod) -> bool:
    """Whether it, or its successor, will need another home. Source: spec/disruption 0.

    A StatefulSet makes the successor once this one is gone, finished or not.
    """
    replaced = owned_by(pod.metadata, "apps/v1", "StatefulSet") and pod.metadata.deletion_timestamp is not None
    bound = owned_by(pod.metadata, "apps/v1", "DaemonSet") or owned_by(pod.metadata, "v1", "Node")
    return (is_active(pod) or replaced) and not bound


def is_disruptable(pod: Pod, now: datetime) -> bool:
    """False while the do-not-disrupt annotation of a running pod is in force."""
    if not is_active(pod):
        return True
    written = pod.metadata.annotations.get(names.DO_NOT_DISRUPT)
    if written is None:
        return True
    if written == "true":
        return False
    try:
        span = parse_duration(written)
    except ValueError:
        return True
    if span is None or span <= timedelta(0):
        return True
    return pod.status.start_time is not None and now - pod.status.start_time >= span


def is_blocked(pod: Pod, budgets: tuple[PodDisruptionBudget, ...], now: datetime) -> bool:
    """Whether PodDisruptionBudgets forbid evicting the pod whatever happens."""
    evictable = (
        is_active(pod)
        and is_disruptable(pod, now)
        and not owned_by(pod.metadata, "v1", "Node")
        and not any(covers(t, names.DISRUPTED_TAINT) for t in pod.spec.tolerations)
    )
    if not evictable:
        return False
    matching = [b for b in budgets if b.namespace == pod.namespace and selectors.matches(b.spec.selector, pod.metadata.labels)]
    if len(matching) > 1:
        return True
    unready = find_condition(pod.status.conditions, "Ready")
    for budget in matching:
        always = budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow"
        if always and unready is not None and unready.status == "False":
            continue
        if budget.spec.max_unavailable in (0, "0", "0%") or budget.spec.min_available == "100%":
            return True
    return False


def invalid_pod(pod: Pod, storage: Storage, aliases: Mapping[str, str], well_known: frozenset[str]) -> Refusal | None:
    """Why a pending pod is left out of the pass. Source: spec/scheduling 1.5."""
    problems: list[str] = []
    opted_out = _opts_out(pod, aliases)
    if opted_out:
        problems.append("configured to not run on a Karpenter provisioned node (requirement=karpenter.sh/nodepool DoesNotExist)")
    for one in of_labels(pod.spec.node_selector, aliases).values():
        problems += requirement_problems(one.key, "In", tuple(sorted(one.values)), well_known)
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    if affinity is not None and affinity.required is not None:
        terms = affinity.required.node_selector_terms
        if terms and not any(t.match_expressions or t.match_fields for t in terms):
            problems.append("node selector term without expressions matches no node")
        for term in terms:
            if term.match_fields:
                problems.append("node selector term with matchFields is not supported")
            for e in term.match_expressions:
                problems += requirement_problems(names.normalize(e.key, aliases), e.operator, e.values, well_known)
    volume = invalid(claim_keys(pod), storage) if pod.spec.volumes else None
    if volume is not None and not problems:
        return volume
    if volume is not None:
        problems.append(volume.found)
    if not problems:
        return None
    facts = {"detail": "; ".join(problems)}
    if opted_out:
        facts["opt-out"] = "true"
    return Refusal(Because.INVALID, "", pod.key, problems[0], facts, curable=False)


def requirement_problems(
    key: str, operator: str, values: tuple[str, ...], well_known: frozenset[str], min_values: int | None = None
) -> list[str]:
    """Everything wrong with a written requirement, in Karpenter's words; `key` is normalised. Source: spec/scheduling 2.9."""
    problems: list[str] = []
    if operator not in _OPERATORS:
        problems.append(f"key {key} has an unsupported operator {operator} not in [{' '.join(sorted(_OPERATORS))}]")
    if names.is_restricted(key, well_known):
        problems.append(names.restricted_text(key, well_known))
    known = names.WELL_KNOWN_VALUES.get(key)
    if operator == "In" and known is not None and values:
        good = [v for v in values if v in known]
        listed = f"[{' '.join(values)}]"
        if not good:
            expected = f"[{' '.join(sorted(known))}]"
            problems.append(f"no valid values found in {listed} for {key}, expected one of: {expected}, got: {listed}")
        elif min_values is not None and len(good) < min_values:
            problems.append(f"not enough valid values found in {listed} for {key}")
    problems += [f"key {key} is not a qualified name, {why}" for why in names.qualified_name_problems(key)]
    problems += [f"invalid value {v} for key {key}, {why}" for v in values for why in names.value_problems(v)]
    if operator == "In" and not values:
        problems.append(f"key {key} with operator {operator} must have a value defined")
    if operator == "In" and min_values is not None and len(values) < min_values:
        problems.append(
            f"key {key} with operator {operator} must have at least minimum number of values defined in 'values' field"
        )
    if operator in ("Gt", "Lt", "Gte", "Lte") and not (len(values) == 1 and values[0].isascii() and values[0].isdigit()):
        problems.append(f"key {key} with operator {operator} must have a single positive integer value")
    return problems


def _opts_out(pod: Pod, aliases: Mapping[str, str]) -> bool:
    try:
        # Only what is required opts out; the reference lets a mere preference do it (spec/scheduling 14, 22), and the pod waits.
        asked: Requirement | None = of_pod(pod.spec, preferences=False, aliases=aliases).get(names.NODEPOOL)
    except ValueError:
        return False
    return asked is not None and asked.operator == DOES_NOT_EXIST
