"""What there is to buy: Karpenter's invented machines, or those of a file in the form that Karpenter's kwok provider reads."""

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from kubewright.api import labels, quantity
from kubewright.catalogue.types import InstanceType, Offering
from kubewright.errors import ConfigError
from kubewright.scheduling.requirement import IN, Requirement, requirement

GROUP = "karpenter.kwok.sh"
SIZE, FAMILY = f"{GROUP}/instance-size", f"{GROUP}/instance-family"
CPU, MEMORY = f"{GROUP}/instance-cpu", f"{GROUP}/instance-memory"
WELL_KNOWN = frozenset({SIZE, FAMILY, CPU, MEMORY})
OVERHEAD = {"cpu": quantity.parse("100m"), "memory": quantity.parse("10Mi")}
PODS = "110"
"""Where a file says nothing of pods."""

ZONES = ("test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d")
SIZES = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256)
FAMILIES = {"c": 2, "s": 4, "m": 8}
"""Name → GiB for each cpu."""
SPOT_SHARE = 0.7
_AWS_NAME = re.compile(r"\w+\.(nano|micro|small|medium|large|\d*xlarge|metal)\Z")


class Wanted(msgspec.Struct, frozen=True):
    key: str
    values: tuple[str, ...] = ()
    operator: str = IN


class Sold(msgspec.Struct, frozen=True, kw_only=True):
    price: float = msgspec.field(name="Price")
    requirements: tuple[Wanted, ...] = msgspec.field(name="Requirements")


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of such a file."""

    name: str
    offerings: tuple[Sold, ...]
    architecture: str
    operating_systems: tuple[str, ...] = msgspec.field(name="operatingSystems")
    resources: Mapping[str, str]


def load(path: str) -> tuple[InstanceType, ...]:
    """The instance types in a file; the invented ones for "".

    Raises:
        ConfigError: the file cannot be read; the text says where.
    """
    if not path:
        return tuple(instance_type(one) for one in invented())
    try:
        machines = msgspec.json.decode(Path(path).read_bytes(), type=tuple[Machine, ...])
        return tuple(instance_type(one) for one in machines)
    except (OSError, ValueError) as error:
        raise ConfigError(f"INSTANCE_TYPES_FILE_PATH names {path!r}, which cannot be read: {error}") from error


def invented() -> list[Machine]:
    """144 machines: three families, twelve sizes, two systems, two architectures, each in four zones, on-demand and spot."""
    found = []
    for cpus in SIZES:
        for system in ("linux", "windows"):
            for family, factor in FAMILIES.items():
                for architecture in ("amd64", "arm64"):
                    price = 0.025 * cpus + 0.001 * cpus * factor * 2**30 / 1e9
                    resources = {
                        "cpu": str(cpus),
                        "memory": f"{cpus * factor}Gi",
                        "pods": str(min(cpus * 16, 1024)),
                        "ephemeral-storage": "20Gi",
                    }
                    offerings = tuple(
                        Sold(
                            price=price * share,
                            requirements=(Wanted(labels.CAPACITY_TYPE, (kind,)), Wanted(labels.ZONE, (zone,))),
                        )
                        for zone in ZONES
                        for kind, share in ((labels.SPOT, SPOT_SHARE), (labels.ON_DEMAND, 1.0))
                    )
                    name = f"{family}-{cpus}x-{architecture}-{system}"
                    found.append(
                        Machine(
                            name=name,
                            offerings=offerings,
                            architecture=architecture,
                            operating_systems=(system,),
                            resources=resources,
                        )
                    )
    return found


def instance_type(one: Machine) -> InstanceType:
    """The machine as kubewright plans with it. Raises ValueError for a resource that is no quantity."""
    offerings = tuple(
        Offering(requirements={w.key: requirement(w.key, w.operator, w.values) for w in sold.requirements}, price=sold.price)
        for sold in one.offerings
    )
    resources = {"pods": PODS, **one.resources}
    cpus, memory = (quantity.canonical(resources.get(name, "0")) for name in ("cpu", "memory"))
    matched = _AWS_NAME.match(one.name)
    named = {
        labels.INSTANCE_TYPE: (one.name,),
        labels.ARCH: (one.architecture,),
        labels.OS: one.operating_systems,
        labels.ZONE: tuple(sorted({o.zone for o in offerings})),
        labels.CAPACITY_TYPE: tuple(sorted({o.capacity_type for o in offerings})),
        SIZE: (matched[1] if matched else cpus,),
        FAMILY: (_family(one.name),),
        CPU: (cpus,),
        MEMORY: (memory,),
    }
    return InstanceType(
        name=one.name,
        requirements={key: Requirement(key, frozenset(values)) for key, values in named.items()},
        offerings=offerings,
        capacity={name: quantity.parse(amount) for name, amount in resources.items()},
        overhead=OVERHEAD,
    )


def _family(name: str) -> str:
    first, *rest = re.split(r"[.-]", name, maxsplit=1)
    return first if rest else name[:1]
