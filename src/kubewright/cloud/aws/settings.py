"""What the AWS provider is told at the start, by flags or environment. Source: spec/aws 12."""

from collections.abc import Mapping
from datetime import timedelta

import msgspec

from kubewright.api import duration
from kubewright.errors import ConfigError


class AwsSettings(msgspec.Struct, frozen=True, kw_only=True):
    region: str
    cluster_endpoint: str = ""
    """"" asks EKS."""
    cluster_ca_bundle: str = ""
    """Base64; "" asks EKS."""
    cluster_dns: str = ""
    """ClusterIP of kube-dns, "" if unknown."""
    interruption_queue: str = ""
    """Name of the SQS queue, "" for none."""
    reserved_enis: int = 0
    isolated_vpc: bool = False
    """No Pricing, IAM clean-up or EKS calls get out of this VPC."""
    reserved_capacity: bool = True
    """The core's gate ReservedCapacity."""
    dry_run: bool = True
    """Whether a NodeClass is tried by dry runs before it may launch."""
    zonal_shift: bool = False
    evacuate_shifted: int = 0
    """How many nodes of a shifted zone may be replaced at a time; 0: they stay."""
    rebalance: bool = False
    """Whether a rebalance recommendation replaces the node; otherwise it is told as an event only."""
    ami_refresh_interval: timedelta = timedelta(minutes=1)
    subnet_refresh_interval: timedelta = timedelta(minutes=1)


def read(flags: Mapping[str, str], region: str) -> AwsSettings:
    """The provider's flags as `operator.options` collects them.

    Raises:
        ConfigError: names the flag, what was found, and what to write instead.
    """
    for gate in filter(None, (g.strip() for g in flags.get("aws-feature-gates", "").split(","))):
        name, _, value = gate.partition("=")
        if name == "NodeClassCEL" and value.lower() == "true":
            raise ConfigError("--aws-feature-gates: NodeClassCEL came after 1.14 and is not supported; leave it out")
    return AwsSettings(
        region=region,
        cluster_endpoint=flags.get("cluster-endpoint", ""),
        cluster_ca_bundle=flags.get("cluster-ca-bundle", ""),
        interruption_queue=flags.get("interruption-queue", ""),
        reserved_enis=_count("reserved-enis", flags.get("reserved-enis", "0")),
        dry_run=not _boolean("disable-dry-run", flags.get("disable-dry-run", "false")),
        zonal_shift=_boolean("enable-zonal-shift", flags.get("enable-zonal-shift", "false")),
        evacuate_shifted=_count("zonal-shift-evacuation", flags.get("zonal-shift-evacuation", "0")),
        rebalance=_boolean("replace-on-rebalance", flags.get("replace-on-rebalance", "false")),
        isolated_vpc=_boolean("isolated-vpc", flags.get("isolated-vpc", "false")),
        ami_refresh_interval=_interval("ami-refresh-interval", flags.get("ami-refresh-interval", "1m")),
        subnet_refresh_interval=_interval("subnet-refresh-interval", flags.get("subnet-refresh-interval", "1m")),
    )


def _boolean(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0", "t", "f"):
        raise ConfigError(f"--{name}: found {text!r}, write true or false")
    return text.lower() in ("true", "1", "t")


def _count(name: str, text: str) -> int:
    if not text.isdigit():
        raise ConfigError(f"--{name}: found {text!r}, write a whole number from 0 on")
    return int(text)


def _interval(name: str, text: str) -> timedelta:
    try:
        found = duration.parse(text)
    except ValueError as error:
        raise ConfigError(f"--{name}: found {text!r}, write a duration such as 1m ({error})") from error
    if found < timedelta(minutes=1):
        raise ConfigError(f"--{name}: found {text!r}, write at least 1m")
    return found
