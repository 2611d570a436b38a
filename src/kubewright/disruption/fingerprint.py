"""Whether a cluster is still the one in which nothing was found: then nothing needs to be looked for.

Source: spec/disruption 7.5 (the reference keeps a time stamp of changes; this one is made of the objects' own versions, so it
misses nothing). A fingerprint lasts five minutes at most, since some reasons pass with time alone.
"""

import hashlib
from collections.abc import Iterable, Iterator
from datetime import timedelta

from kubewright.catalogue.types import InstanceType
from kubewright.disruption.budgets import Budgets
from kubewright.disruption.memory import Memory
from kubewright.lifecycle import state
from kubewright.solver.problem import Snapshot, StateNode

LASTS = timedelta(minutes=5)


def fingerprint(snapshot: Snapshot, left: Budgets, memory: Memory) -> str:
    """The same for the same cluster; "" where objects have no versions, as in files.

    Cost: one hash over the versions of everything.
    """
    digest = hashlib.sha256()
    bucket = int(snapshot.now.timestamp() // LASTS.total_seconds())
    parts = [
        str(bucket),
        *sorted(memory.queued),
        *sorted(memory.resting),
        *(f"{name}={n}" for name, n in sorted(left.left.items())),
    ]
    for node in snapshot.nodes:
        versions = _versions(node)
        if "" in versions:
            return ""
        nominated = node.nominated_until is not None and node.nominated_until > snapshot.now
        parts += (state.name(node), *versions, f"{node.marked_for_deletion}{nominated}{node.virtual_pods}")
    parts += (f"{p.key}@{p.metadata.resource_version}" for p in snapshot.pods)
    around = snapshot.surroundings
    for kind in (around.budgets, around.daemon_sets, around.claims, around.volumes):
        parts += (f"{one.key}@{one.metadata.resource_version}" for one in kind)
    for pool in snapshot.pools:
        meta = pool.node_pool.metadata
        parts += (meta.name, meta.resource_version, str(meta.generation), pool.problem)
    digest.update("\n".join(parts).encode())
    seen: list[object] = []
    for pool in snapshot.pools:
        if not any(pool.instance_types is one for one in seen):
            seen.append(pool.instance_types)
            digest.update("\n".join(_offers(pool.instance_types)).encode())
    return digest.hexdigest()


def _versions(node: StateNode) -> list[str]:
    found = [o.metadata.resource_version for o in (node.node, node.claim) if o is not None]
    return [*found, *(p.metadata.resource_version for p in node.pods)]


def _offers(types: Iterable[InstanceType]) -> Iterator[str]:
    for kind in types:
        yield f"{kind.name} {' '.join(f'{o.price}{o.available}{o.reservation_capacity}' for o in kind.offerings)}"
