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


class FeatureGates(msgspec.Struct, frozen=True):
    node_repair: bool = False
    reserved_capacity: bool = True
    spot_to_spot_consolidation: bool = False
    node_overlay: bool = False
    static_capacity: bool = False
    capacity_buffer: bool = False


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What decides how the operator behaves; every field has the reference's default."""

    cluster_name: str = ""
    batch_max_duration: timedelta = timedelta(seconds=10)
    batch_idle_duration: timedelta = timedelta(seconds=1)
    preference_policy: PreferencePolicy = PreferencePolicy.RESPECT
    min_values_policy: MinValuesPolicy = MinValuesPolicy.STRICT
    ignore_dra_requests: bool = True
    packing: Packing = Packing.FIRST_FIT
    packing_steps: int = 20_000
    """Budget of the improver in steps; only `operator` turns seconds into steps."""
    vm_memory_overhead_percent: float = 0.075
    """Share of a machine's memory that the hypervisor keeps (AWS)."""
    feature_gates: FeatureGates = FeatureGates()
