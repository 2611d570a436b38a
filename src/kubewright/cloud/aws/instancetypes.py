"""The instance types of a NodeClass, with their offerings: built once, and rebuilt only where something changed.

Source: spec/aws 5, 6.1.
"""

from collections.abc import Mapping, Sequence

import msgspec

from kubewright.api import aws_labels, labels
from kubewright.api.aws import EC2NodeClass
from kubewright.catalogue.types import InstanceType, Offering
from kubewright.cloud.aws import capacity, shapes
from kubewright.cloud.aws.api import InstanceTypeInfo
from kubewright.cloud.aws.capacity import Sizing
from kubewright.cloud.aws.catalogue import Region
from kubewright.cloud.aws.prices import Prices
from kubewright.cloud.aws.unavailable import UnavailableOfferings
from kubewright.scheduling.requirement import Requirement

EBS_DRIVER = "ebs.csi.aws.com"
_SHARED_ATTACHMENTS = 27
"""Attachments of a type that EC2 names no number for."""
_ACCELERATORS = (
    aws_labels.NEURON,
    aws_labels.NEURON_CORE,
    aws_labels.AMD_GPU,
    aws_labels.NVIDIA_GPU,
    aws_labels.HABANA_GAUDI,
)


class Market(msgspec.Struct, frozen=True):
    """What a region sells; replaced whole by discovery."""

    region: str
    types: tuple[InstanceTypeInfo, ...]
    offered: Region
    sizing: Sizing
    network_mbps: Mapping[str, int] = {}


class _Base(msgspec.Struct, frozen=True):
    """What does not depend on prices and marks."""

    info: InstanceTypeInfo
    requirements: Mapping[str, Requirement]
    capacity: Mapping[str, int]
    overhead: Mapping[str, int]
    zones: tuple[str, ...]
    incompatible: str


class _Listing:
    """The types of one kind of NodeClass, and what they were built from."""

    def __init__(self, market: Market, bases: Sequence[_Base]) -> None:
        self.market = market
        self.bases = bases
        self.prices: Prices | None = None
        self.version = -1
        self.types: tuple[InstanceType, ...] = ()
        self.outs: dict[str, tuple[str, ...]] = {}


class InstanceTypes:
    """`of(node_class)` gives the same tuple as long as nothing that it shows changed, whichever NodeClass asks."""

    def __init__(self, unavailable: UnavailableOfferings) -> None:
        self._unavailable = unavailable
        self._listings: dict[bytes, _Listing] = {}

    def of(self, node_class: EC2NodeClass, market: Market, prices: Prices, version: int) -> tuple[InstanceType, ...]:
        """All types, unavailable ones too, by name; `version` is `UnavailableOfferings.version(now)`.

        Cost: nothing if nothing changed; after a mark, only the types it concerns.
        """
        key = _key(node_class)
        listing = self._listings.get(key)
        if listing is None or listing.market is not market:
            listing = self._listings[key] = _Listing(market, _bases(node_class, market))
        if listing.prices is prices and listing.version == version:
            return listing.types
        subnets = _subnets(node_class)
        full = frozenset(zone for zone, ids in subnets.items() if all(map(self._unavailable.subnet_is_full, ids)))
        old = {t.name: t for t in listing.types} if listing.prices is prices else {}
        outs, types, changed = {}, [], len(old) != len(listing.bases)
        for base in listing.bases:
            name = base.info.instance_type
            outs[name] = out = self._outs(base, full)
            before = old.get(name) if listing.outs.get(name) == out else None
            changed = changed or before is None
            types.append(before or _with_offerings(base, out, prices, node_class))
        if changed:
            listing.types = tuple(types)
        listing.prices, listing.version, listing.outs = prices, version, outs
        return listing.types

    def _outs(self, base: _Base, full: frozenset[str]) -> tuple[str, ...]:
        """For every (capacity type, zone) why it is out, "" where it is not."""
        name = base.info.instance_type
        return tuple(
            base.incompatible
            or ("every subnet of the zone is full" if zone in full else self._unavailable.because(capacity_type, name, zone))
            for capacity_type in shapes.capacity_types(base.info)
            for zone in base.zones
        )


def _key(node_class: EC2NodeClass) -> bytes:
    """Everything of a NodeClass that shows in its types."""
    spec, status = node_class.spec, node_class.status
    parts = (
        node_class.ami_family,
        spec.kubelet,
        spec.block_device_mappings,
        spec.instance_store_policy,
        spec.network_interfaces,
        sorted((s.zone, s.zone_id, s.id) for s in status.subnets),
    )
    return msgspec.json.encode(parts, order="deterministic")


def _subnets(node_class: EC2NodeClass) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for subnet in node_class.status.subnets:
        found.setdefault(subnet.zone, []).append(subnet.id)
    return found


def _bases(node_class: EC2NodeClass, market: Market) -> list[_Base]:
    zone_ids = {s.zone: s.zone_id for s in node_class.status.subnets}
    found = []
    for info in market.types:
        if not shapes.architecture(info) or not shapes.capacity_types(info):
            continue
        zones = tuple(z for z in market.offered.zones_of(info.instance_type) if z in zone_ids)
        named = shapes.type_labels(info, market.region, market.network_mbps)
        found.append(
            _Base(
                info,
                shapes.requirements(named, zones, (zone_ids[z] for z in zones), shapes.capacity_types(info)),
                capacity.capacity(info, node_class, market.sizing),
                capacity.overhead(info, node_class, market.sizing),
                zones,
                incompatible(info, node_class),
            )
        )
    return sorted(found, key=lambda b: b.info.instance_type)


def incompatible(info: InstanceTypeInfo, node_class: EC2NodeClass) -> str:
    """Why the NodeClass cannot use the type, "" if it can. Source: spec/aws 5.5."""
    family = info.instance_type.partition(".")[0]
    if node_class.ami_family == "AL2023" and family == "a1":
        return "AL2023 does not run on a1"
    cards = {c.network_card_index: c.maximum_network_interfaces for c in info.network_info.network_cards}
    interfaces = node_class.spec.network_interfaces or ()
    if interfaces and info.network_info.ena_support in ("", "unsupported"):
        return "the type has no ENA for the NodeClass's networkInterfaces"
    for i in interfaces:
        if i.device_index >= cards.get(i.network_card_index, 0):
            return f"the type has no network card {i.network_card_index} with device {i.device_index}"
    efa = sum(1 for i in interfaces if i.interface_type == "efa-only")
    if efa > info.network_info.efa_info.maximum_efa_interfaces:
        return f"the NodeClass wants {efa} EFA interfaces, the type has {info.network_info.efa_info.maximum_efa_interfaces}"
    return ""


def _with_offerings(base: _Base, outs: Sequence[str], prices: Prices, node_class: EC2NodeClass) -> InstanceType:
    zone_ids = {s.zone: s.zone_id for s in node_class.status.subnets}
    places = [(c, z) for c in shapes.capacity_types(base.info) for z in base.zones]
    offerings = []
    for (capacity_type, zone), out in zip(places, outs, strict=True):
        price = prices.of(base.info.instance_type, zone, capacity_type)
        because = out or ("" if price is not None else "nobody names a price for it")
        offerings.append(
            Offering(
                _place(zone, zone_ids[zone], capacity_type), price or 0.0, available=not because, unavailable_because=because
            )
        )
    offerings.sort(key=lambda o: (o.price, o.capacity_type, o.zone))
    return InstanceType(
        base.info.instance_type,
        base.requirements,
        tuple(offerings),
        base.capacity,
        base.overhead,
        is_exotic(base.info.instance_type, base.capacity),
        {EBS_DRIVER: ebs_limit(base.info, node_class)},
    )


def is_exotic(name: str, capacity: Mapping[str, int]) -> bool:
    """Whether the type is a metal machine or has accelerators. Source: spec/aws 7.2."""
    return "metal" in name.partition(".")[2] or any(capacity.get(r, 0) for r in _ACCELERATORS)


def ebs_limit(info: InstanceTypeInfo, node_class: EC2NodeClass) -> int:
    """EBS volumes that pods can have attached: what EC2 names less the node's own disks and, where shared, further interfaces.

    EC2's number has the first network interface and local disks taken off already: it names 27 where 28 are shared. The driver
    says its own once the node runs, and that counts then. Source: EC2 user guide, volume limits; DescribeInstanceTypes, EbsInfo.
    """
    most = info.ebs_info.maximum_ebs_attachments or _SHARED_ATTACHMENTS
    own = len(node_class.spec.block_device_mappings or ()) or (2 if node_class.ami_family == "Bottlerocket" else 1)
    if info.ebs_info.attachment_limit_type != "dedicated":
        own += max(0, len(node_class.spec.network_interfaces or ()) - 1)
    return max(1, most - own)


_PLACES: dict[tuple[str, str, str], dict[str, Requirement]] = {}


def _place(zone: str, zone_id: str, capacity_type: str) -> dict[str, Requirement]:
    """One shared mapping per place, since thousands of offerings stand in it."""
    found = _PLACES.get((zone, zone_id, capacity_type))
    if found is None:
        values = {labels.ZONE: zone, labels.CAPACITY_TYPE: capacity_type, aws_labels.ZONE_ID: zone_id}
        found = {key: Requirement(key, frozenset((v,) if v else ())) for key, v in values.items()}
        for key in (
            aws_labels.CAPACITY_RESERVATION_ID,
            aws_labels.CAPACITY_RESERVATION_TYPE,
            aws_labels.CAPACITY_RESERVATION_INTERRUPTIBLE,
        ):
            found[key] = Requirement(key)
        _PLACES[zone, zone_id, capacity_type] = found
    return found
