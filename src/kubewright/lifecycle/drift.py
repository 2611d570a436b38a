"""Drift: a machine that is not any more what its NodePool, its catalogue or its NodeClass would buy today.

Source: spec/disruption 3.3.
"""

from datetime import datetime, timedelta

from kubewright.api import labels
from kubewright.api.karpenter import NodeClaim, NodePool
from kubewright.api.meta import Labels
from kubewright.catalogue.types import Offering
from kubewright.lifecycle import claims
from kubewright.scheduling.requirement import DOES_NOT_EXIST, NOT_IN, Requirement
from kubewright.scheduling.requirements import of_expressions
from kubewright.solver.problem import Pool

POLL = timedelta(minutes=5)
"""How often a claim is looked at anew when nothing of it has changed: catalogues and clouds change without a word."""
TYPES_AFTER = timedelta(hours=1)
"""A claim's instance type is not doubted before it is this old."""

NODE_POOL = "NodePoolDrifted"
REQUIREMENTS = "RequirementsDrifted"
INSTANCE_TYPE = "InstanceTypeNotFound"


def reason(claim: NodeClaim, pool: Pool, now: datetime) -> str:
    """Why the machine has drifted by what Kubernetes and the catalogue say, "" if it has not; what the cloud says comes after."""
    if _by_hash(claim, pool.node_pool):
        return NODE_POOL
    if _by_requirements(claim, pool.node_pool):
        return REQUIREMENTS
    created = claim.metadata.creation_timestamp
    if created is not None and now - created > TYPES_AFTER and pool.instance_types and not is_offered(claim, pool):
        return INSTANCE_TYPE
    return ""


def marked(claim: NodeClaim, why: str, now: datetime) -> NodeClaim:
    """The claim with its Drifted condition set for `why`, or cleared for "". The first drift keeps its time."""
    if not why:
        return claims.without_condition(claim, claims.DRIFTED)
    return claims.with_condition(claim, claims.DRIFTED, "True", why, why, now=now)


def is_offered(claim: NodeClaim, pool: Pool) -> bool:
    """Whether the pool's catalogue still has the claim's type in its zone and capacity type, for sale or not."""
    carried = claim.metadata.labels
    kind = next((t for t in pool.instance_types if t.name == carried.get(labels.INSTANCE_TYPE, "")), None)
    return kind is not None and any(_suits(o, carried) for o in kind.offerings)


def _by_hash(claim: NodeClaim, pool: NodePool) -> bool:
    """Only hashes of one version can be compared; where one is missing nothing has drifted."""
    ours, theirs = claim.metadata.annotations, pool.metadata.annotations
    value, version = labels.NODEPOOL_HASH, labels.NODEPOOL_HASH_VERSION
    known = all(key in held for held in (ours, theirs) for key in (value, version))
    return known and ours[version] == theirs[version] and ours[value] != theirs[value]


def _by_requirements(claim: NodeClaim, pool: NodePool) -> bool:
    wanted = of_expressions(pool.spec.template.spec.requirements)
    return any(not _holds(one, claim.metadata.labels) for one in wanted.values())


def _holds(wanted: Requirement, carried: Labels) -> bool:
    value = carried.get(wanted.key)
    if value is None:
        return wanted.operator in (NOT_IN, DOES_NOT_EXIST) and wanted.at_least is None and wanted.at_most is None
    return wanted.has(value)


def _suits(offering: Offering, carried: Labels) -> bool:
    if carried.get(labels.CAPACITY_TYPE) == labels.RESERVED:
        # A reservation may have ended under the machine, which then runs on as on-demand.
        same = offering.zone == carried.get(labels.ZONE, offering.zone)
        return same and offering.capacity_type in (labels.RESERVED, labels.ON_DEMAND)
    return all(key not in carried or wanted.has(carried[key]) for key, wanted in offering.requirements.items())
