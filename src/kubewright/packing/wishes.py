"""What people want of plans besides a low price."""

from collections import Counter
from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from kubewright.api.quantity import ONE
from kubewright.settings import Settings
from kubewright.solver.classes import PodClass
from kubewright.solver.problem import Plan, Problem
from kubewright.solver.running import Running, controller_of


class Cap(NamedTuple):
    workload: str
    most: int
    """Pods of the workload that one new node may take."""


class Wishes(NamedTuple):
    node_usd: float = 0.0
    """What a node costs an hour beyond its price: licences, agents."""
    most_cpu: int = 0
    """Largest machine, in billionths of a cpu, that is bought for pods that a smaller one takes; 0: any."""
    share: float = 1.0
    """Largest share of a workload's pods on one new node."""
    nodes: str = ""
    """"fewer" or "more": what to choose among plans whose cost is within `within`; "": the cheapest."""
    within: float = 0.0
    """Share of the best cost."""

    def caps(self, classes: Sequence[PodClass], running: Running) -> dict[int, Cap]:
        """By index of a class; classes of workloads that may be on one node are left out.

        A workload is what one controller owns, its pods that run included; pods without a controller are none.
        """
        if self.share >= 1:
            return {}
        sizes: dict[str, int] = {}
        for one in classes:
            if owner := controller_of(one.pods[0]):
                sizes[owner] = sizes.get(owner, 0) + len(one.pods)
        owned = running.owned()
        for owner in sizes:
            sizes[owner] += owned.get(owner, 0)
        found: dict[int, Cap] = {}
        for one in classes:
            owner = controller_of(one.pods[0])
            size = sizes.get(owner, 0)
            if size > 1 and (most := max(1, ceil(self.share * size))) < size:
                found[one.index] = Cap(owner, most)
        return found

    def kept_by(self, plan: Plan, problem: Problem) -> bool:
        """Whether no new node of the plan is larger, or holds more of a workload, than is wished for."""
        types = {(p.node_pool.name, t.name): t for p in problem.pools for t in p.instance_types}
        owners = {pod.key: owner for pod in problem.pods if (owner := controller_of(pod))} if self.share < 1 else {}
        sizes = Counter(owners.values())
        for claim in plan.claims:
            cpu = types[claim.node_pool, claim.instance_types[0]].capacity.get("cpu", 0)
            here = Counter(owners[key] for key in claim.pods if key in owners)
            if (self.most_cpu and cpu > self.most_cpu) or any(n > ceil(self.share * sizes[o]) for o, n in here.items()):
                return False
        return True


NONE = Wishes()


def of(settings: Settings) -> Wishes:
    return Wishes(
        settings.packing_node_usd,
        settings.packing_node_cpu * ONE,
        settings.packing_workload_share,
        settings.packing_nodes.value,
        settings.packing_nodes_within,
    )
