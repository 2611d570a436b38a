"""A planned claim as the NodeClaim object that the API server is given, and the text that people read about a plan.

Source: spec/scheduling 3.8, 3.9.
"""

import hashlib
from collections.abc import Collection
from datetime import datetime

from kubewright.api import hash as pool_hash
from kubewright.api import labels, quantity
from kubewright.api.karpenter import NodeClaim, NodeClaimSpec, NodePool, ResourceRequests
from kubewright.api.meta import ObjectMeta, OwnerReference
from kubewright.scheduling import requirements
from kubewright.solver.problem import PlannedClaim

ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""What the API server makes random names of: no vowels, so no words; nothing that looks like another letter."""
SUFFIX = 5
NAME_LIMIT = 63
BINARY = frozenset({"memory", "ephemeral-storage"})


def name_for(planned: PlannedClaim, now: datetime, taken: Collection[str]) -> str:
    """`<pool>-xxxxx`, the same for the same plan at the same moment, and not among `taken`.

    A name of our own, not the server's, makes the create safe to repeat.
    """
    facts = " ".join((planned.node_pool, planned.name, now.isoformat(), *planned.pods))
    attempt = 0
    while True:
        number = int.from_bytes(hashlib.sha256(f"{attempt} {facts}".encode()).digest())
        suffix = ""
        for _ in range(SUFFIX):
            number, letter = divmod(number, len(ALPHABET))
            suffix += ALPHABET[letter]
        name = f"{planned.node_pool[: NAME_LIMIT - SUFFIX - 1]}-{suffix}"
        if name not in taken:
            return name
        attempt += 1


def node_claim(planned: PlannedClaim, pool: NodePool, name: str) -> NodeClaim:
    """The object to create. It has our finalizer from the start, so that nothing is bought for a claim that may vanish.

    `pool` is the NodePool as it was planned from: its hash says what the machine was bought as.
    """
    owner = OwnerReference(
        api_version=NodePool.RESOURCE.api_version,
        kind=NodePool.RESOURCE.kind,
        name=pool.name,
        uid=pool.metadata.uid,
        block_owner_deletion=True,
    )
    relaxed = "true" if planned.min_values_relaxed else "false"
    return NodeClaim(
        metadata=ObjectMeta(
            name=name,
            labels=dict(planned.labels),
            annotations={
                **planned.annotations,
                labels.NODEPOOL_HASH: pool_hash.node_pool_hash(pool),
                labels.NODEPOOL_HASH_VERSION: pool_hash.NODE_POOL_HASH_VERSION,
                labels.MIN_VALUES_RELAXED: relaxed,
            },
            finalizers=(labels.TERMINATION_FINALIZER,),
            owner_references=(owner,),
        ),
        spec=NodeClaimSpec(
            node_class_ref=pool.spec.template.spec.node_class_ref,
            requirements=tuple(
                written for key in sorted(planned.requirements) for written in requirements.expressions(planned.requirements[key])
            ),
            resources=ResourceRequests(
                requests={
                    key: quantity.show(amount, binary=key in BINARY) for key, amount in sorted(planned.requests.items()) if amount
                }
            ),
            taints=planned.taints,
            startup_taints=planned.startup_taints,
            expire_after=planned.expire_after,
            termination_grace_period=planned.termination_grace_period,
        ),
    )


def types_text(planned: PlannedClaim) -> str:
    """The first five instance types, as logs show them."""
    shown = ", ".join(planned.instance_types[:5])
    more = len(planned.instance_types) - 5
    return f"{shown} and {more} other(s)" if more > 0 else shown
