"""Capacity reservations and placement groups."""

from datetime import datetime

from kubewright.cloud.aws.api.wire import Aws, Filter, Page, PagedRequest, Tag


class CapacityReservation(Aws, frozen=True, kw_only=True):
    capacity_reservation_id: str
    owner_id: str = ""
    instance_type: str = ""
    availability_zone: str = ""
    total_instance_count: int = 0
    available_instance_count: int = 0
    state: str = ""
    end_date: datetime | None = None
    instance_match_criteria: str = ""
    reservation_type: str = ""
    """"default" or "capacity-block"."""
    interruptible: bool = False
    tenancy: str = ""
    tags: tuple[Tag, ...] = ()


class DescribeCapacityReservations(PagedRequest, frozen=True, kw_only=True):
    """Ids and `max_results` exclude each other, as in EC2."""

    capacity_reservation_ids: tuple[str, ...] = ()
    filters: tuple[Filter, ...] = ()


class CapacityReservationsPage(Page, frozen=True, kw_only=True):
    capacity_reservations: tuple[CapacityReservation, ...] = ()


class PlacementGroup(Aws, frozen=True, kw_only=True):
    group_id: str
    group_name: str = ""
    state: str = ""
    strategy: str = ""
    """"cluster", "partition" or "spread"."""
    partition_count: int = 0
    spread_level: str = ""


class DescribePlacementGroups(Aws, frozen=True, kw_only=True):
    group_ids: tuple[str, ...] = ()
    group_names: tuple[str, ...] = ()
    filters: tuple[Filter, ...] = ()


class PlacementGroupsAnswer(Aws, frozen=True, kw_only=True):
    placement_groups: tuple[PlacementGroup, ...] = ()
