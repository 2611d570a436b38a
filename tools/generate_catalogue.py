"""Make the embedded catalogue from moto's bundled type file and the figures beside this script.

Usage: python tools/generate_catalogue.py        (moto is a development dependency; nothing here is imported at run time)

moto (Apache-2.0) records DescribeInstanceTypes of all regions; prices, pod ENIs and odd bandwidths are in tools/data, each
file with its source and date.
"""

import argparse
import gzip
import json
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import msgspec
from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend

from kubewright.cloud.aws import api, catalogue

HERE = Path(__file__).parent
TARGET = HERE.parent / "src/kubewright/cloud/aws/data/instance_types.json.gz"
ARCHITECTURES = {"x86_64", "arm64"}


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=TARGET, help="file to write (default: the embedded catalogue)")
    target: Path = parser.parse_args().output
    bundled = resources.files("moto.ec2").joinpath("resources")
    raw: dict[str, dict[str, Any]] = json.loads(gzip.decompress(bundled.joinpath("instance_types.json.gz").read_bytes()))
    types = tuple(msgspec.convert(raw[name], api.InstanceTypeInfo) for name in sorted(raw) if usable(raw[name]))
    names = {t.instance_type for t in types}
    rates = figures("ec2-on-demand-rates.json")
    branch = figures("branch-interfaces.json")
    bandwidth = figures("network-bandwidth.json")
    regions = {}
    for file in sorted(bundled.joinpath("instance_type_offerings/availability-zone").iterdir(), key=lambda f: f.name):
        region = file.name.removesuffix(".json.gz")
        regions[region] = offered(region, json.loads(gzip.decompress(file.read_bytes())), names)
    figures_of = catalogue.Catalogue(
        source=f"shapes and zones: moto {metadata.version('moto')}; prices: {rates['source']}, {rates['date']}; "
        f"pod ENIs and odd bandwidths: {branch['source']}, {branch['date']}",
        date=rates["date"],
        types=types,
        regions=regions,
        on_demand={catalogue.PRICE_REGION: priced(types, rates)},
        branch_interfaces={
            f"{family}.{size}": count
            for family, sizes in sorted(branch["branch_interfaces"].items())
            for size, count in sorted(sizes.items())
            if f"{family}.{size}" in names
        },
        network_mbps={name: mbps for name, mbps in sorted(bandwidth["mbps"].items()) if name in names},
    )
    data = catalogue.dump(figures_of)
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(data)
    prices = len(figures_of.on_demand[catalogue.PRICE_REGION])
    print(f"{target.name}: {len(types)} types, {len(regions)} regions, {prices} prices, {len(data)} bytes")


def figures(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HERE / "data" / name).read_text())
    return found


def usable(raw: dict[str, Any]) -> bool:
    """The filter of `catalogue.SUPPORTED`."""
    return "hvm" in raw["SupportedVirtualizationTypes"] and bool(
        ARCHITECTURES & set(raw["ProcessorInfo"]["SupportedArchitectures"])
    )


def priced(types: tuple[api.InstanceTypeInfo, ...], rates: dict[str, Any]) -> dict[str, float]:
    """The rate card's rule: an exact price, else the family's rate per vCPU; types of unknown families have no price."""
    prices = {}
    for t in types:
        rate = rates["per_vcpu"].get(t.instance_type.split(".")[0])
        exact = rates["exact"].get(t.instance_type)
        if exact is not None:
            prices[t.instance_type] = exact
        elif rate is not None:
            prices[t.instance_type] = round(rate * t.vcpus, 5)
    return prices


def offered(region: str, rows: list[dict[str, str]], names: set[str]) -> catalogue.Region:
    zones = tuple(sorted({row["Location"] for row in rows}))
    ids = {zone.name: zone.zone_id for zone in RegionsAndZonesBackend.zones[region]}
    sold: dict[str, int] = {}
    for row in rows:
        if row["InstanceType"] in names:
            sold[row["InstanceType"]] = sold.get(row["InstanceType"], 0) | 1 << zones.index(row["Location"])
    return catalogue.Region(zones, tuple(ids.get(zone, "") for zone in zones), dict(sorted(sold.items())))


if __name__ == "__main__":
    main()
