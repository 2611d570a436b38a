"""What makes EC2 hard, as switches. Chance is a function of the seed and of what it is about, never of call order."""

import zlib

import msgspec


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults are a healthy region: machines take their time, prices move, everything else works."""

    call_s: float = 0.05
    """How long any call takes."""
    launch_s: float = 15.0
    launch_jitter_s: float = 10.0
    """From a fleet's answer to the running state."""
    terminate_s: float = 20.0
    """From shutting-down to terminated."""
    dry_share: float = 0.0
    """Share of pools (type, zone, capacity type) that have no capacity at all."""
    pool_size: int = 0
    """How many machines a pool holds before it has run out; 0: no end."""
    spot_prices_move: bool = True
    interruptions_per_hour: float = 0.0
    """For each spot machine."""
    notice_s: float = 120.0
    """From the interruption notice to the end of the machine."""
    calls_per_s: float = 0.0
    """Allowed rate of each operation; beyond it RequestLimitExceeded. 0: no limit."""
    calls_burst: int = 20
    describe_lag_s: float = 0.0
    """How long DescribeInstances does not show a new machine."""
    fail_before: float = 0.0
    """Share of calls that fail with InternalError and have done nothing."""
    fail_after: float = 0.0
    """Share of calls that take effect, but whose answer is lost."""
    vcpu_quota: int = 0
    """Of on-demand and spot each; 0: none."""
    profile_lag_s: float = 0.0
    """How long EC2 does not know a new instance profile."""
    memory_kept: float = 0.0
    """Share of a machine's memory that the hypervisor keeps; 0: as machines of its size really do."""
    subnet_addresses: int = 8187
    """Free addresses of each subnet at the start."""


def chance(seed: int, *about: object) -> float:
    """A number in [0, 1) that depends on nothing but the arguments."""
    return zlib.crc32(repr((seed, *about)).encode()) / 2**32
