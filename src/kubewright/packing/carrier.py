"""An engine that can be told which machine the next claim is for, how far to fill it and with what."""

from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

from kubewright.catalogue.columns import NO_PRICE
from kubewright.packing.fill import Load
from kubewright.packing.machines import plain_rows
from kubewright.packing.parts import Part, Planned, pinned
from kubewright.packing.wishes import Cap, Wishes
from kubewright.scheduling.refusal import Refusal
from kubewright.scheduling.resources import NODES
from kubewright.solver.claims import OpenClaim
from kubewright.solver.classes import Ask, Variant
from kubewright.solver.engine import NO_RULES, Engine, Leeway, Progress
from kubewright.solver.templates import State, Template
from kubewright.solver.topology import Rules


class SizedClaim(OpenClaim):
    """An open claim that is filled only as far as one of the `target` rows can hold it. Its other types stay."""

    __slots__ = ("target",)

    def __init__(self, index: int, name: str, state: State, target: int) -> None:
        super().__init__(index, name, state)
        self.target = target

    def rows_with(self, state: State, requests: Sequence[tuple[str, int]], pods: int, within: int) -> int:
        rows = super().rows_with(state, requests, pods, within)
        return rows if rows & self.target else 0


class Dice(dict[str, int]):
    """A rank for every value: an order that has nothing to do with the values, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed

    def get(self, key: str, default: object = None) -> int:
        del default
        return crc32(f"{self.seed}/{key}".encode())


class Carrier(Engine):
    """Carries loads out through the engine's checks; what these refuse stays with its part."""

    def __init__(self, *args: Any, wishes: Wishes, **more: Any) -> None:
        super().__init__(*args, **more)
        self.wishes = wishes
        self.caps: Mapping[int, Cap] = {}
        """By index of a class."""
        self.taste = 0
        """Which domains are tried first where rules leave several: 0 the emptiest, 1 the cheapest, more: in other orders."""
        self.used = 0
        """Steps."""
        self.targets: dict[str, int] = {}
        """Template → rows to fill claims for."""
        self.untargeted: set[int] = set()
        """Classes whose claims the engine fills as it likes."""
        self.late: list[tuple[Part, int]] = []
        """Parts that go to nodes that stand, once the rules let them."""
        self._aim = 0
        """The row that the next claim is opened for, as a mask; 0 for the template's targets."""
        self._target = -1
        self._plain = {t.name: plain_rows(t, wishes.most_cpu) for t in self.templates}

    def leeway(self, rules: Rules) -> Leeway:
        """As the engine's, with the taste of this pass for domains that the rules leave open."""
        found = super().leeway(rules)
        if self.taste:
            found.ranks = {key: Dice(self.taste - 1) if self.taste > 1 else {} for key in (*found.ranks, *rules.pinned)}
        return found

    def _on_new(self, progress: Progress, variant: Variant, rules: Rules, leeway: Leeway, most: int) -> int:
        """As the engine, but of pools of the same weight the one that sells the cheapest machine for such a pod first."""
        written = self.templates
        self.templates = sorted(written, key=lambda t: (-(t.pool.spec.weight or 0), self._least_price(t, progress, variant)))
        try:
            return super()._on_new(progress, variant, rules, leeway, most)
        finally:
            self.templates = written

    def _least_price(self, template: Template, progress: Progress, variant: Variant) -> float:
        least = NO_PRICE
        holding = template.fit.holding(progress.one.requests)
        for ask in variant.asks:
            state = template.start.with_ask(ask)
            if isinstance(state, State):
                least = min(least, template.columns.cheapest(state.rows & holding, state.kinds))
        return least

    def new_claim(self, name: str, state: State) -> OpenClaim:
        return SizedClaim(len(self.claims), name, state, self._target)

    def _try_new(self, progress: Progress, state: State, wanted: int, within: int, template: Template) -> int | Refusal | None:
        columns = template.columns
        plain = self._plain[template.name]
        rows = within & state.rows
        holding = rows & template.fit.holding(progress.one.requests)
        if within & ~columns.plain and holding & columns.plain:
            # Exotic machines are for pods that nothing else suits, not for being cheap: the provider would not launch them.
            return None
        if holding & plain:
            within &= plain
            rows &= plain
        if progress.one.index in self.untargeted:
            self._target = -1
            return super()._try_new(progress, state, wanted, within, template)
        target = (self._aim or self.targets.get(template.name, 0)) & rows
        if self._aim and not target:
            return None
        self._target = target or -1
        cap = self.caps.get(progress.one.index)
        if cap is not None:
            wanted = min(wanted, cap.most)
        if template.remaining and target:
            # A limit is charged for the largest type that a claim could become, so such a claim names none beyond its target.
            most = {name: columns.capacity(name).largest(target) for name in template.remaining if name != NODES}
            placed = super()._try_new(progress, state, wanted, within & columns.within(most), template)
            if placed is not None:
                return placed
        return super()._try_new(progress, state, wanted, within, template)

    def _onto(
        self,
        progress: Progress,
        claim: OpenClaim,
        ask: Ask,
        rules: Rules,
        narrowed: State,
        options: Sequence[State],
        most: int,
    ) -> int:
        cap = self.caps.get(progress.one.index)
        if cap is not None:
            mates = (
                end - start for one, start, end in claim.placed if (c := self.caps.get(one.index)) and c.workload == cap.workload
            )
            most = min(most, cap.most - sum(mates))
            if most <= 0:
                return 0
        return super()._onto(progress, claim, ask, rules, narrowed, options, most)

    def carry_out(self, loads: Sequence[Load], owners: Sequence[Sequence[Part]]) -> None:
        """Open a claim for each load's machine and put its pods on it, as far as the solver's checks let them."""
        spoken_for: dict[int, int] = {}
        planned = [Planned(load, self._divided(load, owners, spoken_for)) for load in loads]
        waiting: list[tuple[Planned, Part, int]] = []
        for one in planned:
            # Pods that only an exotic machine takes come first: they are the reason for it.
            plain = self._plain[self.templates[one.load.machine.template].name]
            fit = self.templates[one.load.machine.template].fit
            for part, pods in sorted(one.parts, key=lambda p: bool(plain & fit.holding(p[0].progress.one.requests))):
                placed = self._put_planned(part, one, pods)
                if placed < pods:
                    waiting.append((one, part, pods - placed))
        # What rules let in one at a time, or only once others are there: round by round, each where it was planned.
        moved = True
        while moved and waiting:
            moved = False
            still: list[tuple[Planned, Part, int]] = []
            for one, part, pods in waiting:
                placed = self._put_planned(part, one, pods)
                moved = moved or bool(placed)
                if placed < pods:
                    still.append((one, part, pods - placed))
            for part, node in self.late:
                moved = bool(self.onto_node(part, node)) or moved
            waiting = still

    def _divided(self, load: Load, owners: Sequence[Sequence[Part]], spoken_for: dict[int, int]) -> list[tuple[Part, int]]:
        """Which parts give the load's pods; those with most left first, so that no class runs out before the others."""
        found: list[tuple[Part, int]] = []
        for i, pods in load.mix:
            left = pods
            order = sorted(owners[i], key=lambda p: (spoken_for.get(id(p), 0) - p.left, p.progress.one.index))
            for part in order:
                mine = min(left, part.left - spoken_for.get(id(part), 0), part.most)
                if mine > 0:
                    spoken_for[id(part)] = spoken_for.get(id(part), 0) + mine
                    found.append((part, mine))
                    left -= mine
        return found

    def _put_planned(self, part: Part, one: Planned, pods: int) -> int:
        """Put up to `pods` on the load's claim, opening it if need be; how many that were."""
        if one.claim is not None:
            return self._put(part, one.claim, pods)
        self._aim = 1 << one.load.machine.row
        placed = self._put(part, None, pods, self.templates[one.load.machine.template])
        self._aim = 0
        if placed:
            one.claim = self.claims[-1]
            placed += self._put(part, one.claim, pods - placed)
        return placed

    def _put(self, part: Part, claim: OpenClaim | None, pods: int, template: Template | None = None) -> int:
        """Put up to `pods` of a part on a claim, or on a new one of the template, as the rules let them; how many that were."""
        progress, variant = part.progress, part.variant
        rules = variant.rules or NO_RULES
        total = 0
        while total < pods:
            leeway = pinned(self.leeway(rules), part.pins)
            if leeway is None:
                break
            most = 1 if rules.one_at_a_time or progress.one.ports else pods - total
            self.used += 1
            if claim is not None:
                placed = self.onto(progress, claim, variant, leeway, most)
            else:
                assert template is not None
                answer = self.open(progress, variant, rules, leeway, most, template) if leeway.hosts.fresh else 0
                placed = answer if isinstance(answer, int) else 0
            if not placed:
                break
            progress.done += placed
            part.left -= placed
            total += placed
            if claim is None:
                break
        return total

    def onto_node(self, part: Part, node: int) -> int:
        rules = part.variant.rules or NO_RULES
        before = part.left
        while part.left:
            leeway = Leeway(rules)
            if leeway.limits and leeway.nowhere:
                break
            most = 1 if rules.one_at_a_time or part.progress.one.ports else part.left
            placed = self._on_nodes(part.progress, part.variant, rules, leeway, min(most, part.left), 1 << node)
            if not placed:
                break
            part.progress.done += placed
            part.left -= placed
            self.used += 1
        return before - part.left
