"""One first-fit pass over pod classes: existing nodes, then open claims, then a new claim of the first pool that can.

Source: spec/scheduling 5.2, 5.3. Differs on purpose: open claims are filled in the order in which they were opened, so that
counts can be placed at once (the reference takes the claim with the fewest pods, whichever comes first among equals).
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from kubewright.api.labels import HOSTNAME
from kubewright.catalogue.columns import NO_PRICE, bits
from kubewright.scheduling.host_ports import clash
from kubewright.scheduling.refusal import Because, Refusal
from kubewright.solver.claims import OpenClaim
from kubewright.solver.classes import Ask, PodClass, Variant
from kubewright.solver.committed import Committed
from kubewright.solver.filters import claim_may_pass, claim_passes, count_late, would_count
from kubewright.solver.nodes import NodeTable
from kubewright.solver.refusals import no_company, no_domain, no_room, one_fits, too_many_volumes, topology_refusal
from kubewright.solver.reporter import Reporter
from kubewright.solver.reservations import Reservations
from kubewright.solver.templates import State, Template
from kubewright.solver.topology import (
    Allowed,
    HostMasks,
    Rules,
    allowed,
    host_masks,
    host_room,
    rows_with_company,
    stays_balanced,
)

NO_RULES = Rules((), (), (), one_at_a_time=False)
FREE = HostMasks(-1, 0, -1, 0, fresh=True)


class Progress:
    """How far one class has come in a pass."""

    __slots__ = ("claims_full", "deferred", "done", "nodes_full", "one", "requests")

    def __init__(self, one: PodClass) -> None:
        self.one = one
        self.done = 0
        self.requests = tuple(one.requests.items())
        self.nodes_full = 0
        """Existing nodes without room for one of these; room only shrinks, so they are never asked again."""
        self.claims_full: dict[int, int] = {}
        """Id of an ask → open claims that cannot take one more under it for good."""
        self.deferred: Refusal | None = None
        """Set when the class waits for reserved capacity."""

    @property
    def left(self) -> int:
        return len(self.one.pods) - self.done


class Leeway:
    """Where topology lets a variant go at this moment."""

    __slots__ = ("hosts", "limits", "ranks")

    def __init__(self, rules: Rules) -> None:
        self.hosts = host_masks(rules.host) if rules.host else FREE
        self.limits: dict[str, Allowed] = {}
        self.ranks: dict[str, Mapping[str, int]] = dict(rules.shunned)
        for key, keyed in rules.keyed:
            limit = self.limits[key] = allowed(keyed)
            if limit.only is not None and key not in self.ranks:
                self.ranks[key] = limit.only

    @property
    def nowhere(self) -> bool:
        return any(limit.none for limit in self.limits.values())


class Engine:
    """The state of a pass. Use once."""

    def __init__(
        self,
        table: NodeTable,
        templates: Sequence[Template],
        reservations: Reservations | None,
        *,
        relax_min_values: bool = False,
        reporter: Reporter | None = None,
        spread_out: bool = False,
        present: Mapping[str, set[str]] | None = None,
    ) -> None:
        """`reservations` is None where reserved capacity is switched off or not sold.

        `spread_out` tries open claims with the fewest pods first, one pod at a time, as the reference does.
        """
        self.spread_out = spread_out
        self.present = {key: values for key, values in (present or {}).items() if key != HOSTNAME}
        self.table = table
        self.templates = templates
        self.reservations = reservations
        self.committed: Committed | None = None
        """Set where there are commitments to use up."""
        self.relax_min_values = relax_min_values
        self.reporter = reporter
        self.claims: list[OpenClaim] = []
        self.existing: dict[int, list[tuple[PodClass, int, int]]] = {}
        """Index of a node → (class, from, to) put there."""
        self._in_state: dict[State, int] = {}
        """State → mask of the open claims that are in it."""

    def run(self, classes: Sequence[PodClass]) -> list[Progress]:
        """Place all that can be placed. What is left is returned, in the order of `classes`."""
        everyone = [Progress(one) for one in classes]
        self._exhaust([p for p in everyone if p.one.refusal is None])
        return [p for p in everyone if p.left]

    def pin_and_resume(self, left: Sequence[Progress]) -> list[Progress]:
        """Fix what open claims left open, and place those of `left` for whom that opened a domain; what is left then."""
        while True:
            self.pin_the_rest()
            waiting = [p for p in left if p.left and p.one.refusal is None and p.deferred is None and _topological(p.one)]
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
            waiting = [p for p in waiting if p.left and p.deferred is None and _topological(p.one)]
        return placed

    def _place(self, progress: Progress) -> None:
        one = progress.one
        reporter = self.reporter
        if reporter is not None:
            reporter.considering(tuple(pod.key for pod in one.pods[progress.done :]))
        first = 0
        forgetful = _topological(one)
        while progress.left:
            for index in range(first, len(one.variants)):
                variant = one.variants[index]
                if reporter is not None and index:
                    reporter.relaxed(tuple(pod.key for pod in one.pods[progress.done :]), variant.given_up[-1])
                placed = self._place_some(progress, variant)
                if placed or progress.deferred is not None:
                    progress.done += placed
                    break
                if not forgetful:
                    first = index + 1
            else:
                return
            if progress.deferred is not None:
                return

    def leeway(self, rules: Rules) -> Leeway:
        """Where rules let pods go at this moment; `packing` has its own taste for what they leave open."""
        return Leeway(rules)

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

    def _settle_on_node(self, progress: Progress, index: int, pods: int) -> None:
        one = progress.one
        node = self.table.nodes[index]
        self.table.take(index, progress.requests, pods)
        if one.ports:
            node.ports += one.ports
        for driver, keys in one.drivers.items():
            node.attached.setdefault(driver, set()).update(keys)
        self.existing.setdefault(index, []).append((one, progress.done, progress.done + pods))
        for group in one.counted_in:
            if not group.nodes_passing >> index & 1:
                continue
            if group.term.key == HOSTNAME:
                group.nodes.add(index, pods)
            elif (domain := node.labels.get(group.term.key)) is not None:
                group.counts[domain] = group.counts.get(domain, 0) + pods
        if self.reporter is not None:
            self.reporter.placed(_keys(progress, pods), node.name, 0, 0)

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

    def _join(self, progress: Progress, claim: OpenClaim, options: Sequence[State], wanted: int, within: int) -> int:
        for state in options:
            pods, rows = self._fill(progress, claim, state, wanted, within)
            if pods:
                self._settle_on_claim(progress, claim, state, rows, pods)
                return pods
        return 0

    def _fill(self, progress: Progress, claim: OpenClaim, state: State, wanted: int, within: int) -> tuple[int, int]:
        """As `OpenClaim.most`, with a machine of a reservation taken, kept or let go.

        Reserved machines come first. A claim that has one keeps it where that is strict; one begun without never gets one.
        """
        reservations = self.reservations
        if reservations is not None and (claim.held or not claim.placed):
            pods, rows = claim.most(state, progress.requests, wanted, within & reservations.rows(claim.index, state))
            if pods:
                claim.held = reservations.named(state, rows)
                kept = reservations.hold(claim.index, claim.held)
                assert kept, "only rows were asked about that a reservation has a machine for"
                return pods, rows
            if claim.held and reservations.strict:
                return 0, 0
        if self.committed is not None and not claim.held:
            found = self._fill_committed(self.committed, progress, claim, state, wanted, within)
            if found is not None:
                return found
        pods, rows = claim.most(state, progress.requests, wanted, within & self._sold_to_all(state))
        if pods and claim.held and reservations is not None:
            reservations.release(claim.index)
            claim.held = frozenset()
        return pods, rows

    def _fill_committed(
        self, committed: Committed, progress: Progress, claim: OpenClaim, state: State, wanted: int, within: int
    ) -> tuple[int, int] | None:
        """The same on machines of a commitment; None if the claim is none of one and should not become one."""
        held = committed.holding(claim.index)
        if held is None and claim.placed:
            return None
        pods, rows = claim.most(state, progress.requests, wanted, within & self._sold_to_all(state)) if held is None else (0, 0)
        kinds = tuple(k for k in state.kinds if not state.template.columns.kinds[k].reservation)
        listed = state.template.columns.cheapest(rows, kinds) / pods if pods else NO_PRICE
        for index, mask in committed.choices(claim.index, state):
            pods, rows = claim.most(state, progress.requests, wanted, within & mask)
            if pods and (held is not None or committed.cheapest(index, claim.index, state, rows).usd / pods < listed):
                committed.hold(index, claim.index, state, rows)
                return pods, rows
        return None if held is None else (0, 0)

    def _sold_to_all(self, state: State) -> int:
        """Rows that are for sale without a reservation."""
        if self.reservations is None:
            return state.rows
        columns = state.template.columns
        return columns.offered(k for k in state.kinds if not columns.kinds[k].reservation)

    def _settle_on_claim(self, progress: Progress, claim: OpenClaim, state: State, rows: int, pods: int) -> None:
        one = progress.one
        before = claim.rows
        self._note_state(claim, state)
        for key, present in self.present.items():
            if (value := state.single(key)) is not None:
                present.add(value)
        count_late(claim, state)
        claim.add(one, progress.done, pods, state, rows)
        for group in one.counted_in:
            if group.term.key == HOSTNAME:
                # A host that may pass the filter later counts now: the least count of hosts is always 0, so nothing else suffers.
                if claim_may_pass(group, state):
                    group.claims.add(claim.index, pods)
            elif (domain := state.single(group.term.key)) is None or not claim_passes(group, state):
                if claim_may_pass(group, state):
                    claim.uncounted.append((group, pods))
            else:
                group.counts[domain] = group.counts.get(domain, 0) + pods
        if self.reporter is not None:
            self.reporter.placed(_keys(progress, pods), claim.name, before.bit_count(), rows.bit_count())

    def _note_state(self, claim: OpenClaim, state: State) -> None:
        if claim.state is state and claim.placed:
            return
        bit = 1 << claim.index
        left = self._in_state.get(claim.state, 0) & ~bit
        if left:
            self._in_state[claim.state] = left
        else:
            self._in_state.pop(claim.state, None)
        self._in_state[state] = self._in_state.get(state, 0) | bit

    def pin_the_rest(self) -> None:
        """Fix the domain of claims whose pods count in others' spreads, so that what was planned is what is bought."""
        for claim in self.claims:
            for key in sorted({group.term.key for group, _ in claim.uncounted}):
                groups = [(g, n) for g, n in claim.uncounted if g.term.key == key]
                pins = [p for p in claim.state.pins(key) if self._holds_all(claim, p.state)]
                if not pins:
                    continue
                best = min(pins, key=lambda p: (sum(g.counts.get(p.value, 0) for g, _ in groups), p.price, p.value))
                count_late(claim, best.state)
                for values_of, present in self.present.items():
                    if (value := best.state.single(values_of)) is not None:
                        present.add(value)
                self._note_state(claim, best.state)
                claim.state = best.state
                claim.rows = self._left_of(claim, best.state)
                if claim.held:
                    assert self.reservations is not None
                    claim.held = self.reservations.named(best.state, claim.rows)
                    self.reservations.hold(claim.index, claim.held)
                elif self.committed is not None and (index := self.committed.holding(claim.index)) is not None:
                    self.committed.hold(index, claim.index, best.state, claim.rows)

    def _holds_all(self, claim: OpenClaim, state: State) -> bool:
        """Whether the claim could be fixed to `state` and still keep what it was promised: types, minValues, reservations."""
        rows = self._left_of(claim, state)
        return bool(rows) and (claim.min_values_relaxed or not state.unmet(rows))

    def _left_of(self, claim: OpenClaim, state: State) -> int:
        """The claim's rows once it is fixed to `state`."""
        if claim.held and self.reservations is not None:
            return claim.rows & self.reservations.rows(claim.index, state)
        if self.committed is not None and self.committed.holding(claim.index) is not None:
            return claim.rows & next((mask for _, mask in self.committed.choices(claim.index, state)), 0)
        return claim.rows & state.rows & self._sold_to_all(state)

    def _on_new(self, progress: Progress, variant: Variant, rules: Rules, leeway: Leeway, most: int) -> int:
        for template in self.templates:
            placed = self.open(progress, variant, rules, leeway, most, template)
            if isinstance(placed, int):
                return placed
            if self.reporter is not None:
                self.reporter.refused(_keys(progress, progress.left), placed)
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

    def new_claim(self, name: str, state: State) -> OpenClaim:
        """An empty claim; `packing` opens claims that keep an eye on their size."""
        return OpenClaim(len(self.claims), name, state)

    def _try_new(self, progress: Progress, state: State, wanted: int, within: int, template: Template) -> int | Refusal | None:
        claim = self.new_claim(f"{template.name}-{template.opened + 1}", state)
        pods, rows = self._fill(progress, claim, state, wanted, within)
        if not pods and self.relax_min_values and state.min_values:
            claim.min_values_relaxed = True
            pods, rows = self._fill(progress, claim, state, wanted, within)
        if not pods:
            if self.reservations is not None and claim.most(state, progress.requests, 1, within)[0]:
                text = "nothing but reserved capacity suits, and all of it is taken"
                names = ",".join(sorted(self.reservations.named(state, within & state.rows)))
                return Refusal(Because.OFFERING, template.name, names, text)
            return None
        claim.rows = within & state.rows
        self.claims.append(claim)
        template.opened += 1
        self._settle_on_claim(progress, claim, state, rows, pods)
        template.reserve(rows)
        return pods


def _topological(one: PodClass) -> bool:
    return any(v.rules is not None and v.rules.any for v in one.variants)


def _keys(progress: Progress, pods: int) -> tuple[str, ...]:
    return tuple(pod.key for pod in progress.one.pods[progress.done : progress.done + pods])
