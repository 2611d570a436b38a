"""The cluster as a board on which nodes are taken away and put back: one simulation, changed in place, with undo.

Built once for a search. Every placement goes through the solver's own checks (labels, taints, room, ports, volumes, topology), on
nodes that are there; what finds no place is handed back as counts, for `bins` to price. Its places are numbered so that the
first one that can take a pod is the one that is least likely to be taken away later.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kubewright.api.labels import HOSTNAME
from kubewright.api.quantity import Resources
from kubewright.catalogue.columns import Ladder
from kubewright.disruption.candidates import Candidate
from kubewright.disruption.simulation import Simulation
from kubewright.lifecycle import state
from kubewright.solver.build import Parts
from kubewright.solver.classes import Ask, PodClass
from kubewright.solver.engine import NO_RULES, Engine, Leeway, Progress
from kubewright.solver.nodes import ExistingNode, NodeTable
from kubewright.solver.problem import Problem

Content = dict[int, int]
"""Index of a pod class → how many pods of it."""


class Places(NodeTable):
    """Nodes of a board; some are taken away."""

    def __init__(self, nodes: Sequence[ExistingNode], ranks: Mapping[str, int]) -> None:
        super().__init__(nodes, lambda n: (ranks.get(state.provider_id(n.source), -1), n.name))
        self.gone = 0
        """Mask of the nodes that are taken away."""
        self._known: dict[str, Ladder] = {}
        self._changed = 0

    def allowed(self, ask: Ask) -> int:
        return super().allowed(ask) & ~self.gone

    def perhaps_roomy(self, requests: Iterable[tuple[str, int]]) -> int:
        """As there was room when `refresh` was last called: during a trial room only shrinks, so nothing is missed."""
        mask = self.every
        for name, amount in requests:
            if amount:
                ladder = self._known.get(name)
                if ladder is None:
                    free = ((node.free.get(name, 0), i) for i, node in enumerate(self.nodes))
                    ladder = self._known[name] = Ladder(free)
                mask &= ladder.at_least(amount)
        return mask

    def settled(self, changes: int) -> None:
        """Between trials: `changes` places have less room for good."""
        self._changed += changes
        if self._changed > len(self.nodes) >> 4:
            self.refresh()

    def refresh(self) -> None:
        self._known.clear()
        self._changed = 0


class Ranked(Parts):
    """The parts of a pass over all nodes, in the board's order."""

    def __init__(self, problem: Problem, ranks: Mapping[str, int]) -> None:
        self._ranks = ranks
        super().__init__(problem)

    def _nodes(self) -> NodeTable:
        return Places(super()._nodes().nodes, self._ranks)


class Move(Progress):
    """Some pods of a class, on their way."""

    __slots__ = ("count",)

    def __init__(self, one: PodClass, count: int) -> None:
        super().__init__(one)
        self.count = count

    @property
    def left(self) -> int:
        return self.count - self.done


class Put(NamedTuple):
    """One thing that was done to a place, for undoing it."""

    place: int
    one: PodClass | None
    """None where the place was closed."""
    pods: int
    attached: Mapping[str, frozenset[str]]
    """What was attached before, of the drivers concerned."""


class Board(Engine):
    """See the module. `going` are the nodes that may be taken away, those to be tried first first."""

    def __init__(self, simulation: Simulation, going: Sequence[Candidate]) -> None:
        moving = sorted((p for c in going for p in c.movers), key=lambda p: p.key)
        ranks = {c.provider_id: len(going) - i for i, c in enumerate(going)}
        plain = simulation.problem(())
        problem = Problem(
            plain.now, tuple(moving), simulation.nodes, plain.pools, plain.surroundings, plain.settings, simulation.leaving
        )
        parts = Ranked(problem, ranks)
        assert isinstance(parts.table, Places)
        super().__init__(parts.table, parts.templates, None, present=parts.topology.present)
        self.places = parts.table
        self.classes = parts.classes
        self.steps = 0
        """Placements tried."""
        self.cost = len(simulation.nodes) + len(moving)
        """What making it, or asking the exact scheduler once, costs in steps."""
        self._log: list[Put] = []
        by_size = sorted(self.classes, key=lambda one: (*(-n for n in one.size), one.oldest))
        self._turn = {one.index: at for at, one in enumerate(by_size)}
        self.at = {state.provider_id(n.source): n.index for n in self.places.nodes}
        self.content: list[Content] = [{} for _ in self.places.nodes]
        """What each place holds of what can move, as things stand on the board."""
        self._count_movers(going)

    def _count_movers(self, going: Sequence[Candidate]) -> None:
        """Count the movers where they are: for the parts they are pods without a place."""
        of_pod = {pod.key: one for one in self.classes for pod in one.pods}
        for candidate in going:
            place = self.at[candidate.provider_id]
            content = self.content[place]
            for pod in candidate.movers:
                one = of_pod[pod.key]
                content[one.index] = content.get(one.index, 0) + 1
            for index, pods in content.items():
                self._count(self.classes[index], place, pods)

    # --- taking away ----------------------------------------------------------------------------------------------------

    def mark(self) -> int:
        """Where things stand, for `undo`."""
        return len(self._log)

    def take_away(self, place: int) -> Content:
        """Close a place and put its movers elsewhere; what found no place, by class."""
        self.places.gone |= 1 << place
        content = dict(self.content[place])
        for index, pods in content.items():
            self._count(self.classes[index], place, -pods)
        self._log.append(Put(place, None, 0, {}))
        left: Content = {}
        for index in sorted(content, key=self._turn.__getitem__):
            missing = self.put(self.classes[index], content[index])
            if missing:
                left[index] = missing
        return left

    def put(self, one: PodClass, pods: int) -> int:
        """Put pods of a class on places that are there, in the written form or a relaxed one; how many found none."""
        if one.refusal is not None:
            return pods
        move = Move(one, pods)
        first = 0
        forgetful = any(v.rules is not None and v.rules.any for v in one.variants)
        while move.left:
            for index in range(first, len(one.variants)):
                variant = one.variants[index]
                rules = variant.rules or NO_RULES
                leeway = Leeway(rules)
                self.steps += 1
                if leeway.limits and leeway.nowhere:
                    placed = 0
                else:
                    most = 1 if rules.one_at_a_time or one.ports else move.left
                    placed = self._on_nodes(move, variant, rules, leeway, most)
                if placed:
                    move.done += placed
                    break
                if not forgetful:
                    first = index + 1
            else:
                break
        return move.left

    def undo(self, mark: int) -> None:
        """Put everything back as it was at `mark`."""
        while len(self._log) > mark:
            place, one, pods, attached = self._log.pop()
            if one is None:
                self.places.gone &= ~(1 << place)
                for index, there in self.content[place].items():
                    self._count(self.classes[index], place, there)
                continue
            node = self.places.nodes[place]
            for name, amount in one.requests.items():
                node.free[name] = node.free.get(name, 0) + amount * pods
            if one.ports:
                del node.ports[-len(one.ports) :]
            for driver, keys in attached.items():
                node.attached[driver] = set(keys)
            content = self.content[place]
            content[one.index] -= pods
            if not content[one.index]:
                del content[one.index]
            self._count(one, place, -pods)

    def touched(self) -> set[int]:
        """Places on which something was put since `keep` was last called."""
        return {put.place for put in self._log if put.one is not None}

    def keep(self) -> None:
        """What was done is done: nothing before this is undone any more."""
        self.places.settled(len({put.place for put in self._log}))
        self._log.clear()

    # --- the solver's hooks -----------------------------------------------------------------------------------------------

    def _settle_on_node(self, progress: Progress, index: int, pods: int) -> None:
        one = progress.one
        node = self.places.nodes[index]
        before = {driver: frozenset(node.attached.get(driver, ())) for driver in one.drivers}
        for name, amount in progress.requests:
            node.free[name] = node.free.get(name, 0) - amount * pods
        if one.ports:
            node.ports += one.ports
        for driver, keys in one.drivers.items():
            node.attached.setdefault(driver, set()).update(keys)
        content = self.content[index]
        content[one.index] = content.get(one.index, 0) + pods
        self._count(one, index, pods)
        self._log.append(Put(index, one, pods, before))

    def _count(self, one: PodClass, place: int, pods: int) -> None:
        """Add `pods` (or take them off) where they count in topology."""
        labels = self.places.nodes[place].labels
        for group in one.counted_in:
            if not group.nodes_passing >> place & 1:
                continue
            if group.term.key == HOSTNAME:
                if pods > 0:
                    group.nodes.add(place, pods)
                elif pods < 0:
                    group.nodes.remove(place, -pods)
            elif (domain := labels.get(group.term.key)) is not None:
                group.counts[domain] = group.counts.get(domain, 0) + pods

    def requests_of(self, content: Content) -> Resources:
        """All its pods' requests together."""
        total: dict[str, int] = {}
        for index, pods in content.items():
            for name, amount in self.classes[index].requests.items():
                total[name] = total.get(name, 0) + amount * pods
        return total
