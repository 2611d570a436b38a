"""Why a machine is of this type, in this zone, of this capacity type: what it was bought for, what was left, and at what prices.

Pure: from the NodeClaim, which says what was asked of the cloud, and the NodePool's catalogue as it is now.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from kubewright.api import labels as names
from kubewright.api.core import Pod
from kubewright.api.karpenter import NodeClaim
from kubewright.api.quantity import parse_map
from kubewright.catalogue.columns import bits, table
from kubewright.catalogue.types import InstanceType
from kubewright.explain.constraints import amount_text
from kubewright.explain.narrowing import Funnel, Step
from kubewright.lifecycle import bought, claims, orders
from kubewright.scheduling.requirement import Requirement
from kubewright.scheduling.requirements import compatible, of_expressions, of_pod
from kubewright.scheduling.resources import PODS
from kubewright.solver.problem import Pool, SolverSettings
from kubewright.solver.templates import Template

MOST_OFFERS = 5
_CHOSEN_BY_US = (names.INSTANCE_TYPE, names.CAPACITY_TYPE)
"""Requirements on a NodeClaim that the plan writes: the list of types, and what was for sale."""


class Offer(msgspec.Struct, frozen=True, rename="camel"):
    """One way to buy a machine that would have done."""

    instance_type: str
    zone: str
    capacity_type: str
    usd_per_hour: float
    why_not: str = ""
    """Why it cannot be bought now; "" when it can."""

    def __str__(self) -> str:
        where = f"{self.instance_type} in {self.zone}, {self.capacity_type}, ${self.usd_per_hour:.4f}/h"
        return f"{where} (not for sale: {self.why_not})" if self.why_not else where


class Choice(msgspec.Struct, frozen=True, rename="camel"):
    node_claim: str
    node_pool: str
    instance_type: str
    """"" until the cloud has answered; so are zone and capacity type."""
    zone: str
    capacity_type: str
    usd_per_hour: float
    """By today's prices; 0 where nobody names one."""
    bought_for: bought.BoughtFor
    replaces: str
    """Id of the disruption whose replacement it is, "" for none."""
    types: int
    """Instance types of the NodePool's NodeClass."""
    steps: tuple[Step, ...]
    """What each constraint removed of them."""
    why_zone: str
    why_capacity_type: str
    offers: tuple[Offer, ...]
    """The cheapest that met all of it, by today's prices, for sale or not."""
    for_sale: int
    """How many offers met all of it and can be bought now."""
    rank: int
    """The place of this machine among those, 1 for the cheapest and what costs as much; 0 when its offer is not among them."""
    runner_up: Offer | None
    """The cheapest other one that can be bought now."""
    picked: str
    """What the cloud took of the list, and why it may differ from the first."""


def choice(claim: NodeClaim, pool: Pool | None, known_pods: Collection[Pod], settings: SolverSettings) -> Choice:
    """`pool` is the claim's NodePool, None if it is gone; `known_pods` are those whose wishes can be looked up."""
    carried = claim.metadata.labels
    what = carried.get(names.INSTANCE_TYPE, ""), carried.get(names.ZONE, ""), carried.get(names.CAPACITY_TYPE, "")
    told = bought.of(claim) or bought.BoughtFor()
    replaces = claim.metadata.annotations.get(orders.REPLACES, "")
    aliases = {**names.ALIASES, **settings.label_aliases}
    asked = of_expressions(claim.spec.requirements, aliases)
    if pool is None or not pool.instance_types:
        why = "its NodePool is gone" if pool is None else pool.problem or "its NodePool offers no instance types now"
        text = f"Nothing more can be said: {why}."
        return Choice(claim.name, claims.pool_of(claim), *what, 0.0, told, replaces, 0, (), "", "", (), 0, 0, None, text)
    well_known = names.WELL_KNOWN | settings.well_known_labels
    wanting = _wanting(claim, known_pods, aliases)
    funnel = _funnel(claim, pool, asked, wanting, aliases, well_known)
    left = {funnel.template.columns.rows[i].type.name for i in bits(funnel.rows)}
    offers = sorted(_offers((t for t in pool.instance_types if t.name in left), asked, well_known), key=_order)
    sold = [o for o in offers if not o.why_not]
    own = next((o for o in offers if (o.instance_type, o.zone, o.capacity_type) == what), None)
    return Choice(
        claim.name,
        claims.pool_of(claim),
        *what,
        own.usd_per_hour if own is not None else _price(pool.instance_types, what),
        told,
        replaces,
        funnel.count(funnel.template.columns.every),
        tuple(funnel.steps),
        _why(names.ZONE, asked, funnel.template, wanting),
        _why(names.CAPACITY_TYPE, asked, funnel.template, wanting),
        tuple(offers[:MOST_OFFERS]),
        len(sold),
        sum(1 for o in sold if o.usd_per_hour < own.usd_per_hour) + 1 if own is not None and own in sold else 0,
        next((o for o in sold if o != own), None),
        _picked(claim, what, own, offers),
    )


def _funnel(
    claim: NodeClaim,
    pool: Pool,
    asked: Mapping[str, Requirement],
    wanting: Mapping[str, str],
    aliases: Mapping[str, str],
    well_known: frozenset[str],
) -> Funnel:
    template = Template(pool.node_pool, table(pool.instance_types, well_known), (), aliases, {})
    columns = template.columns
    funnel = Funnel(template)

    def through(who: str, one: Requirement, text: str = "") -> None:
        rows = columns.matching(one) & columns.offered(columns.open_kinds({one.key: one}))
        funnel.through(who, text or f"requirement {one}", rows)

    for _, one in sorted(template.written.items()):
        through(f"NodePool {template.name}", one)
    for key, one in sorted(asked.items()):
        if key not in _CHOSEN_BY_US and one.identity != (template.written[key].identity if key in template.written else None):
            through(wanting.get(key, "the pods it was bought for"), one)
    requests = parse_map(claim.spec.resources.requests)
    for resource, amount in sorted(requests.items()):
        if amount and resource != PODS:
            text = f"request {resource} {amount_text(resource, amount)}"
            funnel.through("pods and DaemonSets", text, columns.fit.ladder(resource).at_least(amount))
    if names.CAPACITY_TYPE in asked:
        one = asked[names.CAPACITY_TYPE]
        if one.identity != (template.written[one.key].identity if one.key in template.written else None):
            through("what was for sale", one)
    if names.INSTANCE_TYPE in asked:
        one = asked[names.INSTANCE_TYPE]
        through("kubewright", one, f"the list of {len(one.values)} types the cloud was asked for")
    return funnel


def _why(key: str, asked: Mapping[str, Requirement], template: Template, wanting: Mapping[str, str]) -> str:
    """Who left only this zone or capacity type, or that it was left open."""
    own = template.written.get(key)
    one = asked.get(key, own)
    if one is None:
        return "left open, so the cloud chose it with the type"
    if own is not None and one.identity == own.identity:
        return f"NodePool {template.name} allows {one}"
    who = wanting.get(key)
    if key == names.CAPACITY_TYPE and who is None:
        return f"only {', '.join(sorted(one.values)) or one} was for sale" if len(one.values) == 1 else f"for sale was {one}"
    return f"{who or 'the plan, for the pods it was bought for,'} asked for {one}"


def _wanting(claim: NodeClaim, known_pods: Collection[Pod], aliases: Mapping[str, str]) -> dict[str, str]:
    """Label key → the pods that ask for it, of those it was bought for or that run there."""
    told = bought.of(claim)
    named = set(told.pods) if told is not None else set()
    here = claim.status.node_name
    asking: dict[str, list[str]] = {}
    for pod in sorted(known_pods, key=lambda p: p.key):
        if pod.key in named or (here and pod.spec.node_name == here):
            keys = {*of_pod(pod.spec, preferences=False, aliases=aliases)}
            keys |= {c.topology_key for c in pod.spec.topology_spread_constraints}
            affinity = pod.spec.affinity
            for part in (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity is not None else ():
                keys |= {t.topology_key for t in part.required} if part is not None else set()
            for key in keys:
                asking.setdefault(key, []).append(pod.key)
    return {k: f"Pod {v[0]}" + (f" and {len(v) - 1} more" if len(v) > 1 else "") for k, v in asking.items()}


def _offers(types: Iterable[InstanceType], asked: Mapping[str, Requirement], well_known: frozenset[str]) -> Iterator[Offer]:
    for kind in types:
        for offering in kind.offerings:
            if compatible(asked, offering.requirements, well_known) is None:
                why_not = "" if offering.available else offering.unavailable_because or "not at present"
                yield Offer(kind.name, offering.zone, offering.capacity_type, offering.price, why_not)


def _order(one: Offer) -> tuple[float, str, str, str]:
    return (one.usd_per_hour, one.instance_type, one.zone, one.capacity_type)


def _price(types: Iterable[InstanceType], what: tuple[str, str, str]) -> float:
    return next((o.price for t in types if t.name == what[0] for o in t.offerings if (o.zone, o.capacity_type) == what[1:]), 0.0)


def _picked(claim: NodeClaim, what: tuple[str, str, str], own: Offer | None, offers: Collection[Offer]) -> str:
    if not what[0]:
        launched = next((c for c in claim.status.conditions if c.type == "Launched"), None)
        more = f" ({launched.reason}: {launched.message})" if launched is not None and launched.reason else ""
        return f"The cloud has not answered yet{more}."
    if own is None:
        return "What the cloud took is not among what the NodePool offers now: offers or the NodePool have changed since."
    cheaper = [o for o in offers if _order(o) < _order(own) and o.usd_per_hour < own.usd_per_hour]
    sold = [o for o in cheaper if not o.why_not]
    if not cheaper:
        return "The cloud took the cheapest."
    dry = (
        f" {len(cheaper) - len(sold)} cheaper cannot be bought now, the first of them: {cheaper[0].why_not}."
        if len(sold) < len(cheaper)
        else ""
    )
    if not sold:
        return f"The cloud took the cheapest that can be bought.{dry}"
    if own.capacity_type == names.SPOT:
        why = "of spot machines it takes those that are least likely to be called back at a low price, not the cheapest"
    elif own.capacity_type == names.RESERVED:
        why = "it is paid for already"
    else:
        why = "it takes the cheapest that it has; these were out when it was bought, or prices have changed since"
    return f"The cloud took a dearer one than {len(sold)} that can be bought now, from {sold[0]}: {why}.{dry}"
