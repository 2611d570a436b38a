"""Why a pod class was left out: asked again of every place once the pass is over, so that placing costs nothing for it.

Source: spec/scheduling 5.3, 5.7, 6.6.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kubewright.api.quantity import ONE, Resources, show
from kubewright.catalogue.columns import bits
from kubewright.scheduling.refusal import Because, Refusal
from kubewright.scheduling.requirements import text
from kubewright.scheduling.resources import total_of
from kubewright.solver.classes import PodClass
from kubewright.solver.templates import State, Template, why_no_rows
from kubewright.solver.terms import Shape
from kubewright.solver.topology import Allowed, Rule, Rules, host_masks

if TYPE_CHECKING:
    from kubewright.solver.engine import Leeway

_PROBABLY_MILLI = 1_000_000 * ONE
_BINARY = ("memory", "ephemeral-storage", "hugepages-")

_BECAUSE = {
    Shape.SPREAD: Because.SPREAD,
    Shape.AFFINITY: Because.AFFINITY,
    Shape.ANTI_AFFINITY: Because.ANTI_AFFINITY,
}


def no_domain(template: Template, state: State, rules: Rules, limits: Mapping[str, Allowed]) -> Refusal:
    """No value of some topology key is left that the rules and the NodePool both allow."""
    for key, keyed in rules.keyed:
        limit = limits[key]
        values = [p.value for p in state.pins(key)]
        if any(limit.has(v) for v in values) or (not values and not limit.key_needed):
            continue
        return _of_rule(template.name, keyed[0], str(state.requirements.get(key, f"{key} Exists")))
    return Refusal(Because.OFFERING, template.name, "", "")


def topology_refusal(where: str, rules: Rules, leeway: "Leeway") -> Refusal:
    """The refusal of the rule that leaves nowhere to go at all."""
    for key, keyed in rules.keyed:
        if leeway.limits[key].none:
            return _of_rule(where, keyed[0], f"{key} Exists")
    rule = next(r for r in rules.host if not host_masks((r,)).fresh)
    return _of_rule(where, rule, f"{rule.group.term.key} In [hostname-placeholder]")


def no_company(template: Template, rules: Rules) -> Refusal:
    """No node that the pool can still buy would have the DaemonSet that the pod must be beside."""
    wanting = [r for r in rules.host if r.group.daemon_rows]
    rule = next((r for r in wanting if not r.group.daemon_rows.get(template.name)), wanting[0])
    return _of_rule(template.name, rule, f"{rule.group.term.key} In [hostname-placeholder]")


def _of_rule(where: str, rule: Rule, found: str) -> Refusal:
    key = rule.group.term.key
    facts = {
        "key": key,
        "shape": rule.group.term.shape.value,
        "counts": rule.group.describe(),
        "podDomains": str(rule.domains) if rule.domains is not None else f"{key} Exists",
        "nodeDomains": found,
    }
    return Refusal(_BECAUSE[rule.group.term.shape], where, "", "", facts)


def no_room(template: Template, state: State, one: PodClass, within: int) -> Refusal:
    """No instance type of a new claim meets labels, room and offerings at once."""
    rows = within & template.fit.holding(one.requests)
    survivors = rows & state.rows
    if survivors:
        unmet = state.unmet(survivors)
        facts = {key: f"{found} of {wanted}" for key, wanted, found in unmet}
        return Refusal(Because.MIN_VALUES, template.name, "", "", {"keys": " ".join(sorted(facts)), **facts})
    suiting = within & template.start.rows
    refusal = why_no_rows(state, suiting, rows & suiting)
    facts = {**refusal.facts, "requirements": text(state.requirements), "resources": _resources(template, one, suiting)}
    if one.requests.get("cpu", 0) >= _PROBABLY_MILLI:
        facts["cpu-typo"] = "true"
    return Refusal(refusal.because, refusal.where, refusal.wanted, refusal.found, facts, refusal.curable)


def too_many_volumes(template: Template, one: PodClass) -> Refusal:
    """No instance type of the pool can have so many volumes attached."""
    columns = template.columns
    for driver, keys in one.drivers.items():
        if not template.rows & columns.attaching({driver: keys}):
            most = max(columns.rows[i].type.attach_limits[driver] for i in bits(template.rows))
            facts = {"driver": driver, "wanted": str(len(keys)), "most": str(most)}
            text = f"more volumes than any instance type can attach (driver={driver}, limit={most}, volumes={len(keys)})"
            return Refusal(Because.VOLUME_LIMIT, template.name, str(len(keys)), text, facts, curable=False)
    text = "no instance type can attach the volumes of all drivers"
    return Refusal(Because.VOLUME_LIMIT, template.name, "", text, {"driver": ",".join(one.drivers)}, curable=False)


def _resources(template: Template, one: PodClass, rows: int) -> str:
    """The pod's requests with what DaemonSets add, as Karpenter prints them: least and most where types differ."""
    added = [group.overhead for group in template.daemons if group.rows & rows and group.overhead] or [{}]
    names = sorted({name for overhead in added for name in overhead})
    least = {name: min(overhead.get(name, 0) for overhead in added) for name in names}
    most = {name: max(overhead.get(name, 0) for overhead in added) for name in names}
    if least == most:
        return _json(total_of((one.requests, least)))
    return f"min={_json(total_of((one.requests, least)))}, max={_json(total_of((one.requests, most)))}"


def _json(amounts: Resources) -> str:
    written = (f'"{name}":"{_shown(name, amount)}"' for name, amount in sorted(amounts.items()))
    return f"{{{','.join(written)}}}"


def _shown(name: str, amount: int) -> str:
    # How the pod wrote it is not kept; what is a multiple of 1Ki was probably written with a binary suffix.
    return show(amount, binary=name.startswith(_BINARY) and amount % (1024 * ONE) == 0)


def one_fits(template: Template, state: State, one: PodClass) -> bool:
    """Whether a new node could take one of the pods if the pool had no limits."""
    rows = template.rows & state.rows & template.fit.holding(one.requests) & (template.free_of(one.ports) if one.ports else -1)
    rows &= template.columns.attaching(one.drivers)
    return bool(rows) and not state.unmet(rows)
