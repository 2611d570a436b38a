"""A pass like the solver's that packs: claims are opened for machines chosen beforehand and filled as planned.

Two differences to first fit: a claim is not filled further than some machine worth its price can hold, and pods are placed onto
the cheapest mix of machines found by dual prices. Every claim is opened and filled through `Engine`, so whatever holds for first
fit's plans holds for these. Room on nodes that exist or are on their way comes first.

Pods that only size, labels and taints bind are packed at once. For others a first pass finds out in which domains (zones) they
go; a second one follows its blueprint and packs them together with all others, each in its domain. Pods that must be beside
others on one host, and pods that reserved capacity is for sale for, are left to the engine.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kubewright.api.labels import HOSTNAME
from kubewright.packing.carrier import Carrier, SizedClaim
from kubewright.packing.fill import Load, Search
from kubewright.packing.knapsack import Market
from kubewright.packing.machines import Item, Machine, Pins, Vectors, is_bound, is_movable, items_of, machines_of, tiers
from kubewright.packing.parts import MANY, Entry, Part, counts_of, form_on_claim, groups, items_of_parts
from kubewright.packing.prices import Mixes, resource_prices
from kubewright.packing.stock import stocks_of
from kubewright.packing.wishes import Wishes
from kubewright.scheduling.refusal import Refusal
from kubewright.solver.classes import Ask, PodClass, Variant
from kubewright.solver.engine import NO_RULES, Leeway, Progress
from kubewright.solver.templates import State
from kubewright.solver.terms import Shape
from kubewright.solver.topology import host_room

Pack = Callable[[Sequence[Machine], Sequence[Sequence[float]], Sequence[int]], "list[Load] | None"]
"""Machines, sizes and counts by item → the cheapest packing, None where it is not known."""


class Packer(Carrier):
    """A pass that packs; see the module. Use once."""

    def __init__(
        self,
        *args: Any,
        tolerance: float,
        steps: int,
        steps_alone: int,
        wishes: Wishes,
        bias: float = 0.0,
        taste: int = 0,
        blueprint: Sequence[Entry] = (),
        known: Sequence[Sequence[Entry]] = (),
        exact: Pack | None = None,
        enough: float = 0.0,
        **more: Any,
    ) -> None:
        """`tolerance` is how far above the best price per unit of room a machine may lie and still be one to fill claims for.

        `steps_alone` are for the case that nothing but size, labels and taints binds anybody, and this pass is the only one.
        `bias` is put on the price of every machine, to have fewer of them, or more. `blueprint` and `known` are a former pass's
        `entries` and `packed`. `exact` is asked for the packing first, where nothing but size, labels and taints binds. A packing
        that costs no more than `enough` is not improved.
        """
        super().__init__(*args, wishes=wishes, **more)
        self.tolerance = tolerance
        self.taste = taste
        self.steps = steps
        self.blueprint = blueprint
        self.settled = False
        """Whether a blueprint or another tolerance would change nothing."""
        self._known = known
        self._steps_alone = steps_alone
        self._bias = bias
        self._exact = exact
        self._enough = enough

    # --- the pass ----------------------------------------------------------------------------------------------------------

    def run(self, *stages: Sequence[PodClass]) -> list[Progress]:
        classes = [one for stage in stages for one in stage]
        everyone = [Progress(one) for one in classes]
        waiting = [p for p in everyone if p.one.refusal is None]
        assert self.table.running is not None, "the tables of a pass know who runs"
        self.caps = self.wishes.caps(classes, self.table.running)
        self.untargeted = {p.one.index for p in waiting if self._may_be_reserved(p.one)}
        free = [p for p in waiting if is_movable(p.one) and p.one.index not in self.untargeted]
        self.settled = len(free) == len(waiting)
        if self.settled:
            self.steps = self._steps_alone
        self._find_targets(waiting)
        if self.blueprint:
            parts = self._follow(waiting, free)
        else:
            self._place_bound(waiting, {p.one.index for p in free})
            parts = []
        parts += [self._part(p, p.one.variants[0], p.one.variants[0].asks[0], (), p.left) for p in free if p.left]
        self._pack(parts)
        self._exhaust([p for p in waiting if p.left])
        return [p for p in everyone if p.left]

    def _place_bound(self, waiting: Sequence[Progress], free: set[int]) -> None:
        """Everything but what is free by the engine, and what is free onto nodes that stand."""
        order = self._by_worth([p for p in waiting if p.one.index in free])
        rest = [p for p in waiting if p.one.index not in free]
        turns = iter(order)
        queue = [next(turns) if p.one.index in free else p for p in waiting]
        for progress in queue:
            if progress.one.index in free:
                self._onto_nodes(progress)
            else:
                self._place(progress)
        self._exhaust([p for p in rest if p.left and is_bound(p.one)])

    def _follow(self, waiting: Sequence[Progress], free: Sequence[Progress]) -> list[Part]:
        """What the blueprint leaves to the engine, placed; what it puts on nodes, too; the rest as parts to pack."""
        by_index = {p.one.index: p for p in waiting}
        planned = {entry.cls for entry in self.blueprint}
        loose = {p.one.index for p in free}
        fixed = [p for p in waiting if p.one.index not in planned and p.one.index not in loose]
        self._exhaust(list(fixed))
        on_nodes: list[tuple[Part, int]] = []
        parts: list[Part] = []
        for entry in self.blueprint:
            progress = by_index[entry.cls]
            variant = progress.one.variants[entry.variant]
            part = self._part(progress, variant, variant.asks[entry.ask], entry.pins, entry.pods)
            if entry.node >= 0:
                on_nodes.append((part, entry.node))
            else:
                parts.append(part)
        moved = True
        while moved:
            moved = sum(self.onto_node(part, node) for part, node in on_nodes) > 0
        for progress in self._by_worth(free):
            self._onto_nodes(progress)
        self.late = on_nodes
        return parts

    def _part(self, progress: Progress, variant: Variant, ask: Ask, pins: Pins, pods: int) -> Part:
        rules = variant.rules
        cap = self.caps.get(progress.one.index)
        most, mates = (cap.most, cap.workload) if cap is not None else (MANY, "")
        room = host_room(rules.host, node=None, claim=None) if rules is not None and rules.host else None
        if rules is not None and room is not None and room < most:
            most, mates = room, ",".join(str(rule.group.index) for rule in rules.host)
        if progress.one.ports:
            most, mates = 1, str(progress.one.ports)
        return Part(progress, variant, ask, pins, pods, most, mates)

    # --- room that is there ------------------------------------------------------------------------------------------------

    def _onto_nodes(self, progress: Progress) -> None:
        leeway = Leeway(NO_RULES)
        while progress.left and (placed := self._on_nodes(progress, progress.one.variants[0], NO_RULES, leeway, progress.left)):
            progress.done += placed
            self.used += 1

    def _by_worth(self, free: Sequence[Progress]) -> list[Progress]:
        """In the order in which they should have the room that is there: what saves most for what it takes first.

        As they stand where there is room for all or for none.
        """
        items = items_of([p.one for p in free])
        if not items or not self.table.every:
            return list(free)
        vectors = Vectors(items)
        stocks = stocks_of(self.table, items, vectors)
        sizes = [vectors.of(item.requests) for item in items]
        counts = [sum(len(one.pods) for one in item.classes) for item in items]
        wanted = [sum(n * s for n, s in zip(counts, column, strict=True)) for column in zip(*sizes, strict=True)]
        there = [sum(stock.room[k] for stock in stocks) for k in range(len(wanted))]
        if not stocks or all(r >= w for r, w in zip(there, wanted, strict=True)):
            return list(free)
        machines = machines_of(self.templates, items, vectors, (), self.wishes.node_usd, self.wishes.most_cpu)
        mixes = Mixes(sizes, counts, machines, stocks)
        mixes.improve(self.steps // 8)
        self.used += mixes.used
        rates = [max((r[k] for r in mixes.rates), default=0.0) for k in range(len(wanted))]
        density: dict[int, float] = {}
        for i, item in enumerate(items):
            room = sum(r * s for r, s in zip(rates, sizes[i], strict=True))
            for one in item.classes:
                density[one.index] = mixes.prices[i] / room if room > 1e-12 else 0.0
        place = {p.one.index: at for at, p in enumerate(free)}
        return sorted(free, key=lambda p: (-round(density[p.one.index], 3), place[p.one.index]))

    # --- machines ----------------------------------------------------------------------------------------------------------

    def _find_targets(self, waiting: Sequence[Progress]) -> None:
        items = items_of([p.one for p in waiting])
        counts = [sum(len(one.pods) for one in item.classes) for item in items]
        if not items:
            return
        vectors = Vectors(items)
        machines = machines_of(self.templates, items, vectors, (), self.wishes.node_usd, self.wishes.most_cpu)
        unit = resource_prices([vectors.of(item.requests) for item in items], counts, machines)
        for machine in machines:
            worth = sum(u * r for u, r in zip(unit, machine.room, strict=True))
            if machine.usd <= worth * (1 + self.tolerance):
                name = self.templates[machine.template].name
                self.targets[name] = self.targets.get(name, 0) | 1 << machine.row

    def _may_be_reserved(self, one: PodClass) -> bool:
        """Whether such a pod could be put on reserved capacity that is left, in any of its forms."""
        if self.reservations is None:
            return False
        asks = {ask.id: ask for variant in one.variants for ask in variant.asks}
        return any(
            isinstance(state := template.start.with_ask(ask), State) and self.reservations.rows(None, state)
            for template in self.templates
            for ask in asks.values()
        )

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
        for tier in tiers(self.templates):
            reach = 0
            for machine in live:
                if machine.template in tier:
                    reach |= machine.allowed
            for index in tier:
                home[index] = reach & wanted & ~taken
            taken |= reach & wanted
        return [m._replace(allowed=m.allowed & home[m.template]) for m in live if m.allowed & home[m.template]]

    # --- packing -----------------------------------------------------------------------------------------------------------

    def _pack(self, parts: Sequence[Part]) -> None:
        """Place `parts`: free ones on claims that are open, then all on new ones."""
        items, owners = items_of_parts(parts)
        if not items:
            return
        vectors = Vectors(items)
        machines = machines_of(self.templates, items, vectors, (), self.wishes.node_usd + self._bias, self.wishes.most_cpu)
        sizes = [vectors.of(item.requests) for item in items]
        if self.claims:
            mixes = Mixes(sizes, counts_of(owners), machines, mosts=[item.most for item in items])
            mixes.improve(self.steps // 4)
            self.used += mixes.used
            self._top_up(items, owners, vectors, Market(sizes, mixes.prices))
        for _ in self.templates:
            counts = counts_of(owners)
            live = self._at_home(machines, counts)
            if not live:
                break
            loads = self._exact(live, sizes, counts) if self._exact is not None and not self.claims else None
            if loads is None:
                mosts = [item.most for item in items]
                search = Search(live, sizes, counts, self.steps - self.used, mosts, groups(items))
                loads = search.best(self._enough, self._as_items(owners))
                self.used += search.used
            before = len(self.claims)
            self.carry_out(sorted(loads, key=lambda load: -load.machine.usd), owners)
            if len(self.claims) == before:
                break

    def _as_items(self, owners: Sequence[Sequence[Part]]) -> list[dict[int, int]]:
        """The known packing by item, without machines that hold pods which are none of `owners`."""
        item_of: dict[tuple[object, ...], int] = {}
        for i, mine in enumerate(owners):
            for part in mine:
                variant = part.progress.one.variants.index(part.variant)
                item_of[part.progress.one.index, variant, part.variant.asks.index(part.ask), part.pins] = i
        found: list[dict[int, int]] = []
        for claim in self._known:
            mix: dict[int, int] = {}
            for entry in claim:
                item = item_of.get((entry.cls, entry.variant, entry.ask, entry.pins))
                if item is None:
                    break
                mix[item] = mix.get(item, 0) + entry.pods
            else:
                found.append(mix)
        return found

    def _top_up(self, items: Sequence[Item], owners: Sequence[Sequence[Part]], vectors: Vectors, market: Market) -> None:
        """Fill claims opened for other pods, each up to the size at which what is added is worth most beyond its price."""
        for claim in list(self.claims):
            best: tuple[float, int, Mapping[int, int]] | None = None
            allowed = 0
            counts = [min(sum(p.left for p in mine), item.most) for item, mine in zip(items, owners, strict=True)]
            for i, item in enumerate(items):
                if not counts[i] or item.pins:
                    continue
                if isinstance(state := claim.state.with_ask(item.asks[0]), State) and state.rows & claim.rows:
                    allowed |= 1 << i
            if not allowed or not isinstance(claim, SizedClaim):
                continue
            columns = claim.template.columns
            for usd, row in columns.by_price(claim.state.kinds):
                if not (claim.rows & claim.target) >> row & 1:
                    continue
                extra = claim.template.fit.taken(row)
                room = {
                    name: columns.rows[row].allocatable.get(name, 0) - extra.get(name, 0) - claim.requests.get(name, 0)
                    for name in vectors.resources
                }
                worth, mix = market.whole(vectors.of(room), allowed, counts)
                self.used += 1
                if best is None or usd - worth < best[0] - 1e-12:
                    best = (usd - worth, row, mix)
            if best is not None:
                claim.target = 1 << best[1]
                for i, pods in sorted(best[2].items()):
                    left = pods
                    for part in owners[i]:
                        left -= self._put(part, claim, min(left, part.left))

    # --- what came of it ---------------------------------------------------------------------------------------------------

    def entries(self) -> list[Entry]:
        """Where the pass put pods that something but size, labels and taints binds: the blueprint for another one."""
        found: dict[tuple[int, int, int, Pins, int], int] = {}
        classes = {one.index: one for claim in self.claims for one, _, _ in claim.placed}
        together: set[int] = set()
        for index, put in sorted(self.existing.items()):
            for one, start, end in put:
                if self._is_loose(one):
                    variant, ask = self._form_on_node(one, index)
                    place: tuple[int, int, int, Pins, int] = (one.index, variant, ask, (), index)
                    found[place] = found.get(place, 0) + end - start
        for claim in self.packed():
            for entry in claim:
                one = classes[entry.cls]
                if not self._is_loose(one):
                    continue
                if entry.variant < 0:
                    together.add(one.index)
                    continue
                place = (*entry[:4], -1)
                found[place] = found.get(place, 0) + entry.pods
        return [Entry(*place, pods) for place, pods in sorted(found.items()) if place[0] not in together]

    def packed(self) -> list[list[Entry]]:
        """What is on each claim; variant -1 for pods of which no form is the one that the claim keeps the wishes of."""
        found: list[list[Entry]] = []
        for claim in self.claims:
            mine: list[Entry] = []
            for one, start, end in claim.placed:
                variant, ask = form_on_claim(one, claim)
                rules = one.variants[variant].rules if variant >= 0 else None
                values = [(key, claim.state.single(key)) for key in (rules.pinned if rules is not None else ())]
                pins = tuple((key, value) for key, value in values if value is not None)
                mine.append(Entry(one.index, variant, ask, pins, -1, end - start))
            found.append(mine)
        return found

    def _is_loose(self, one: PodClass) -> bool:
        """Whether a blueprint can say where such pods go: all but those free anyway, and those tied to a host or reservation."""
        if one.index in self.untargeted or is_movable(one):
            return False
        return not any(
            rule.group.term.shape is Shape.AFFINITY and not rule.group.inverse
            for variant in one.variants
            if variant.rules is not None
            for rule in variant.rules.host
        ) and not any(g.term.shape is Shape.AFFINITY and g.term.key == HOSTNAME and not g.inverse for g in one.counted_in)

    def _form_on_node(self, one: PodClass, index: int) -> tuple[int, int]:
        for v, variant in enumerate(one.variants):
            for a, ask in enumerate(variant.asks):
                if self.table.allowed(ask) >> index & 1:
                    return v, a
        return len(one.variants) - 1, 0
