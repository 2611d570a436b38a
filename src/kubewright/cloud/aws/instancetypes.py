"""The instance types of a NodeClass, with their offerings: built once, and rebuilt only where something changed.

Source: spec/aws 5, 6.1.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from kubewright.api import aws_labels, labels
from kubewright.api.aws import CapacityReservation, EC2NodeClass
from kubewright.catalogue.types import InstanceType, Offering
from kubewright.cloud.aws import amis, capacity, shapes
from kubewright.cloud.aws.api import InstanceTypeInfo, PlacementGroup
from kubewright.cloud.aws.capacity import Sizing, family_of
from kubewright.cloud.aws.catalogue import Region
from kubewright.cloud.aws.observed import Learned, Observed
from kubewright.cloud.aws.prices import Prices
from kubewright.cloud.aws.reservations import ReservationCounts, is_expiring
from kubewright.cloud.aws.unavailable import UnavailableOfferings
from kubewright.scheduling.requirement import Requirement

RESERVED_DIVISOR = 10_000_000
"""Reserved capacity is paid for already; it still has an order among itself. Source: spec/aws 6.2."""
MOST_LISTINGS = 32
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
    reserved: tuple[CapacityReservation, ...] = ()
    learned: Learned | None = None


class _Listing:
    """The types of one kind of NodeClass, and what they were built from."""

    def __init__(self, market: Market, bases: Sequence[_Base]) -> None:
        self.market = market
        self.bases = bases
        self.prices: Prices | None = None
        self.version: object = None
        self.learned = -1
        self.types: tuple[InstanceType, ...] = ()
        self.outs: dict[str, tuple[object, ...]] = {}


class InstanceTypes:
    """`of(node_class)` gives the same tuple as long as nothing that it shows changed, whichever NodeClass asks."""

    def __init__(self, unavailable: UnavailableOfferings, reservations: ReservationCounts, observed: Observed) -> None:
        self._unavailable = unavailable
        self._reservations = reservations
        self._observed = observed
        self._listings: dict[bytes, _Listing] = {}

    def of(
        self,
        node_class: EC2NodeClass,
        market: Market,
        prices: Prices,
        now: datetime,
        group: PlacementGroup | None = None,
        *,
        reserved: bool = True,
    ) -> tuple[InstanceType, ...]:
        """All types, unavailable ones too, by name; `reserved`: reserved capacity is sold.

        Cost: nothing if nothing changed; after a mark, only the types it concerns.
        """
        reservations = node_class.status.capacity_reservations if reserved else ()
        key = _key(node_class, reservations, group)
        listing = self._listings.get(key)
        if listing is None or listing.market is not market:
            listing = self._listings[key] = _Listing(market, _bases(node_class, market, reservations, group))
            while len(self._listings) > MOST_LISTINGS:
                del self._listings[next(iter(self._listings))]
        if listing.learned != self._observed.version:
            self._learn(listing, node_class)
        expiring = tuple(r.id for r in reservations if is_expiring(r.reservation_type, r.end_time, now))
        version = (self._unavailable.version(now), self._reservations.version, self._observed.version, expiring)
        if listing.prices is prices and listing.version == version:
            return listing.types
        subnets = _subnets(node_class)
        full = frozenset(zone for zone, ids in subnets.items() if all(map(self._unavailable.subnet_is_full, ids)))
        old = {t.name: t for t in listing.types} if listing.prices is prices else {}
        outs, types, changed = {}, [], len(old) != len(listing.bases)
        for base in listing.bases:
            name = base.info.instance_type
            outs[name] = out = self._outs(base, full, group, expiring)
            before = old.get(name) if listing.outs.get(name) == out else None
            changed = changed or before is None
            types.append(before or _with_offerings(base, out, prices, node_class))
        if changed:
            listing.types = tuple(types)
        listing.prices, listing.version, listing.outs = prices, version, outs
        return listing.types

    def _learn(self, listing: _Listing, node_class: EC2NodeClass) -> None:
        """Put what nodes have told in the place of estimates."""
        listing.learned = self._observed.version
        bases = []
        for base in listing.bases:
            ami = amis.for_requirements(node_class.status.amis, base.requirements)
            found = self._observed.of(base.info.instance_type, ami.id, node_class) if ami is not None else None
            if found == base.learned:
                bases.append(base)
                continue
            bases.append(_learned(base, found, node_class, listing.market.sizing))
        listing.bases = bases

    def _outs(
        self, base: _Base, full: frozenset[str], group: PlacementGroup | None, expiring: tuple[str, ...]
    ) -> tuple[object, ...]:
        """For every (capacity type, zone), then every reservation, why it is out, "" where it is not; what else can change."""
        name, scope = base.info.instance_type, group.group_id if group else ""
        full_text = "every subnet of the zone is full"
        sold = [
            base.incompatible or (full_text if zone in full else self._unavailable.because(capacity_type, name, zone, scope))
            for capacity_type in shapes.capacity_types(base.info)
            for zone in base.zones
        ]
        reserved: list[object] = []
        for r in base.reserved:
            left, zone = self._reservations.left(r.id), r.availability_zone
            because = base.incompatible or self._unavailable.shifted(zone)
            if not because and zone not in base.zones:
                because = "the NodeClass has no subnet in the reservation's zone"
            elif not because and zone in full:
                because = full_text
            elif not because and r.id in expiring:
                because = "the capacity block ends"
            elif not because and not left:
                because = "the reservation is used up"
            reserved.append((because, left))
        return (*sold, *reserved, base.learned)


def _learned(base: _Base, found: Learned | None, node_class: EC2NodeClass, sizing: Sizing) -> _Base:
    whole = capacity.capacity(base.info, node_class, sizing)
    kept = capacity.overhead(base.info, node_class, sizing)
    if found is not None:
        whole["memory"] = found.memory
        kept["memory"] = found.kept_memory
    return msgspec.structs.replace(base, capacity=whole, overhead=kept, learned=found)


def _key(node_class: EC2NodeClass, reservations: Sequence[CapacityReservation], group: PlacementGroup | None) -> bytes:
    """Everything of a NodeClass that shows in its types."""
    spec, status = node_class.spec, node_class.status
    parts = (
        node_class.ami_family,
        spec.kubelet,
        spec.block_device_mappings,
        spec.instance_store_policy,
        spec.network_interfaces,
        spec.connection_tracking,
        spec.cpu_options,
        sorted((s.zone, s.zone_id, s.id) for s in status.subnets),
        sorted(a.id for a in status.amis),
        reservations,
        group,
    )
    return msgspec.json.encode(parts, order="deterministic")


def _subnets(node_class: EC2NodeClass) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for subnet in node_class.status.subnets:
        found.setdefault(subnet.zone, []).append(subnet.id)
    return found


def _bases(
    node_class: EC2NodeClass,
    market: Market,
    reservations: Sequence[CapacityReservation],
    group: PlacementGroup | None,
) -> list[_Base]:
    zone_ids = {s.zone: s.zone_id for s in node_class.status.subnets}
    reserved: dict[str, list[CapacityReservation]] = {}
    for r in reservations:
        reserved.setdefault(r.instance_type, []).append(r)
    build = family_of(node_class).windows_build
    found = []
    for info in market.types:
        if not shapes.architecture(info) or not (shapes.capacity_types(info) or info.instance_type in reserved):
            continue
        zones = tuple(z for z in market.offered.zones_of(info.instance_type) if z in zone_ids)
        named = shapes.type_labels(info, market.region, market.network_mbps, build)
        ours = tuple(sorted(reserved.get(info.instance_type, ()), key=lambda r: r.id))
        sold = (*shapes.capacity_types(info), *((labels.RESERVED,) if ours else ()))
        asked = shapes.requirements(named, zones, (zone_ids[z] for z in zones), sold)
        if ours:
            asked |= _of_reservations(ours)
        if group is not None:
            asked |= _of_group(group)
        found.append(
            _Base(
                info,
                asked,
                capacity.capacity(info, node_class, market.sizing),
                capacity.overhead(info, node_class, market.sizing),
                zones,
                incompatible(info, node_class, group),
                ours,
            )
        )
    return sorted(found, key=lambda b: b.info.instance_type)


def _of_reservations(ours: Sequence[CapacityReservation]) -> dict[str, Requirement]:
    values = {
        aws_labels.CAPACITY_RESERVATION_ID: [r.id for r in ours],
        aws_labels.CAPACITY_RESERVATION_TYPE: [r.reservation_type for r in ours],
        aws_labels.CAPACITY_RESERVATION_INTERRUPTIBLE: [str(r.interruptible).lower() for r in ours],
    }
    return {key: Requirement(key, frozenset(found)) for key, found in values.items()}


def _of_group(group: PlacementGroup) -> dict[str, Requirement]:
    """Source: spec/aws 5.2. Only partition groups have partitions."""
    key = aws_labels.PLACEMENT_GROUP_ID
    found = {key: Requirement(key, frozenset((group.group_id,)))}
    if group.strategy == "partition":
        key = aws_labels.PLACEMENT_GROUP_PARTITION
        found[key] = Requirement(key, frozenset(str(n) for n in range(1, group.partition_count + 1)))
    return found


def incompatible(info: InstanceTypeInfo, node_class: EC2NodeClass, group: PlacementGroup | None = None) -> str:
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
    cpu = node_class.spec.cpu_options
    wants_nested = cpu is not None and cpu.nested_virtualization == "enabled"
    if wants_nested and "nested-virtualization" not in info.processor_info.supported_features:
        return "the type cannot do the nested virtualization that the NodeClass asks for"
    if group is not None and group.strategy not in info.placement_group_info.supported_strategies:
        return f"the type cannot be in a {group.strategy} placement group"
    if node_class.spec.connection_tracking is not None and info.hypervisor != "nitro":
        return "only Nitro types have the NodeClass's connectionTracking"
    if family_of(node_class).windows_build and shapes.architecture(info) != "amd64":
        return "Windows runs on amd64 only"
    return ""


def _with_offerings(base: _Base, outs: Sequence[Any], prices: Prices, node_class: EC2NodeClass) -> InstanceType:
    zone_ids = {s.zone: s.zone_id for s in node_class.status.subnets}
    places = [(c, z) for c in shapes.capacity_types(base.info) for z in base.zones]
    offerings = []
    for (capacity_type, zone), out in zip(places, outs, strict=False):
        price = prices.of(base.info.instance_type, zone, capacity_type)
        because = out or ("" if price is not None else "nobody names a price for it")
        offerings.append(
            Offering(
                _place(zone, zone_ids[zone], capacity_type), price or 0.0, available=not because, unavailable_because=because
            )
        )
    for r, (because, left) in zip(base.reserved, outs[len(places) :], strict=False):
        listed = prices.of(base.info.instance_type, r.availability_zone, labels.ON_DEMAND) or 0.0
        offerings.append(
            Offering(
                _reserved_place(r, zone_ids.get(r.availability_zone, "")),
                listed / RESERVED_DIVISOR,
                available=not because,
                reservation_capacity=left,
                unavailable_because=because,
            )
        )
    offerings.sort(key=lambda o: (o.price, o.capacity_type, o.zone, _reservation(o)))
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


def _reservation(offering: Offering) -> str:
    found = offering.requirements.get(aws_labels.CAPACITY_RESERVATION_ID)
    return min(found.values, default="") if found is not None else ""


def _reserved_place(r: CapacityReservation, zone_id: str) -> dict[str, Requirement]:
    return {**_place(r.availability_zone, zone_id, labels.RESERVED), **_of_reservations((r,))}


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
