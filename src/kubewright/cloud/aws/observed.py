"""What nodes have told of their memory, in the place of the guess. Source: spec/aws 5.3; case C80.

How much memory the hypervisor keeps is published nowhere, and differs by type and image. The first node of a pair tells.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from kubewright.api import quantity
from kubewright.api.aws import EC2NodeClass

KEEP = timedelta(days=60)
"""After a node of the pair was last seen."""


class Learned(msgspec.Struct, frozen=True):
    """Amounts in billionths of a byte."""

    memory: int
    """The least capacity that any node of the pair told."""
    kept_memory: int
    """What kubelet, system and eviction threshold keep of it: the most that any told."""


class Observed:
    """By instance type, image, and the kubelet settings that size what is kept."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, bytes], tuple[datetime, Learned]] = {}
        self.version = 0
        """Changes whenever an answer changes."""

    def of(self, instance_type: str, image_id: str, node_class: EC2NodeClass) -> Learned | None:
        found = self._found.get((instance_type, image_id, _kubelet(node_class)))
        return found[1] if found is not None else None

    def saw(
        self,
        instance_type: str,
        image_id: str,
        node_class: EC2NodeClass,
        capacity: Mapping[str, str | int],
        allocatable: Mapping[str, str | int],
        now: datetime,
    ) -> None:
        """A registered node says what it has; one that does not say is ignored."""
        if not image_id or "memory" not in capacity or "memory" not in allocatable:
            return
        whole = quantity.parse(str(capacity["memory"]))
        kept = max(0, whole - quantity.parse(str(allocatable["memory"])))
        key = (instance_type, image_id, _kubelet(node_class))
        before = self._found.get(key)
        new = Learned(whole, kept)
        if before is not None:
            new = Learned(min(whole, before[1].memory), max(kept, before[1].kept_memory))
        self._found[key] = (now, new)
        if before is None or before[1] != new:
            self.version += 1
        old = [k for k, (seen, _) in self._found.items() if seen + KEEP < now]
        for k in old:
            del self._found[k]
        self.version += bool(old)


def _kubelet(node_class: EC2NodeClass) -> bytes:
    return msgspec.json.encode((node_class.ami_family, node_class.spec.kubelet), order="deterministic")
