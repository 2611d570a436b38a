"""A cheaper plan than first fit's, made by the same checks.

A pass like the solver's with two differences: a claim is not filled further than some machine worth its price can hold, and pods
that nothing but size, labels and taints binds are placed last, by dual prices, onto the cheapest mix of machines. Room on nodes
that exist or are on their way comes first, as in first fit. Every claim is opened and filled through `Engine`, so whatever holds
for first fit's plans holds for these. Where reserved capacity is on sale everything is left as first fit places it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kubewright.packing.fill import Load, Search
from kubewright.packing.knapsack import Market
from kubewright.packing.machines import Item, Machine, Vectors, is_bound, is_movable, items_of, machines_of
from kubewright.packing.prices import Mixes, resource_prices
from kubewright.scheduling.refusal import Refusal
from kubewright.scheduling.resources import NODES
from kubewright.solver.claims import OpenClaim
from kubewright.solver.classes import PodClass, by_size
from kubewright.solver.engine import NO_RULES, Engine, Leeway, Progress
from kubewright.solver.problem import Plan, Problem
from kubewright.solver.solve import attempt
from kubewright.solver.templates import State, Template

_TOLERANCES = (0.02, 0.1, 0.4)
"""How far above the best price per unit of room a machine may lie and still be one to fill claims for."""


def improved(problem: Problem, first: Plan, steps: int) -> Plan:
    """The cheapest plan found within about `steps`, `first` itself if none is cheaper; leaves out no pod that `first` places."""
    best = first
    if not first.claims or steps <= 0:
        return best
    for tolerance in _TOLERANCES:
        engine: list[Packer] = []
        plan = attempt(problem, by_size, None, make=_maker(tolerance, steps, engine))
        if plan is not None and plan.unplaced.keys() <= first.unplaced.keys() and plan.usd_per_hour < best.usd_per_hour - 1e-9:
            best = plan
        if engine and engine[0].settled:
            break
    return best


def _maker(tolerance: float, steps: int, made: list["Packer"]) -> Callable[..., Engine]:
    def make(*args: Any, **more: Any) -> Engine:
        made.append(Packer(*args, tolerance=tolerance, steps=steps, **more))
        return made[-1]

    return make


class SizedClaim(OpenClaim):
    """An open claim that is filled only as far as one of the `target` rows can hold it. Its other types stay."""

    __slots__ = ("target",)

    def __init__(self, index: int, name: str, state: State, target: int) -> None:
        super().__init__(index, name, state)
        self.target = target

    def rows_with(self, state: State, requests: Sequence[tuple[str, int]], pods: int, within: int) -> int:
        rows = super().rows_with(state, requests, pods, within)
        return rows if rows & self.target else 0


class Packer(Engine):
    """A pass that packs; see the module."""

    def __init__(self, *args: Any, tolerance: float, steps: int, **more: Any) -> None:
        super().__init__(*args, **more)
        self.tolerance = tolerance
        self.steps = steps
        self.targets: dict[str, int] = {}
        """Template → rows to fill claims for."""
        self.settled = False
        """Whether another tolerance would change nothing."""
        self._aim = 0
        """The row that the next claim is opened for, as a mask; 0 for the template's `targets`."""
        self._target = -1

    def run(self, classes: Sequence[PodClass]) -> list[Progress]:
        everyone = [Progress(one) for one in classes]
        if self.reservations is not None:
            self.settled = True
            return super().run(classes)
        waiting = [p for p in everyone if p.one.refusal is None]
        movable = [p for p in waiting if is_movable(p.one)]
        self.settled = len(movable) == len(waiting)
        if not self.settled:
            self.steps //= len(_TOLERANCES)
        free = {id(p) for p in movable}
        self._find_targets(waiting)
        leeway = Leeway(NO_RULES)
        while waiting:
            before = sum(p.done for p in waiting)
            for progress in waiting:
                if id(progress) not in free:
                    self._place(progress)
                    continue
                while progress.left and (
                    placed := self._on_nodes(progress, progress.one.variants[0], NO_RULES, leeway, progress.left)
                ):
                    progress.done += placed
            if sum(p.done for p in waiting) == before:
                break
            waiting = [p for p in waiting if p.left and p.deferred is None and id(p) not in free and is_bound(p.one)]
        self._pack(movable)
        for progress in movable:
            if progress.left:
                self._place(progress)
        return [p for p in everyone if p.left]

    def new_claim(self, name: str, state: State) -> OpenClaim:
        return SizedClaim(len(self.claims), name, state, self._target)

    def _try_new(self, progress: Progress, state: State, wanted: int, within: int, template: Template) -> int | Refusal | None:
        columns = template.columns
        rows = within & state.rows
        if within & ~columns.plain and rows & columns.plain & template.fit.holding(progress.one.requests):
            # Exotic machines are for pods that nothing else suits, not for being cheap: the provider would not launch them.
            return None
        target = (self._aim or self.targets.get(template.name, 0)) & rows
        if self._aim and not target:
            return None
        self._target = target or -1
        if template.remaining and target:
            # A limit is charged for the largest type that a claim could become, so such a claim names none beyond its target.
            most = {name: columns.capacity(name).largest(target) for name in template.remaining if name != NODES}
            placed = super()._try_new(progress, state, wanted, within & columns.within(most), template)
            if placed is not None:
                return placed
        return super()._try_new(progress, state, wanted, within, template)

    def _find_targets(self, waiting: Sequence[Progress]) -> None:
        items = items_of([p.one for p in waiting])
        counts = [sum(len(one.pods) for one in item.classes) for item in items]
        if not items:
            return
        vectors = Vectors(items)
        machines = machines_of(self.templates, items, vectors)
        unit = resource_prices([vectors.of(item.requests) for item in items], counts, machines)
        for machine in machines:
            worth = sum(u * r for u, r in zip(unit, machine.room, strict=True))
            if machine.usd <= worth * (1 + self.tolerance):
                name = self.templates[machine.template].name
                self.targets[name] = self.targets.get(name, 0) | 1 << machine.row

    def _pack(self, movable: Sequence[Progress]) -> None:
        """Place what is left of `movable`: on claims that are open, then on new ones."""
        waiting = [p for p in movable if p.left]
        if not waiting:
            return
        of_class = {id(p.one): p for p in waiting}
        items = items_of([p.one for p in waiting])
        owners = [[of_class[id(one)] for one in item.classes] for item in items]
        vectors = Vectors(items)
        machines = machines_of(self.templates, items, vectors)
        counts = [sum(p.left for p in mine) for mine in owners]
        sizes = [vectors.of(item.requests) for item in items]
        used = 0
        if self.claims:
            mixes = Mixes(sizes, counts, machines)
            mixes.improve(self.steps // 4)
            used = mixes.used
            self._top_up(items, owners, vectors, Market(sizes, mixes.prices))
        for _ in self.templates:
            counts = [sum(p.left for p in mine) for mine in owners]
            live = self._at_home(machines, counts)
            if not live:
                break
            search = Search(live, sizes, counts, self.steps - used)
            loads = sorted(search.best(), key=lambda load: -load.machine.usd)
            used += search.used
            before = len(self.claims)
            for load in loads:
                self._carry_out(load, items, owners)
            if len(self.claims) == before:
                break

    def _at_home(self, machines: Sequence[Machine], counts: Sequence[int]) -> list[Machine]:
        """Machines that can still be bought, each for the items that no pool of greater weight can take."""
        affordable: dict[int, int] = {}
        for index, template in enumerate(self.templates):
            rows = template.affordable()
            affordable[index] = 0 if isinstance(rows, Refusal) else rows
        live = [m for m in machines if not m.reservation and affordable[m.template] >> m.row & 1]
        wanted = sum(1 << i for i, n in enumerate(counts) if n)
        ordinary = [0] * len(self.templates)
        for machine in live:
            if not machine.exotic:
                ordinary[machine.template] |= machine.allowed
        # Without pods that need one, exotic machines are not on offer.
        live = [m for m in live if not m.exotic or m.allowed & wanted & ~ordinary[m.template]]
        home: dict[int, int] = {}
        taken = 0
        for index in range(len(self.templates)):
            reach = 0
            for machine in live:
                if machine.template == index:
                    reach |= machine.allowed
            home[index] = reach & wanted & ~taken
            taken |= home[index]
        return [m._replace(allowed=m.allowed & home[m.template]) for m in live if m.allowed & home[m.template]]

    def _top_up(self, items: Sequence[Item], owners: Sequence[Sequence[Progress]], vectors: Vectors, market: Market) -> None:
        """Fill claims opened for other pods, each up to the size at which what is added is worth most beyond its price."""
        for claim in list(self.claims):
            best: tuple[float, int, Mapping[int, int]] | None = None
            allowed = 0
            counts = [sum(p.left for p in mine) for mine in owners]
            for i, item in enumerate(items):
                if counts[i] and isinstance(state := claim.state.with_ask(item.asks[0]), State) and state.rows & claim.rows:
                    allowed |= 1 << i
            if not allowed:
                continue
            columns, overhead = claim.template.columns, claim.template.daemons
            target = claim.target if isinstance(claim, SizedClaim) else -1
            for usd, row in columns.by_price(claim.state.kinds):
                if not (claim.rows & target) >> row & 1:
                    continue
                extra = next((g.overhead for g in overhead if g.rows >> row & 1), {})
                left = {
                    name: columns.rows[row].allocatable.get(name, 0) - extra.get(name, 0) - claim.requests.get(name, 0)
                    for name in vectors.resources
                }
                worth, mix = market.whole(vectors.of(left), allowed, counts)
                if best is None or usd - worth < best[0] - 1e-12:
                    best = (usd - worth, row, mix)
            if best is not None and isinstance(claim, SizedClaim):
                claim.target = 1 << best[1]
                for i, pods in sorted(best[2].items()):
                    self._add(claim, owners[i], pods)

    def _carry_out(self, load: Load, items: Sequence[Item], owners: Sequence[Sequence[Progress]]) -> None:
        """Open a claim for the load's machine and put its pods on it, as far as the solver's checks let them."""
        template = self.templates[load.machine.template]
        leeway = Leeway(NO_RULES)
        claim: OpenClaim | None = None
        self._aim = 1 << load.machine.row
        plain = template.rows & template.columns.plain
        # Pods that only an exotic machine takes come first: they are the reason for it.
        for i, pods in sorted(load.mix, key=lambda m: bool(plain & template.fit.holding(items[m[0]].requests))):
            left = pods
            if claim is None:
                for progress in owners[i]:
                    if not progress.left:
                        continue
                    wanted = min(left, progress.left)
                    placed = self.open(progress, progress.one.variants[0], NO_RULES, leeway, wanted, template)
                    if isinstance(placed, int):
                        progress.done += placed
                        left -= placed
                        claim = self.claims[-1]
                    break
            if claim is not None:
                self._add(claim, owners[i], left)
        self._aim = 0

    def _add(self, claim: OpenClaim, owners: Sequence[Progress], pods: int) -> None:
        for progress in owners:
            wanted = min(pods, progress.left)
            if wanted <= 0:
                continue
            state = claim.state.with_ask(progress.one.variants[0].asks[0])
            if isinstance(state, Refusal) or not state.rows:
                return
            placed = self._join(progress, claim, [state], wanted, claim.rows)
            progress.done += placed
            pods -= placed
