"""Instance types: two dozen made up ones, or a handful of the real catalogue."""

import functools
import json
from pathlib import Path
from typing import Any

from tests.conformance.problems.shapes import (
    ARCH,
    CATEGORY,
    CPUS_LABEL,
    CT,
    DRIVER,
    FAMILY,
    GENERATION,
    GPU,
    HUGE,
    OS,
    RESERVATION,
    TYPE,
    ZONE,
    ZONES,
    J,
    one_of,
)
from tests.conformance.problems.source import Source

FAMILIES = (("c", 2, "amd64"), ("m", 4, "amd64"), ("g", 4, "arm64"))
SIZES = (1, 2, 4, 8, 16)
_FAMILIES = ("c5", "c6g", "c7i", "m5", "m6a", "m7g", "r6i", "t3")


def synthetic(source: Source, wanted: set[str]) -> list[J]:
    """Types named by family and cpus. Only what `wanted` is about is left to chance."""
    found = []
    for family, ratio, arch in FAMILIES:
        for cpu in SIZES:
            usd = (cpu * 0.03 + cpu * ratio * 0.004) * (0.8 if arch == "arm64" else 1)
            found.append(_type(f"{family}{cpu}", family, cpu, cpu * ratio, arch, usd))
    found.append(_type("gpu8", "p", 8, 32, "amd64", 1.0, {GPU: "2"}))
    if "hugepages" in wanted:
        found.append(_type("huge8", "h", 8, 32, "amd64", 0.6, {HUGE: "4Gi"}))
    if "attach-limit-new" in wanted:
        for kind in found:
            kind["attachLimits"] = {DRIVER: source.one(4, 2, 1) if kind["capacity"]["cpu"] != "16" else 5}
    if "reserved" in wanted:
        for kind in source.some(found[:15], source.between(1, 2)):
            zone = source.one(*ZONES)
            kind["offerings"].append(
                {
                    "price": 0.0001,
                    "available": True,
                    "reservationCapacity": source.between(1, 2),
                    "requirements": [one_of(ZONE, zone), one_of(CT, "reserved"), one_of(RESERVATION, f"r-{kind['name']}")],
                }
            )
            for r in kind["requirements"]:
                if r["key"] == CT:
                    r["values"].append("reserved")
            kind["requirements"].append(one_of(RESERVATION, f"r-{kind['name']}"))
    if "dry-offering" in wanted:
        for kind in found:
            for offering in kind["offerings"]:
                offering["available"] = not source.chance(30)
    return found


def real(source: Source) -> list[J]:
    """Types of a few families of the embedded catalogue, for sale in three zones."""
    families = set(source.some(_FAMILIES, source.between(2, 4)))
    return [t for t in _real_types() if t["requirements"][7]["values"][0] in families]


def real_below(cpus: int) -> list[J]:
    """All of the families' types with fewer cpus."""
    return [t for t in _real_types() if int(t["capacity"]["cpu"]) < cpus]


@functools.cache
def _real_types() -> list[J]:
    """The families' types, as the embedded catalogue had them for a plain AL2023 NodeClass, with made up spot prices."""
    return [_of_catalogue(row) for row in json.loads(Path(__file__).with_name("real_types.json").read_text())]


def _of_catalogue(row: J) -> J:
    return {
        "name": row["name"],
        "requirements": [
            one_of(TYPE, row["name"]),
            one_of(ARCH, row["arch"]),
            one_of(OS, "linux"),
            one_of(ZONE, *ZONES),
            one_of(CT, "on-demand", "spot"),
            one_of(CPUS_LABEL, row["capacity"]["cpu"]),
            one_of(CATEGORY, row["category"]),
            one_of(FAMILY, row["family"]),
            one_of(GENERATION, row["generation"]),
        ],
        "capacity": row["capacity"],
        "overhead": row["overhead"],
        "offerings": [
            {
                "price": round(row["usd"] * (0.4 + 0.01 * i), 6) if kind == "spot" else row["usd"],
                "available": True,
                "requirements": [one_of(ZONE, zone), one_of(CT, kind)],
            }
            for kind in ("on-demand", "spot")
            for i, zone in enumerate(ZONES)
        ],
    }


def _type(name: str, family: str, cpu: int, memory: int, arch: str, usd: float, more: dict[str, str] | None = None) -> J:
    zones = ZONES if name != "g16" else ZONES[:2]
    offerings: list[dict[str, Any]] = [
        {
            "price": round(usd * (0.4 + 0.02 * i if kind == "spot" else 1), 5),
            "available": True,
            "requirements": [one_of(ZONE, zone), one_of(CT, kind)],
        }
        for kind in ("on-demand", "spot")
        for i, zone in enumerate(zones)
        if not (kind == "spot" and zone == "zone-c")
    ]
    return {
        "name": name,
        "requirements": [
            one_of(TYPE, name),
            one_of(ARCH, arch),
            one_of(OS, "linux"),
            one_of(ZONE, *zones),
            one_of(CT, "on-demand", "spot"),
            one_of(CPUS_LABEL, str(cpu)),
            one_of(CATEGORY, family),
        ],
        "capacity": {"cpu": str(cpu), "memory": f"{memory}Gi", "pods": "12" if cpu < 4 else "40", **(more or {})},
        "overhead": {"cpu": "80m", "memory": "200Mi"},
        "offerings": offerings,
    }
