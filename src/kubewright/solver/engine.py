"""One first-fit pass over pod classes: existing nodes, then open claims, then a new claim of the first pool that can.

Source: spec/scheduling 5.2, 5.3. Differs on purpose: open claims are filled in the order in which they were opened, so that
counts can be placed at once (the reference takes the claim with the fewest pods, whichever comes first among equals).
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from kubewright.catalogue.columns import bits
from kubewright.scheduling.host_ports import clash
from kubewright.scheduling.refusal import Because, Refusal
from kubewright.solver.claims import OpenClaim
from kubewright.solver.classes import Ask, PodClass, Variant
from kubewright.solver.filters import would_count
from kubewright.solver.progress import FREE, NO_RULES, Leeway, Progress, is_topological, keys_of
from kubewright.solver.refusals import no_company, no_domain, no_room, one_fits, too_many_volumes, topology_refusal
from kubewright.solver.seats import Seats
from kubewright.solver.templates import State, Template
from kubewright.solver.topology import (
    ANYWHERE,
    Allowed,
    Rules,
    host_room,
    rows_with_company,
    stays_balanced,
)

__all__ = ["FREE", "NO_RULES", "Engine", "Leeway", "Progress"]


_FEW = 64
"""Classes among which who comes first is worth asking again and again."""


class Engine(Seats):
    """The order in which places are tried."""

    def run(self, *stages: Sequence[PodClass]) -> list[Progress]:
        """Place all that can be placed; a later stage begins where the one before it comes no further.

        What is left is returned, in the order of the stages.
        """
        everyone = [[Progress(one) for one in classes] for classes in stages]
        for waiting in everyone[:-1]:
            self._exhaust_first_come([p for p in waiting if p.one.refusal is None])
        self._exhaust([p for p in everyone[-1] if p.one.refusal is None])
        left = [p for waiting in everyone for p in waiting if p.left]
        if len(stages) > 1:
            self._exhaust([p for p in left if p.one.refusal is None and is_topological(p.one)])
        return [p for p in left if p.left]

    def relent(self, left: Sequence[Progress]) -> list[Progress]:
        """Give up being courteous, and place those of `left` who were held back by it; what is left then."""
        self.courteous = False
        self._exhaust([p for p in left if p.one.refusal is None])
        return [p for p in left if p.left]

    def pin_and_resume(self, left: Sequence[Progress]) -> list[Progress]:
        """Fix what open claims left open, and place those of `left` for whom that opened a domain; what is left then."""
        while True:
            self.pin_the_rest()
            waiting = [p for p in left if p.left and p.one.refusal is None and is_topological(p.one)]
            if not self._exhaust(waiting):
                return [p for p in left if p.left]

    def _exhaust(self, waiting: list[Progress]) -> int:
        """Go round until a whole round places nothing; how many pods were placed."""
        placed = 0
        while waiting:
            before = sum(p.done for p in waiting)
            for progress in waiting:
                self._place(progress)
            round_placed = sum(p.done for p in waiting) - before
            if not round_placed:
                break
            placed += round_placed
            # Only topology can turn a no into a yes within a pass; everything else gets tighter.
            waiting = [p for p in waiting if p.left and is_topological(p.one)]
        return placed

    def _exhaust_first_come(self, waiting: list[Progress]) -> None:
        """As `_exhaust`, but whoever comes earlier is asked again as soon as somebody was placed.

        Cost: quadratic in the classes; with many, as `_exhaust`.
        """
        if len(waiting) > _FEW:
            self._exhaust(waiting)
            return
        index = 0
        while index < len(waiting):
            progress = waiting[index]
            before = progress.done
            if progress.left:
                self._place(progress)
            index = 0 if progress.done > before and any(p.left for p in waiting[:index]) else index + 1

    def _place(self, progress: Progress) -> None:
        one = progress.one
        reporter = self.reporter
        if reporter is not None:
            reporter.considering(tuple(pod.key for pod in one.pods[progress.done :]))
        first = 0
        forgetful = is_topological(one)
        while progress.left:
            for index in range(first, len(one.variants)):
                variant = one.variants[index]
                if reporter is not None and index:
                    reporter.relaxed(tuple(pod.key for pod in one.pods[progress.done :]), variant.given_up[-1])
                placed = self._place_some(progress, variant)
                if placed:
                    progress.done += placed
                    break
                if not forgetful:
                    first = index + 1
            else:
                return

    def leeway(self, rules: Rules) -> Leeway:
        """Where rules let pods go at this moment; `packing` has its own taste for what they leave open."""
        found = Leeway(rules)
        if self.courteous:
            for key, ranks in rules.shunned.items():
                limit = found.limits.get(key, ANYWHERE)
                found.limits[key] = limit._replace(never=limit.never.union(v for v, bad in ranks.items() if bad))
        if self.spread_out:
            for key, groups in rules.leaning.items():
                if groups and key not in found.ranks:
                    found.ranks[key] = {v: sum(g.counts.get(v, 0) for g in groups) for v in groups[0].counts}
        return found

    def _place_some(self, progress: Progress, variant: Variant) -> int:
        """Put as many as one place takes on the first place that takes any; how many that were."""
        rules = variant.rules or NO_RULES
        leeway = self.leeway(rules)
        if leeway.limits and leeway.nowhere:
            return 0
        most = 1 if rules.one_at_a_time or progress.one.ports or self.spread_out else progress.left
        return (
            self._on_nodes(progress, variant, rules, leeway, most)
            or self._on_claims(progress, variant, rules, leeway, most)
            or (self._on_new(progress, variant, rules, leeway, most) if leeway.hosts.fresh else 0)
        )

    def _on_nodes(self, progress: Progress, variant: Variant, rules: Rules, leeway: Leeway, most: int, among: int = -1) -> int:
        """`among` is a mask of the nodes that may be asked."""
        table = self.table
        if not table.every:
            return 0
        one, hosts = progress.one, leeway.hosts
        roomy = table.perhaps_roomy(progress.requests)
        for ask in variant.asks:
            mask = among & table.allowed(ask) & roomy & hosts.nodes_only & ~hosts.nodes_never & ~progress.nodes_full
            for key, limit in leeway.limits.items():
                if not mask:
                    break
                mask &= self._nodes_within(key, limit)
            for index in bits(mask):
                node = table.nodes[index]
                room = most
                free = node.free
                for name, amount in progress.requests:
                    if amount:
                        room = min(room, free.get(name, 0) // amount)
                if room <= 0 or (one.ports and clash(one.ports, node.ports)) or (one.drivers and node.attachable(one.drivers)):
                    progress.nodes_full |= 1 << index
                    continue
                limit_here = host_room(rules.host, node=index, claim=None) if rules.host else None
                if limit_here is not None:
                    room = min(room, limit_here)
                self._settle_on_node(progress, index, room)
                return room
        return 0

    def _nodes_within(self, key: str, limit: Allowed) -> int:
        values = self.table.values(key)
        if limit.only is not None:
            mask = 0
            for value in limit.only:
                if value not in limit.never:
                    mask |= values.get(value, 0)
            return mask
        mask = self.table.having(key) if limit.key_needed else self.table.every
        for value in limit.never:
            mask &= ~values.get(value, 0)
        return mask

    def _on_claims(self, progress: Progress, variant: Variant, rules: Rules, leeway: Leeway, most: int) -> int:
        hosts = leeway.hosts
        if not self.claims or not hosts.claims_only:
            return 0
        for ask in variant.asks:
            open_to: dict[State, tuple[State, list[State]]] = {}
            mask = 0
            for state, members in self._in_state.items():
                narrowed = state.with_ask(ask)
                if isinstance(narrowed, Refusal) or not narrowed.rows:
                    continue
                options = narrowed.options(rules.pinned, leeway.limits, leeway.ranks) if rules.pinned else [narrowed]
                if options:
                    open_to[state] = (narrowed, options)
                    mask |= members
            mask &= hosts.claims_only & ~hosts.claims_never & ~progress.claims_full.get(ask.id, 0)
            for index in self._in_order(mask):
                narrowed, options = open_to[self.claims[index].state]
                placed = self._onto(progress, self.claims[index], ask, rules, narrowed, options, most)
                if placed:
                    return placed
        return 0

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
        """Put as many as fit on one open claim, in one of `options`, which `narrowed` leaves; how many that were."""
        one = progress.one
        bit = 1 << claim.index
        if claim.port_clash(one.ports):
            progress.claims_full[ask.id] = progress.claims_full.get(ask.id, 0) | bit
            return 0
        limit_here = host_room(rules.host, node=None, claim=claim.index) if rules.host else None
        wanted = most if limit_here is None else min(most, limit_here)
        within = claim.rows & claim.template.free_of(one.ports) if one.ports else claim.rows
        if one.drivers:
            within &= claim.attaching(one.drivers)
        if rules.host:
            within &= rows_with_company(rules.host, claim.template.name, claim.index)
        if claim.uncounted and rules.keyed:
            options = [s for s in options if stays_balanced(rules.keyed, would_count(claim, s), s.single)]
        placed = self._join(progress, claim, options, wanted, within)
        if not placed and (options == [narrowed] or not claim.rows_with(narrowed, progress.requests, 1, within)):
            progress.claims_full[ask.id] = progress.claims_full.get(ask.id, 0) | bit
        return placed

    def onto(self, progress: Progress, claim: OpenClaim, variant: Variant, leeway: Leeway, most: int) -> int:
        """Put pods on this very claim, as far as every rule lets them; `packing` chooses claims itself."""
        rules, hosts = variant.rules or NO_RULES, leeway.hosts
        bit = 1 << claim.index
        for ask in variant.asks:
            if not bit & hosts.claims_only & ~hosts.claims_never & ~progress.claims_full.get(ask.id, 0):
                continue
            narrowed = claim.state.with_ask(ask)
            if isinstance(narrowed, Refusal) or not narrowed.rows:
                continue
            options = narrowed.options(rules.pinned, leeway.limits, leeway.ranks) if rules.pinned else [narrowed]
            if options and (placed := self._onto(progress, claim, ask, rules, narrowed, options, most)):
                return placed
        return 0

    def _in_order(self, mask: int) -> Iterable[int]:
        return sorted(bits(mask), key=lambda i: (self.claims[i].pods, i)) if self.spread_out else bits(mask)

    def _on_new(self, progress: Progress, variant: Variant, rules: Rules, leeway: Leeway, most: int) -> int:
        for template in self.templates:
            placed = self.open(progress, variant, rules, leeway, most, template)
            if isinstance(placed, int):
                return placed
            if self.reporter is not None:
                self.reporter.refused(keys_of(progress, progress.left), placed)
        return 0

    def open(
        self,
        progress: Progress,
        variant: Variant,
        rules: Rules,
        leeway: Leeway,
        most: int,
        template: Template,
    ) -> int | Refusal:
        """Open a claim of `template` with as many pods as it takes; how many, or why none."""
        one = progress.one
        affordable = template.affordable()
        if isinstance(affordable, Refusal):
            return affordable
        room = host_room(rules.host, node=None, claim=None) if rules.host else None
        wanted = most if room is None else min(most, room)
        within = template.rows & affordable & (template.free_of(one.ports) if one.ports else -1)
        if one.drivers:
            unlimited, within = within, within & template.columns.attaching(one.drivers)
            if unlimited and not within:
                return too_many_volumes(template, one)
        if rules.host:
            anywhere, within = within, within & rows_with_company(rules.host, template.name, None)
            if anywhere and not within:
                return no_company(template, rules)
        refusal: Refusal | None = None
        tries: list[tuple[State, list[State]]] = []
        for ask in variant.asks:
            narrowed = template.start.with_ask(ask)
            if isinstance(narrowed, Refusal):
                refusal = narrowed
                continue
            tries.append((narrowed, narrowed.options(rules.pinned, leeway.limits, leeway.ranks) if rules.pinned else [narrowed]))
        # Exotic types only where no other type does, as the provider will launch.
        plain = template.columns.plain
        taken: Refusal | None = None
        for rows in (within & plain, within) if within & ~plain else (within,):
            for _, options in tries:
                for state in options:
                    placed = self._try_new(progress, state, wanted, rows, template)
                    if isinstance(placed, int):
                        return placed
                    taken = taken or placed
        if taken is not None:
            return taken
        for narrowed, options in tries:
            state = options[0] if options else narrowed
            if options or not narrowed.rows & within & template.fit.holding(one.requests):
                refusal = no_room(template, state, one, within)
                if affordable != template.columns.every and one_fits(template, state, one):
                    refusal = Refusal(Because.LIMITS, template.name, "", "", {"limit": ",".join(sorted(template.remaining))})
            else:
                refusal = no_domain(template, narrowed, rules, leeway.limits)
        assert refusal is not None
        return refusal

    def refusals(self, progress: Progress, variant: Variant, rules: Rules, leeway: Leeway) -> list[Refusal]:
        """Every template's no, in order; asked when the pass is over, and never opens anything."""
        found: list[Refusal] = []
        for template in self.templates:
            if not leeway.hosts.fresh or leeway.nowhere:
                refusal = template.affordable()
                for ask in variant.asks:
                    narrowed = template.start.with_ask(ask)
                    if isinstance(narrowed, Refusal):
                        found.append(narrowed if narrowed.where else replace(narrowed, where=template.name))
                        break
                else:
                    found.append(refusal if isinstance(refusal, Refusal) else topology_refusal(template.name, rules, leeway))
                continue
            answer = self.open(progress, variant, rules, leeway, 1, template)
            assert isinstance(answer, Refusal), "the pass went on until nothing more could be placed"
            found.append(answer if answer.where else replace(answer, where=template.name))
        return found
