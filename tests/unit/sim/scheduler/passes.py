"""One pass of the pretend scheduler over wire objects, without a cluster."""

from datetime import UTC, datetime

from kubewright.sim.apiserver.store import Store
from kubewright.sim.scheduler.judge import Pass
from kubewright.sim.scheduler.nodes import NodeState
from kubewright.sim.scheduler.pods import facts
from kubewright.sim.scheduler.storage import Storage
from kubewright.sim.view import View
from tests.unit.sim.builders import Item


class Fixed:
    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)


def a_pass(
    nodes: list[Item], standing: list[Item] = (), namespaces: dict[str, Item] | None = None, store: Store | None = None
) -> Pass:  # type: ignore[assignment]
    """`standing`: pods with spec.nodeName."""
    states = {n["metadata"]["name"]: NodeState(n) for n in nodes}
    for obj in standing:
        states[obj["spec"]["nodeName"]].add(facts(obj))
    view = View(store or Store(Fixed()))
    view.catch_up()
    return Pass(states, namespaces or {}, Storage(view), {}, lambda _: [])


def where(pod: Item, nodes: list[Item], standing: list[Item] = (), namespaces: dict[str, Item] | None = None) -> list[str]:  # type: ignore[assignment]
    """The nodes that take the pod."""
    judge, wanted = a_pass(nodes, standing, namespaces), facts(pod)
    feasible, _ = judge._feasible(judge._kind(wanted), wanted)
    return sorted(node.name for node in feasible)


def message(pod: Item, nodes: list[Item], standing: list[Item] = (), store: Store | None = None) -> str:  # type: ignore[assignment]
    verdict = a_pass(nodes, standing, store=store).judge(facts(pod))
    assert verdict.node is None
    return verdict.message
