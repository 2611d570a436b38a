"""How many pods each PodDisruptionBudget lets go at a time: a search proposes no more than that.

Source: spec/disruption 11; the eviction API would refuse what is beyond it, and the drain would hold machines that are paid for.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from kubewright.disruption.candidates import Candidate
from kubewright.lifecycle import pods
from kubewright.lifecycle.pods import PdbIndex
from kubewright.solver.problem import Snapshot


class Guards:
    """What PodDisruptionBudgets leave; `take` and `give` keep count."""

    def __init__(self, snapshot: Snapshot, candidates: Sequence[Candidate]) -> None:
        index = PdbIndex.of(snapshot.surroundings.budgets)
        self._left: dict[str, int] = {b.key: pods.allowed(b) for b in snapshot.surroundings.budgets}
        self._used: Counter[str] = Counter()
        self._needs: dict[str, Counter[str]] = {}
        if not self._left:
            return
        for known in snapshot.nodes:
            if known.marked_for_deletion:
                # They will ask first.
                for pod in known.pods:
                    if pods.is_evictable(pod, snapshot.now):
                        self._used.update(b.key for b in index.guarding(pod))
        for one in candidates:
            needs = Counter(b.key for pod in one.movers if pods.is_evictable(pod, snapshot.now) for b in index.guarding(pod))
            if needs:
                self._needs[one.provider_id] = needs

    def needs(self, one: Candidate) -> Mapping[str, int]:
        """PodDisruptionBudget → how many of the node's pods it guards."""
        return self._needs.get(one.provider_id, {})

    def blocking(self, one: Candidate) -> str:
        """The budget that has to wait for others before this node can be emptied; "" if there is none.

        A node that alone has more pods than a budget allows may go as the only one of that budget: its pods take turns.
        """
        for key, pods_there in sorted(self.needs(one).items()):
            used = self._used[key]
            if used and used + pods_there > self._left[key]:
                return key
        return ""

    def take(self, one: Candidate) -> None:
        self._used.update(self.needs(one))

    def give(self, one: Candidate) -> None:
        self._used.subtract(self.needs(one))
