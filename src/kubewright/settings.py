"""Frozen settings with the reference's defaults; flags and environment are read elsewhere (`operator`).

Source: spec/scheduling 12.3.
"""

import enum
from datetime import timedelta

import msgspec


class PreferencePolicy(enum.StrEnum):
    RESPECT = "Respect"
    IGNORE = "Ignore"


class MinValuesPolicy(enum.StrEnum):
    STRICT = "Strict"
    BEST_EFFORT = "BestEffort"


class Packing(enum.StrEnum):
    FIRST_FIT = "first-fit"
    IMPROVE = "improve"


class NodeCount(enum.StrEnum):
    """Which of plans that cost about the same is taken."""

    CHEAPEST = ""
    FEWER = "fewer"
    MORE = "more"


class FeatureGates(msgspec.Struct, frozen=True):
    node_repair: bool = False
    reserved_capacity: bool = True
    spot_to_spot_consolidation: bool = False
    node_overlay: bool = False
    static_capacity: bool = False
    capacity_buffer: bool = False


class PriceRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of people's own price list: what matching machines cost them, and how far that goes. See `catalogue.prices`."""

    name: str = ""
    instance_type: str = ""
    """"" for every type (of the family); with a family and a bound, the size that is counted in."""
    family: str = ""
    """What stands before the dot in a type's name; "" for every family."""
    zone: str = ""
    capacity_type: str = "on-demand"
    usd_per_hour: float | None = None
    """Of one machine."""
    discount: float | None = None
    """Share of the list price that is not paid: 0.28 is 28 %."""
    up_to_instances: float | None = None
    """Reserved instances: so many machines have the price, further ones the list price."""
    up_to_usd_per_hour: float | None = None
    """A savings plan: so many dollars an hour are spent at the price, what is beyond at the list price."""
    paid_anyway: bool = False
    """Used or not, it is paid: choosing counts it as free."""

    @property
    def is_limited(self) -> bool:
        return self.up_to_instances is not None or self.up_to_usd_per_hour is not None


class DisruptionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How willing the operator is to move pods; the NodePools' own settings stand above it."""

    frozen: bool = False
    """No voluntary disruption at all: the freeze switch of the whole cluster."""
    balance: float = 2.0
    """A move in a pool that is `Balanced` must gain at least 1/balance of what its disturbance is worth (the reference's k)."""
    least_score: float = 0.1
    """The same for other policies, as a share: such a move must gain at least a tenth of what its disturbance is worth."""
    settled_after: timedelta = timedelta(hours=1)
    """A node younger than this, or whose pods came or went more recently, costs more to move, the more so the newer."""
    unrest: float = 5.0
    """How many times as much on top it costs just then; once in `Balanced` pools."""
    steering: bool = True
    """Whether nodes that are next in line to be emptied get a soft taint, so that pods that move do not move there."""
    search_steps: int = 300_000
    """Budget of one search for nodes to consolidate, in places looked at; only `operator` turns seconds into steps."""
    surge: int = 1
    """Nodes that a pool may have beyond its limits while drifted ones are being replaced; a NodePool's annotation wins."""
    failed_joins: int = 3
    """So many machines of a pool in a row that did not join stop the drift of that pool."""


class PurchaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is bought, watched afterwards, and bounded."""

    unused_after: timedelta = timedelta(minutes=5)
    """A node that no pod has come to this long after it was initialized was bought in vain."""
    spend_cap_usd_per_hour: float = 0.0
    """Of all machines together, as planned; 0: no cap."""
    per_hour: int = 0
    """Machines bought within any hour for pods that wait; 0: no cap."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What decides how the operator behaves; every field has the reference's default."""

    cluster_name: str = ""
    batch_max_duration: timedelta = timedelta(seconds=10)
    batch_idle_duration: timedelta = timedelta(seconds=1)
    preference_policy: PreferencePolicy = PreferencePolicy.RESPECT
    min_values_policy: MinValuesPolicy = MinValuesPolicy.STRICT
    ignore_dra_requests: bool = True
    scheduler_config: str = ""
    """YAML with `podTopologySpread.defaultConstraints`, for pods that write no spread constraint; "" for none."""
    packing: Packing = Packing.IMPROVE
    packing_steps: int = 10_000
    """Budget of the improver in steps for a small batch; only `operator` turns seconds into steps."""
    packing_steps_most: int = 40_000
    """What it grows to with the batch."""
    packing_node_usd: float = 0.0
    """What a node costs an hour beyond its price: licences, agents."""
    packing_node_cpu: int = 48
    """Largest machine, in vCPU, that is bought for pods that a smaller one takes; 0: any. See docs/decisions/004."""
    packing_workload_share: float = 0.5
    """Largest share of a workload's pods on one new node, as long as that is not dearer than first fit; 1: no limit."""
    packing_nodes: NodeCount = NodeCount.CHEAPEST
    packing_nodes_within: float = 0.01
    """By which share of the least cost a plan with fewer, or more, nodes may be dearer."""
    packing_slack: float = 0.0
    """Share of a new node's cpu and memory that is left free before pods are packed tightly."""
    launch_price_share: float = 0.1
    """By which share of the planned price a type may be dearer that a spot claim names."""
    launch_least_pools: int = 15
    """Spot pools (a type in a zone) that a claim names, if dear ones are needed for it."""
    vm_memory_overhead_percent: float = 0.075
    """Share of a machine's memory that the hypervisor keeps (AWS)."""
    prices: tuple[PriceRow, ...] = ()
    """People's own prices and commitments; of several rows that match, the first counts."""
    feature_gates: FeatureGates = FeatureGates()
    disruption: DisruptionSettings = DisruptionSettings()
    purchases: PurchaseSettings = PurchaseSettings()
