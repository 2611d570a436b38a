"""One machine with its history, and what it has cost."""

from datetime import datetime

import msgspec

from kubewright.cloud.aws import api
from kubewright.sim.ec2.market import Pool


class Machine(msgspec.Struct):
    """One instance and its history."""

    seen: api.Ec2Instance
    pool: Pool
    user_data: str
    """Base64, from its launch template."""
    asked: datetime
    running_since: datetime | None = None
    billed_until: datetime | None = None
    ended: datetime | None = None
    noticed: bool = False
    """An interruption notice is out."""
    disks: dict[str, int] = {}
    """Device → GiB."""
    impaired: dict[str, datetime] = {}
    """"instance" or "system" → since when its status check fails."""
    events: list[str] = []
    """Codes of scheduled events."""

    @property
    def is_live(self) -> bool:
        return self.seen.state.name in ("pending", "running")


class Bill(msgspec.Struct, frozen=True):
    """What one machine has cost so far."""

    instance_id: str
    instance_type: str
    zone: str
    capacity_type: str
    node_pool: str
    node_claim: str
    start: datetime
    end: datetime | None
    """None: still running."""
    hours: float
    usd: float
    usd_per_hour: float
    """The current price, or the last one."""
