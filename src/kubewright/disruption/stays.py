"""Why a node stays: one value that events, conditions, metrics and `kubewright explain node` are made of.

Texts are Karpenter's where it has one, since people grep for them. Source: spec/disruption 1.3, 3.6, 8.2.
"""

import enum
from collections.abc import Mapping

import msgspec


class Because(enum.StrEnum):
    """The closed list of reasons for which a node is not disrupted."""

    NOT_MANAGED = "not-managed"
    IN_HAND = "command-under-way"
    NOT_REGISTERED = "not-registered"
    NOT_INITIALIZED = "not-initialized"
    GOING = "going"
    NOMINATED = "nominated"
    DO_NOT_DISRUPT = "do-not-disrupt"
    FROZEN = "frozen"
    SILENT = "stale-watch"
    NO_POOL = "no-pool"
    POD_PINNED = "pod-do-not-disrupt"
    PDB = "pdb"
    PDB_NEVER = "pdb-never"
    PDBS = "several-pdbs"
    BUDGET = "budget"
    STATIC = "static-pool"
    NEVER = "consolidation-off"
    POLICY = "consolidation-policy"
    NOT_QUIET = "consolidate-after"
    UNKNOWN_MACHINE = "unknown-machine"
    BUFFER = "capacity-buffer"
    NO_HOME = "pods-without-another-home"
    NOT_CHEAPER = "no-cheaper-machine"
    SPOT_TO_SPOT = "spot-to-spot-off"
    FLEXIBILITY = "too-few-cheaper-types"
    MIN_VALUES = "min-values"
    SAME = "same-machine"
    UNBALANCED = "not-worth-the-disturbance"
    WAITING = "waits-for-nodes-on-their-way"
    LIMITS = "pool-limits"
    BREAKER = "drift-breaker"
    UNREACHED = "not-looked-at-yet"
    NOT_DRIFTED = "not-drifted"


class Stay(msgspec.Struct, frozen=True):
    """One reason; facts are for programs, `text` for people."""

    because: Because
    text: str
    facts: Mapping[str, str] = {}
    """By name: pod, pdb, nodepool, budget, opens (RFC 3339), due (RFC 3339), saves_usd_per_hour, costs, score, …"""
    event: str = "Unconsolidatable"
    """Reason of the event on the Node and the NodeClaim; "" where nobody wants to hear of it."""
