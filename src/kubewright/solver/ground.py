"""What the passes over one Problem have in common: the nodes as they stand before anything is put there, and who runs.

Looking through a large cluster costs far more than a pass does. A Ground is made once for all passes of a plan, and each pass
takes tables of its own from it.
"""

from kubewright.api import labels as names
from kubewright.scheduling.requirements import of_pod
from kubewright.scheduling.volumes import Storage
from kubewright.solver.daemons import representatives
from kubewright.solver.nodes import ExistingNode, NodeTable, RequestCache, capacity_of, labels_of
from kubewright.solver.problem import Problem
from kubewright.solver.running import Running


class Ground:
    """Everything that follows from a Problem's nodes, pods and surroundings; nothing of it changes while passes go on."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.aliases = {**names.ALIASES, **problem.settings.label_aliases}
        around = problem.surroundings
        self.storage = Storage(
            {c.key: c for c in around.claims},
            {v.name: v for v in around.volumes},
            {s.name: s for s in around.storage_classes},
            self.aliases,
        )
        self.cache = RequestCache()
        self.daemons = representatives(problem)
        self.used = self._used()
        """NodePool → capacity of its nodes together, `nodes` included."""
        self._table = self._first_table()

    def is_of(self, problem: Problem) -> bool:
        """Whether this is the ground of that problem: only what concerns buying may be another."""
        mine = self._problem
        return problem is mine or (
            problem.nodes is mine.nodes
            and problem.pods is mine.pods
            and problem.pools is mine.pools
            and problem.leaving is mine.leaving
            and problem.surroundings is mine.surroundings
            and problem.settings.label_aliases == mine.settings.label_aliases
            and problem.settings.ignore_dra_requests == mine.settings.ignore_dra_requests
        )

    def table(self) -> NodeTable:
        """A table of the nodes for one pass, which fills it."""
        return self._table.twin()

    def _used(self) -> dict[str, dict[str, int]]:
        used: dict[str, dict[str, int]] = {}
        for place in self._problem.nodes:
            owner = labels_of(place).get(names.NODEPOOL)
            if owner:
                total = used.setdefault(owner, {})
                for name, amount in capacity_of(place).items():
                    total[name] = total.get(name, 0) + amount
        return used

    def _first_table(self) -> NodeTable:
        problem = self._problem
        promised = {t.name: t.attach_limits for p in problem.pools for t in p.instance_types if t.attach_limits}
        csi = {c.name: c for c in problem.surroundings.csi_nodes}
        daemons = [(pod, of_pod(pod.spec, preferences=False, aliases=self.aliases), self.cache.of(pod)) for pod in self.daemons]
        nodes = [ExistingNode(place, self.aliases, self.cache) for place in problem.nodes]
        for node in nodes:
            node.expect(daemons, self.cache)
            host = node.source.node.name if node.source.node is not None else node.name
            node.count_volumes(self.storage, csi.get(host), promised.get(node.labels.get(names.INSTANCE_TYPE, ""), {}))
        table = NodeTable(nodes)
        scheduled = {pod.metadata.uid or pod.key for pod in problem.pods}
        table.running = Running(table.nodes, problem.leaving, scheduled)
        return table
