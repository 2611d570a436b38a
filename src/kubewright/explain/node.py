"""Why a node is as it is, and why it stays: the choice that was made when it was bought, and what disruption thinks of it now."""

from collections.abc import Sequence

import msgspec

from kubewright.api import labels as names
from kubewright.api import quantity
from kubewright.api.core import Pod
from kubewright.api.karpenter import NodeClaim
from kubewright.api.meta import find_condition
from kubewright.disruption.decisions import Decisions
from kubewright.disruption.stays import Stay
from kubewright.explain.choice import Choice, Offer, choice
from kubewright.lifecycle import claims, orders, pods, state
from kubewright.solver.problem import Snapshot, SolverSettings, StateNode


class NodeStory(msgspec.Struct, frozen=True, rename="camel"):
    """All there is to say about one machine; as JSON by `as_json`."""

    name: str
    """Of the Node, or of the NodeClaim that has none yet."""
    status: str
    """What it is doing, in a few words."""
    pods: tuple[str, ...]
    """Pods on it that would need another home."""
    choice: Choice | None
    """None for a node that nobody bought."""
    waits: str = ""
    """What keeps it from being ready for pods, "" when nothing does."""
    stays: tuple[Stay, ...] = ()
    """Every reason why it is not disrupted now."""
    going: str = ""
    """The command that is about to end it, "" for none."""

    def as_json(self) -> bytes:
        return msgspec.json.encode(self, order="sorted")


def find(snapshot: Snapshot, name: str, *, claim: bool) -> StateNode | None:
    """The machine of that Node, or with `claim` of that NodeClaim."""
    for known in snapshot.nodes:
        if claim and known.claim is not None and known.claim.name == name:
            return known
        if not claim and known.node is not None and known.node.name == name:
            return known
    return None


def story(known: StateNode, snapshot: Snapshot, decisions: Decisions, settings: SolverSettings) -> NodeStory:
    """`decisions` are those of `disruption.decide` on the same snapshot."""
    name = state.name(known)
    pools = {p.node_pool.name: p for p in snapshot.pools}
    everybody: list[Pod] = [*snapshot.pods, *(p for n in snapshot.nodes for p in n.pods)]
    chosen = None
    if known.claim is not None:
        chosen = choice(known.claim, pools.get(known.claim.metadata.labels.get(names.NODEPOOL, "")), everybody, settings)
    going = next((str(c) for c in decisions.commands if any(one.name == name for one in c.candidates)), "")
    moving = tuple(p.key for p in known.pods if pods.is_reschedulable(p))
    waits = _waits(known.claim, known) if known.claim is not None else ""
    return NodeStory(name, _status(known), moving, chosen, waits, decisions.stays.get(name, ()), going)


def unlaunched(claim: NodeClaim, snapshot: Snapshot, settings: SolverSettings) -> NodeStory:
    """Of a NodeClaim without a machine: what it asks for, and what came of that so far."""
    pools = {p.node_pool.name: p for p in snapshot.pools}
    chosen = choice(claim, pools.get(claim.metadata.labels.get(names.NODEPOOL, "")), snapshot.pods, settings)
    return NodeStory(claim.name, "it has no machine yet", (), chosen, _waits(claim, None))


def _status(known: StateNode) -> str:
    order = orders.order_of(known.claim) if known.claim is not None else None
    if known.claim is not None and known.claim.metadata.deletion_timestamp is not None:
        return "it is being ended"
    if order is not None:
        return f"it is to go ({order.reason}), {'once its replacement is ready' if order.replacements else 'now'}"
    if known.node is None:
        return "its machine has not joined yet"
    if not state.is_initialized(known):
        return "it has joined and is not initialized yet"
    return "it runs"


def _waits(claim: NodeClaim, known: StateNode | None) -> str:
    """The first condition on its way that does not hold; of devices that are missing, how many, and who could bring them."""
    for kind in (claims.LAUNCHED, claims.REGISTERED, claims.INITIALIZED):
        if claims.is_set(claim, kind):
            continue
        found = find_condition(claim.status.conditions, kind)
        said = ": ".join(filter(None, (found.reason, found.message))) if found is not None else ""
        devices = _missing(claim, known) if kind == claims.INITIALIZED and known is not None else ""
        return f"{kind} is not true yet{f' ({said})' if said else ''}{devices}"
    return ""


def _missing(claim: NodeClaim, known: StateNode) -> str:
    node = known.node
    if node is None:
        return ""
    asked = sorted(claim.spec.resources.requests.items())
    has = node.status.allocatable
    short = [(name, want) for name, want in asked if quantity.parse(want) and not quantity.parse(has.get(name, 0))]
    if not short:
        return ""
    listed = ", ".join(f"{name}: wants {want}, has {has.get(name, 0)}" for name, want in short)
    daemons = ", ".join(p.key for p in known.pods if pods.is_daemon(p)) or "none"
    return f"; {listed}; devices are registered by a device plugin's pod, and the DaemonSets' pods on the node are: {daemons}"


def text(one: NodeStory) -> str:
    lines = [f"Node {one.name}: {one.status}; {_count(len(one.pods), 'pod')} would need another home."]
    if one.waits:
        lines.append(f"  {one.waits}.")
    if one.choice is None:
        lines.append("  No NodeClaim belongs to it: kubewright neither bought it nor will remove it.")
    else:
        lines += _bought(one.choice)
    if one.going:
        lines += ["", "It is about to go:", f"  {one.going}"]
    if one.stays:
        lines += ["", "Why it stays:", *(f"  - {s.text}{_facts(s)}" for s in one.stays)]
    return "\n".join(lines)


def _bought(one: Choice) -> list[str]:
    lines = []
    if one.instance_type:
        price = f"${one.usd_per_hour:.4f}/h" if one.usd_per_hour else "at a price nobody names now"
        lines.append(f"  {one.instance_type} in {one.zone}, {one.capacity_type}, {price}; NodeClaim {one.node_claim}")
    told = one.bought_for
    if one.replaces:
        lines.append(f"  Bought to replace nodes of the disruption {one.replaces}.")
    if told.count:
        more = f" and {told.count - len(told.pods)} more" if told.count > len(told.pods) else ""
        planned = f", planned at ${told.usd_per_hour:.4f}/h" if told.usd_per_hour else ""
        lines.append(f"  Bought for {_count(told.count, 'pod')}{planned}: {', '.join(told.pods)}{more}.")
    if one.steps:
        lines += ["", f"Why this type: NodePool {one.node_pool} offers {one.types} instance types."]
        lines += [f"  {s.who}, {s.what}: removes {s.removed}, leaves {s.left}" for s in one.steps]
    if one.why_zone:
        lines += ["", f"Why this zone: {one.why_zone}.", f"Why this capacity type: {one.why_capacity_type}."]
    if one.offers:
        lines += ["", f"The cheapest of what was left ({one.for_sale} can be bought now):"]
        lines += [f"  {_mark(o, one)} {o}" for o in one.offers]
        if one.rank:
            lines.append(f"  This machine is number {one.rank} of {one.for_sale} by price.")
        if one.runner_up is not None:
            lines.append(f"  Runner-up: {one.runner_up}.")
    return [*lines, "", one.picked]


def _mark(offer: Offer, one: Choice) -> str:
    own = (offer.instance_type, offer.zone, offer.capacity_type) == (one.instance_type, one.zone, one.capacity_type)
    return "*" if own else "-"


def _facts(stay: Stay) -> str:
    """What the text does not say of pod and PDB."""
    shown = [
        f"{key} {stay.facts[key]}" for key in ("pod", "never", "due") if key in stay.facts and stay.facts[key] not in stay.text
    ]
    return f" ({', '.join(shown)})" if shown else ""


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"


def names_of(snapshot: Snapshot) -> Sequence[str]:
    """Every Node there is, sorted."""
    return sorted(n.node.name for n in snapshot.nodes if n.node is not None)
