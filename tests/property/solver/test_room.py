"""Passing over full nodes by bisection leaves out no node that has room."""

from hypothesis import given
from hypothesis import strategies as st

from kubewright.api.core import Node, NodeStatus
from kubewright.api.meta import ObjectMeta
from kubewright.solver.nodes import ExistingNode, NodeTable, RequestCache
from kubewright.solver.problem import StateNode

AMOUNTS = st.integers(0, 6)


def table(sizes: list[tuple[int, int]]) -> NodeTable:
    nodes = []
    for i, (cpu, memory) in enumerate(sizes):
        amounts: dict[str, str | int] = {"cpu": str(cpu), "memory": str(memory)}
        node = Node(metadata=ObjectMeta(name=f"n{i}"), status=NodeStatus(capacity=amounts, allocatable=amounts))
        nodes.append(ExistingNode(StateNode(node, None), {}, RequestCache()))
    return NodeTable(nodes)


@given(
    st.lists(st.tuples(AMOUNTS, AMOUNTS), min_size=1, max_size=20), st.lists(st.tuples(AMOUNTS, AMOUNTS, AMOUNTS), max_size=30)
)
def test_every_node_with_room_is_among_those_that_may_have_it(
    sizes: list[tuple[int, int]], asked: list[tuple[int, int, int]]
) -> None:
    nodes = table(sizes)
    for cpu, memory, choice in asked:
        requests = (("cpu", cpu * 10**9), ("memory", memory * 10**9))
        with_room = [n.index for n in nodes.nodes if all(n.free.get(name, 0) >= amount for name, amount in requests)]
        may = nodes.perhaps_roomy(requests)
        assert all(may >> i & 1 for i in with_room)
        if with_room:
            nodes.take(with_room[choice % len(with_room)], requests, 1)
