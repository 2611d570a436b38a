"""How far one class has come in a pass, and where topology lets it go at this moment."""

from collections.abc import Mapping

from kubewright.solver.classes import PodClass
from kubewright.solver.topology import (
    Allowed,
    HostMasks,
    Rules,
    allowed,
    host_masks,
)

NO_RULES = Rules((), (), (), one_at_a_time=False)
FREE = HostMasks(-1, 0, -1, 0, fresh=True)


class Progress:
    """How far one class has come in a pass."""

    __slots__ = ("claims_full", "done", "nodes_full", "one", "requests")

    def __init__(self, one: PodClass) -> None:
        self.one = one
        self.done = 0
        self.requests = tuple(one.requests.items())
        self.nodes_full = 0
        """Existing nodes without room for one of these; room only shrinks, so they are never asked again."""
        self.claims_full: dict[int, int] = {}
        """Id of an ask → open claims that cannot take one more under it for good."""

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


def is_topological(one: PodClass) -> bool:
    return any(v.rules is not None and v.rules.any for v in one.variants)


def keys_of(progress: Progress, pods: int) -> tuple[str, ...]:
    return tuple(pod.key for pod in progress.one.pods[progress.done : progress.done + pods])
