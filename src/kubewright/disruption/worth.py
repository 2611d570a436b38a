"""Whether a saving is worth the disturbance: shares of what the pool costs against shares of what moving all of it would.

Source: spec/disruption 4.1, 4.2. Differs on purpose: every policy is weighed, `Balanced` more strictly; totals are those of now.
"""

from collections.abc import Mapping, Sequence

import msgspec

from kubewright.api import labels
from kubewright.disruption import cost
from kubewright.disruption.candidates import Candidate, prices
from kubewright.lifecycle import state
from kubewright.lifecycle.pods import is_reschedulable
from kubewright.settings import DisruptionSettings
from kubewright.solver.problem import Pool, StateNode

_CENT = 1e-9


class Total(msgspec.Struct, frozen=True):
    """Of one NodePool, all its nodes together."""

    usd_per_hour: float = 0.0
    disturbance: float = 0.0


class Verdict(msgspec.Struct, frozen=True):
    """The harshest pool's view of a move."""

    is_worth_it: bool
    score: float = 0.0
    """The share of cost saved per share of disturbance."""
    threshold: float = 0.0
    pool: str = ""


class Worth:
    """Weighs moves against what the pools cost."""

    def __init__(self, nodes: Sequence[StateNode], pools: Sequence[Pool], settings: DisruptionSettings) -> None:
        self._settings = settings
        self._totals = totals(nodes, pools)

    def judge(self, going: Sequence[Candidate], saving: float, disturbance: float | None = None) -> Verdict:
        """`saving` is that of the whole move, in USD per hour; `disturbance` is that of `going` unless it is given."""
        if saving <= _CENT:
            return Verdict(is_worth_it=False)
        source = sum(c.usd_per_hour for c in going)
        pools: dict[str, list[Candidate]] = {}
        for one in going:
            pools.setdefault(one.pool.name, []).append(one)
        worst: Verdict | None = None
        for name in sorted(pools):
            mine = pools[name]
            share = saving if len(pools) == 1 or source <= 0 else saving * sum(c.usd_per_hour for c in mine) / source
            moving = sum(c.disturbance for c in mine) if disturbance is None or len(pools) > 1 else disturbance
            found = self._of_pool(mine[0], share, moving)
            if worst is None or (found.is_worth_it, found.score - found.threshold) < (
                worst.is_worth_it,
                worst.score - worst.threshold,
            ):
                worst = found
        assert worst is not None
        return worst

    def needed(self, going: Sequence[Candidate]) -> float:
        """USD per hour that a move of these must save at least to be worth it."""
        source = sum(c.usd_per_hour for c in going)
        most = _CENT
        for name in sorted({c.pool.name for c in going}):
            mine = [c for c in going if c.pool.name == name]
            total = self._totals.get(name, Total())
            usd = sum(c.usd_per_hour for c in mine)
            if total.disturbance > 0 and usd > 0:
                moving = sum(c.disturbance for c in mine) / total.disturbance
                most = max(most, self.threshold(mine[0]) * moving * total.usd_per_hour * source / usd)
        return most

    def threshold(self, candidate: Candidate) -> float:
        """The least score that a move of its pool must have."""
        if candidate.pool.spec.disruption.consolidation_policy != cost.BALANCED:
            return self._settings.least_score
        return 1.0 / self._settings.balance if self._settings.balance > 0 else 0.0

    def _of_pool(self, one: Candidate, saving: float, disturbance: float) -> Verdict:
        name = one.pool.name
        total = self._totals.get(name, Total())
        threshold = self.threshold(one)
        if total.usd_per_hour <= 0 or total.disturbance <= 0 or disturbance <= 0:
            balanced = one.pool.spec.disruption.consolidation_policy == cost.BALANCED
            return Verdict(disturbance <= 0 or not balanced, 0.0, threshold, name)
        score = (saving / total.usd_per_hour) / (disturbance / total.disturbance)
        return Verdict(score >= threshold - _CENT, score, threshold, name)


def totals(nodes: Sequence[StateNode], pools: Sequence[Pool]) -> Mapping[str, Total]:
    """What each NodePool's nodes cost and what it would take to empty them all, had they settled."""
    found: dict[str, list[float]] = {}
    for known, usd in prices(nodes, pools):
        owner = state.labels_of(known).get(labels.NODEPOOL, "")
        sums = found.setdefault(owner, [0.0, 0.0])
        sums[0] += usd
        sums[1] += cost.of_pods(p for p in known.pods if is_reschedulable(p))
    return {name: Total(*sums) for name, sums in found.items() if name}
