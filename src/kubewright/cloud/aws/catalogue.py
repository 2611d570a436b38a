"""The catalogue of real instance types that the package carries, so that nothing needs a network to start.

One gzipped JSON file: shapes as DescribeInstanceTypes tells them, the zones that sell them, on-demand list prices, and the few
figures that no AWS call tells. `tools/generate_catalogue.py` makes the embedded one; `refresh` writes the same format from a live
account. Decision: docs/decisions/003-embedded-catalogue.md.
"""

import gzip
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path

import msgspec
from msgspec import field

from kubewright.cloud.aws import api, retry
from kubewright.cloud.aws.prices import read_product
from kubewright.errors import ConfigError

PRICE_REGION = "us-east-1"
"""Whose prices stand in for a region that the catalogue has none of. Source: spec/aws 6.3."""


class Region(msgspec.Struct, frozen=True, gc=False):
    """Which zone of a region sells what."""

    zones: tuple[str, ...]
    zone_ids: tuple[str, ...]
    """Parallel to `zones`; which id a name has differs per account, the pairing here is an example."""
    sold: dict[str, int]
    """Instance type → bit mask over `zones`."""

    def zones_of(self, instance_type: str) -> tuple[str, ...]:
        mask = self.sold.get(instance_type, 0)
        return tuple(zone for bit, zone in enumerate(self.zones) if mask >> bit & 1)


class Catalogue(msgspec.Struct, frozen=True):
    """Everything we know about EC2 without asking it."""

    source: str
    date: str
    """Of the youngest figure, ISO 8601."""
    types: tuple[api.InstanceTypeInfo, ...]
    """By name."""
    regions: dict[str, Region]
    on_demand: dict[str, dict[str, float]]
    """Region → instance type → USD per hour, Linux, shared tenancy."""
    branch_interfaces: dict[str, int] = field(default_factory=dict)
    """Instance type → pod ENIs; in no AWS call."""
    network_mbps: dict[str, int] = field(default_factory=dict)
    """Instance type → bandwidth label, where it does not follow from the network cards."""

    def prices(self, region: str) -> Mapping[str, float]:
        """List prices in USD per hour; `PRICE_REGION`'s where the region has none."""
        return self.on_demand.get(region) or self.on_demand.get(PRICE_REGION, {})

    def region(self, name: str) -> Region:
        """Raises ConfigError: the catalogue does not know the region."""
        found = self.regions.get(name)
        if found is None:
            raise ConfigError(
                f"region {name!r} is not in the catalogue of {self.date}; known: {', '.join(sorted(self.regions))}. "
                "Make one for it with `kubewright catalogue refresh`."
            )
        return found


_ENCODER = msgspec.json.Encoder(order="deterministic")
_DECODER = msgspec.json.Decoder(Catalogue)


def dump(catalogue: Catalogue) -> bytes:
    """The catalogue as its file; the same bytes for the same figures."""
    return gzip.compress(_ENCODER.encode(catalogue), compresslevel=9, mtime=0)


def read(data: bytes, where: str = "catalogue") -> Catalogue:
    """Raises ConfigError: `where` is not a catalogue file; says what is wrong with it."""
    try:
        return _DECODER.decode(gzip.decompress(data))
    except (OSError, EOFError, msgspec.MsgspecError) as error:
        raise ConfigError(
            f"{where}: not a kubewright catalogue ({error}); make one with `kubewright catalogue refresh`"
        ) from error


@lru_cache(maxsize=1)
def embedded() -> Catalogue:
    """The catalogue inside the package. Cost: 0.1 s once."""
    data = resources.files("kubewright.cloud.aws").joinpath("data/instance_types.json.gz").read_bytes()
    return read(data, "embedded catalogue")


def from_file(path: Path) -> Catalogue:
    """A refreshed catalogue. Raises ConfigError."""
    try:
        return read(path.read_bytes(), str(path))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error


SUPPORTED = (
    api.Filter(name="supported-virtualization-type", values=("hvm",)),
    api.Filter(name="processor-info.supported-architecture", values=("x86_64", "arm64")),
)
"""What can be a Kubernetes node at all. Source: spec/aws 5.1."""


async def describe_types(ec2: api.Ec2Api) -> tuple[api.InstanceTypeInfo, ...]:
    """Every usable type of the region, by name."""
    request = api.DescribeInstanceTypes(filters=SUPPORTED, max_results=100)
    found = [t async for page in retry.pages(ec2.describe_instance_types, request) for t in page.instance_types]
    return tuple(sorted(found, key=lambda t: t.instance_type))


async def describe_offerings(ec2: api.Ec2Api, zone_ids: Mapping[str, str]) -> Region:
    """Which zone sells what; `zone_ids` maps zone names to ids as far as they are known."""
    request = api.DescribeInstanceTypeOfferings(location_type="availability-zone", max_results=1000)
    rows = [o async for page in retry.pages(ec2.describe_instance_type_offerings, request) for o in page.instance_type_offerings]
    zones = tuple(sorted({row.location for row in rows}))
    bits = {zone: 1 << bit for bit, zone in enumerate(zones)}
    sold: dict[str, int] = {}
    for row in rows:
        sold[row.instance_type] = sold.get(row.instance_type, 0) | bits[row.location]
    return Region(zones, tuple(zone_ids.get(z, "") for z in zones), dict(sorted(sold.items())))


async def on_demand_prices(ec2: api.Ec2Api, region: str) -> dict[str, float]:
    """List prices from the Pricing API, in USD per hour. Source: spec/aws 6.3 (filters)."""
    common = {
        "regionCode": region,
        "serviceCode": "AmazonEC2",
        "preInstalledSw": "NA",
        "operatingSystem": "Linux",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
    }
    kinds = (
        {"tenancy": "Shared", "productFamily": "Compute Instance"},
        {"tenancy": "Dedicated", "productFamily": "Compute Instance (bare metal)"},
    )
    prices: dict[str, float] = {}
    for kind in kinds:
        filters = tuple(
            api.ProductFilter(field=name, value=value, type="TERM_MATCH") for name, value in {**common, **kind}.items()
        )
        async for page in retry.pages(
            ec2.get_products, api.GetProducts(service_code="AmazonEC2", filters=filters, max_results=100)
        ):
            prices.update(row for row in map(read_product, page.price_list) if row is not None)
    return dict(sorted(prices.items()))


async def refresh(ec2: api.Ec2Api, region: str, today: str, base: Catalogue | None = None) -> bytes:
    """A catalogue file of `region` as the account sees it today (ISO date).

    Figures that no call tells are carried over from `base` (the embedded catalogue by default), for the types that are sold.

    Raises:
        AwsError: a call failed; nothing partial is returned.
        ConfigError: the answer is empty, so the account or region is wrong.
    """
    known = base or embedded()
    types = await describe_types(ec2)
    zone_names = {s.availability_zone: s.availability_zone_id for s in await _all_subnets(ec2)}
    offered = await describe_offerings(ec2, zone_names)
    prices = await on_demand_prices(ec2, region)
    if not types or not offered.zones or not prices:
        raise ConfigError(
            f"region {region}: {len(types)} types, {len(offered.zones)} zones, {len(prices)} prices were answered; check the "
            "region and that the role may call ec2:DescribeInstanceTypes, ec2:DescribeInstanceTypeOfferings "
            "and pricing:GetProducts"
        )
    names = {t.instance_type for t in types}
    return dump(
        Catalogue(
            source=f"DescribeInstanceTypes, DescribeInstanceTypeOfferings and GetProducts of {region}",
            date=today,
            types=types,
            regions={region: offered},
            on_demand={region: prices},
            branch_interfaces={n: v for n, v in known.branch_interfaces.items() if n in names},
            network_mbps={n: v for n, v in known.network_mbps.items() if n in names},
        )
    )


async def _all_subnets(ec2: api.Ec2Api) -> list[api.Subnet]:
    request = api.DescribeSubnets(max_results=500)
    return [s async for page in retry.pages(ec2.describe_subnets, request) for s in page.subnets]
