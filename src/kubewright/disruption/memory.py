"""What deciding remembers from one look to the next. All of it may be lost: it saves work, and is found again."""

from collections.abc import Mapping

import msgspec

from kubewright.disruption.stays import Stay


class Memory(msgspec.Struct, frozen=True):
    """The shell keeps `queued`, `resting` and `failed_joins`; the rest is handed back by `decide` as it came out."""

    queued: frozenset[str] = frozenset()
    """ProviderIDs of the candidates of commands that are thought over or under way."""
    resting: frozenset[str] = frozenset()
    """ProviderIDs of nodes that are left alone for a while, since a command of theirs was taken back. They stay and count."""
    failed_joins: Mapping[str, int] = {}
    """NodePool → machines in a row that were bought for it and did not join."""
    unreached: tuple[str, ...] = ()
    """Nodes that the last search had no steps left for, by name: the next one begins with them."""
    settled: str = ""
    """Fingerprint of a cluster in which nothing was found to consolidate, "" if there is none."""
    stays: Mapping[str, Stay] = {}
    """Why each of its nodes stayed."""
    eligible: int = 0
    """How many of them could have been consolidated."""

    @property
    def untouchable(self) -> frozenset[str]:
        """Nodes that nothing new may be decided for."""
        return self.queued | self.resting
