"""What stands where in a pass: existing nodes and open claims, and what each placement does to counts, limits and reservations.

Source: spec/scheduling 5.3 to 5.5, 6.7.
"""

from collections.abc import Mapping, Sequence

from kubewright.api.labels import HOSTNAME
from kubewright.catalogue.columns import NO_PRICE
from kubewright.scheduling.refusal import Because, Refusal
from kubewright.solver.claims import OpenClaim
from kubewright.solver.classes import PodClass
from kubewright.solver.committed import Committed
from kubewright.solver.filters import claim_may_pass, claim_passes, count_late, note_doubts
from kubewright.solver.nodes import NodeTable
from kubewright.solver.progress import Progress, keys_of
from kubewright.solver.reporter import Reporter
from kubewright.solver.reservations import Reservations
from kubewright.solver.templates import State, Template


class Seats:
    """What stands where in a pass, and the ways to put more there; who goes where is the `Engine`'s. Use once."""

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
        self.courteous = False
        """Whether pods stay away from domains to which those who must follow them could not come."""
        self.committed: Committed | None = None
        """Set where there are commitments to use up."""
        self.relax_min_values = relax_min_values
        self.reporter = reporter
        self.claims: list[OpenClaim] = []
        self.existing: dict[int, list[tuple[PodClass, int, int]]] = {}
        """Index of a node → (class, from, to) put there."""
        self._in_state: dict[State, int] = {}
        """State → mask of the open claims that are in it."""

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
            self.reporter.placed(keys_of(progress, pods), node.name, 0, 0)

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
        note_doubts(claim, state)
        if self.reporter is not None:
            self.reporter.placed(keys_of(progress, pods), claim.name, before.bit_count(), rows.bit_count())

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
                note_doubts(claim, best.state)
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
                return Refusal(Because.RESERVED, template.name, names, text)
            return None
        claim.rows = within & state.rows
        self.claims.append(claim)
        template.opened += 1
        self._settle_on_claim(progress, claim, state, rows, pods)
        template.reserve(rows)
        return pods
