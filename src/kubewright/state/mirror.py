"""The cluster as the watches tell it, kept joined and sorted so that a Snapshot costs only what has changed.

A machine is one StateNode: its NodeClaim and its Node, joined by providerID. Each is rebuilt when one of its parts changes and
shared between snapshots otherwise. Decisions live elsewhere. Source: spec/scheduling 4, spec/disruption 7.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from kubewright.api import labels
from kubewright.api.core import (
    CSINode,
    DaemonSet,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    ReplicaSet,
    Service,
    StatefulSet,
    StorageClass,
    VolumeAttachment,
)
from kubewright.api.karpenter import NodeClaim, NodeClassReference, NodeOverlay, NodePool
from kubewright.api.meta import Condition, Object, find_condition
from kubewright.catalogue.types import InstanceType
from kubewright.clock import Clock
from kubewright.cloud.provider import CloudProvider, node_class_types
from kubewright.kube.client import KubeClient
from kubewright.kube.informer import Informer
from kubewright.lifecycle import nodes, pods, state
from kubewright.lifecycle.pools import NodeClassState
from kubewright.settings import Settings
from kubewright.solver.committed import covered
from kubewright.solver.problem import Pool, Snapshot, StateNode, Surroundings
from kubewright.state.buffers import Buffers
from kubewright.state.correcting import Correcting

ASSUMED_FOR = timedelta(seconds=15)
"""How long a NodeClaim we created is believed in before a watch shows it. Source: spec/scheduling 4.8, state.nodeclaimgc."""

SILENT_FOR = timedelta(minutes=2)
"""The API server says something on every watch about once a minute, be it a bookmark; a watch silent twice as long is stale."""

T = TypeVar("T", bound=Object)

_SURROUNDINGS: Mapping[str, type[Object]] = {
    "daemon_sets": DaemonSet,
    "namespaces": Namespace,
    "services": Service,
    "replica_sets": ReplicaSet,
    "stateful_sets": StatefulSet,
    "claims": PersistentVolumeClaim,
    "volumes": PersistentVolume,
    "storage_classes": StorageClass,
    "csi_nodes": CSINode,
    "budgets": PodDisruptionBudget,
}


class Mirror:
    """What the API server has, as of the last watch event; `run` keeps it so."""

    def __init__(
        self,
        client: KubeClient,
        provider: CloudProvider,
        clock: Clock,
        settings: Settings | None = None,
        *,
        failed: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        """`settings` say which alpha kinds are watched; `failed` hears of errors that the provider should not have raised."""
        settings = settings or Settings()
        gates = settings.feature_gates
        self._clock = clock
        self.pods = Informer(client, Pod)
        self.nodes = Informer(client, Node)
        self.node_claims = Informer(client, NodeClaim)
        self.node_pools = Informer(client, NodePool)
        self.attachments = Informer(client, VolumeAttachment)
        self._written: Mapping[type[Object], Informer[Any]] = {
            Node: self.nodes,
            NodeClaim: self.node_claims,
            NodePool: self.node_pools,
        }
        # Only default constraints ask about Services, and an installation without any has no right to list them.
        around = {n: kind for n, kind in _SURROUNDINGS.items() if n != "services" or (settings and settings.scheduler_config)}
        self.surroundings: Mapping[str, Informer[Any]] = {name: Informer(client, kind) for name, kind in around.items()}
        self.node_classes: Mapping[tuple[str, str], Informer[Any]] = {
            (kind.RESOURCE.group, kind.RESOURCE.kind): Informer(client, kind) for kind in node_class_types(provider)
        }
        self.node_overlays = Informer(client, NodeOverlay, optional=True) if gates.node_overlay else None
        self._prices = tuple(row for row in settings.prices if row.is_limited)
        self.correcting = Correcting(provider, settings.prices, failed)
        self.buffers = (
            Buffers(client, self.surroundings["replica_sets"], self.surroundings["stateful_sets"])
            if gates.capacity_buffer
            else None
        )
        self._virtual: Mapping[str, int] = {}
        """Identity → virtual pods of CapacityBuffers that the last pass put there."""
        self._kinds = frozenset((k.group, k.kind) for k in provider.node_class_kinds)
        self._bound: dict[str, dict[str, Pod]] = {}
        """Node name → its pods that are not terminal, by key."""
        self._ending: dict[str, dict[str, Pod]] = {}
        """Node name → its finished pods that end and will have a successor (a StatefulSet's), by key."""
        self._pending: dict[str, Pod] = {}
        self._nodes_of: dict[str, dict[str, Node]] = {}
        """Identity → Nodes by name; more than one is an accident that the first by name wins."""
        self._claim_of: dict[str, NodeClaim] = {}
        """providerID → NodeClaim."""
        self._identity: dict[str, str] = {}
        """Node name → identity: providerID, or the name of an unmanaged Node without one."""
        self._states: dict[str, tuple[str, StateNode]] = {}
        """Identity → name and StateNode."""
        self._stale: set[str] = set()
        self._assumed: dict[str, tuple[NodeClaim, datetime]] = {}
        self._marked: set[str] = set()
        self._nominated: dict[str, datetime] = {}
        self._awaited: dict[str, set[str]] = {}
        """Identity → pods that wait and are expected there; once it has none left, nobody need be kept off the node for them."""
        self._awaited_by: dict[str, str] = {}
        """Pod → identity, the same the other way round."""
        self._sorted_nodes: tuple[StateNode, ...] = ()
        self._sorted_pods: tuple[Pod, ...] | None = None
        self._sorted: dict[str, tuple[Any, ...]] = {}
        self._pools: tuple[Pool, ...] = ()
        self.pods.subscribe(self._pod_changed)
        self.nodes.subscribe(self._node_changed)
        self.node_claims.subscribe(self._claim_changed)
        for name, informer in self.surroundings.items():
            informer.subscribe(self._forgets(name))

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        return (
            *self.node_classes.values(),
            self.node_pools,
            self.node_claims,
            self.nodes,
            self.pods,
            self.attachments,
            *self.surroundings.values(),
            *((self.node_overlays,) if self.node_overlays is not None else ()),
            *(self.buffers.informers if self.buffers is not None else ()),
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self.informers:
                tasks.create_task(informer.run(), name=f"watch {informer.kind.RESOURCE.kind}")

    async def wait_synced(self) -> None:
        """Until every kind has been listed once."""
        for informer in self.informers:
            await informer.wait_synced()

    # --- what is asked of it -------------------------------------------------------------------------------------------

    def is_managed(self, reference: NodeClassReference) -> bool:
        """Whether a NodePool or NodeClaim with this nodeClassRef is ours to care for."""
        return (reference.group, reference.kind) in self._kinds

    def node_class(self, reference: NodeClassReference) -> NodeClassState | None:
        """What is known of a NodeClass; None if there is none. A provider that names no types vouches for its NodeClasses."""
        informer = self.node_classes.get((reference.group, reference.kind))
        if informer is None:
            return NodeClassState(ready=Condition(type="Ready", status="True"))
        found = informer.get(reference.name)
        if found is None:
            return None
        going = found.metadata.deletion_timestamp is not None
        return NodeClassState(going, find_condition(found.status.conditions, "Ready"), found.metadata.generation)

    def on_node_class(self, callback: Callable[[Object | None, Object | None], None]) -> None:
        """Call `callback(old, new)` for every change of a NodeClass."""
        for informer in self.node_classes.values():
            informer.subscribe(callback)

    def unlaunched(self, now: datetime) -> tuple[str, ...]:
        """Names of NodeClaims that no machine is known for yet; while there are any, their capacity cannot be counted.

        No pass may run meanwhile: it would buy for the same pods again. A claim that is being deleted will not be launched
        and holds nobody up. Source: spec/scheduling 4.8.
        """
        for name, (_, since) in list(self._assumed.items()):
            if now - since >= ASSUMED_FOR:
                del self._assumed[name]
        waiting = {
            c.name
            for c in self.node_claims.objects.values()
            if not c.status.provider_id and c.metadata.deletion_timestamp is None and self.is_managed(c.spec.node_class_ref)
        }
        return tuple(sorted(waiting | self._assumed.keys()))

    def silent(self) -> tuple[str, ...]:
        """Kinds whose watch has said nothing for too long, by name: what ends machines must not act on what they last said."""
        silences = ((i.kind.RESOURCE.kind, i.silence()) for i in self.informers)
        return tuple(sorted(kind for kind, silence in silences if silence is None or silence > SILENT_FOR))

    def snapshot(self, now: datetime) -> Snapshot:
        """The cluster now, with the pools as `refresh_pools` last found them.

        Cost: O(what changed since the last one), plus a sort of the node names if any node did.
        """
        self._rebuild()
        if self._sorted_pods is None:
            self._sorted_pods = tuple(self._pending[key] for key in sorted(self._pending))
        for name, informer in self.surroundings.items():
            if name not in self._sorted:
                self._sorted[name] = _by_key(informer.objects)
        nodes = covered(self._sorted_nodes, self._pools, self._prices) if self._prices else self._sorted_nodes
        virtual = self.buffers.pods if self.buffers is not None else ()
        return Snapshot(now, nodes, self._sorted_pods, self._pools, Surroundings(**self._sorted), virtual=virtual)

    async def refresh_pools(self) -> tuple[Pool, ...]:
        """Ask the provider what each managed NodePool can buy now; the answers stand, corrected, in later snapshots, by name."""
        mine = [p for p in _by_key(self.node_pools.objects) if self.is_managed(p.spec.template.spec.node_class_ref)]
        overlays = _by_key(self.node_overlays.objects) if self.node_overlays is not None else ()
        self._pools = await self.correcting.ask(mine, overlays)
        return self._pools

    def corrected(self, node_pool: str, types: tuple[InstanceType, ...]) -> tuple[InstanceType, ...]:
        """`types` as the NodePool of this name sees them behind own prices and NodeOverlays; as they are if there is none."""
        pool = self.node_pools.get(node_pool)
        return types if pool is None else self.correcting.of(pool, types)

    def offers(self, name: str) -> Pool | None:
        """A NodePool as it is now, with what it could buy when `refresh_pools` last asked; None while nobody has asked."""
        pool, asked = self.node_pools.get(name), next((p for p in self._pools if p.node_pool.name == name), None)
        return None if pool is None or asked is None else Pool(pool, asked.instance_types, asked.problem)

    def pending(self) -> Iterable[Pod]:
        """Pods without a node that are not terminal, in no order."""
        return self._pending.values()

    def is_any_going(self) -> bool:
        """Whether some machine that will go still has pods that need another home."""
        self._rebuild()
        return any(
            known.marked_for_deletion and any(pods.is_reschedulable(p) for p in known.pods) for _, known in self._states.values()
        )

    def pods_on(self, node_name: str) -> tuple[Pod, ...]:
        """Pods bound to a Node that are not terminal, by key."""
        return _by_key(self._bound.get(node_name, {}))

    def nodes_of(self, claim: NodeClaim) -> tuple[Node, ...]:
        """The Nodes of a claim's machine, by name."""
        found = self._nodes_of.get(claim.status.provider_id, {}) if claim.status.provider_id else {}
        return tuple(found[name] for name in sorted(found))

    def claim_of(self, node: Node) -> NodeClaim | None:
        return self._claim_of.get(node.spec.provider_id) if node.spec.provider_id else None

    def state_of(self, provider_id: str) -> StateNode | None:
        self._rebuild()
        found = self._states.get(provider_id)
        return None if found is None else found[1]

    def claims_of(self, pool: NodePool) -> tuple[NodeClaim, ...]:
        """Every NodeClaim of a pool, by name; those too that were created a moment ago and that no watch has shown yet."""
        known: dict[str, NodeClaim] = {name: claim for name, (claim, _) in self._assumed.items()}
        known |= self.node_claims.objects
        return tuple(known[name] for name in sorted(known) if known[name].metadata.labels.get(labels.NODEPOOL) == pool.name)

    def pool_of(self, claim: NodeClaim) -> NodePool | None:
        return self.node_pools.get(claim.metadata.labels.get(labels.NODEPOOL, ""))

    # --- what is told to it --------------------------------------------------------------------------------------------

    def saw(self, obj: Object) -> None:
        """Know what the server answered to a write, before the watch brings it."""
        informer = self._written.get(type(obj))
        if informer is not None:
            informer.saw(obj)

    def assume(self, claim: NodeClaim) -> None:
        """Count a NodeClaim that was just created, before the watch shows it."""
        if self.node_claims.get(claim.key) is None:
            self._assumed[claim.name] = (claim, self._clock.now())

    def nominate(self, name: str, until: datetime, expected: Iterable[str] = ()) -> None:
        """Note that pods are expected on a node, so that nobody disrupts it; `name` is a Node's or an in-flight NodeClaim's.

        Where all of `expected` are pods that wait, by key, it ends as soon as each of them is bound, here or elsewhere, or gone.
        """
        identity = self._identity_of(name)
        if not identity:
            return
        before = self._nominated.get(identity)
        is_timed = before is not None and identity not in self._awaited and before > self._clock.now()
        self._nominated[identity] = until
        self._stale.add(identity)
        for key in self._awaited.pop(identity, ()):
            self._awaited_by.pop(key, None)
        keys = set(expected)
        if keys and not is_timed and keys <= self._pending.keys():
            self._awaited[identity] = keys
            self._awaited_by |= dict.fromkeys(keys, identity)

    def _waits_no_more(self, key: str) -> None:
        """A pod has left the queue; the node that it was expected on may have nobody else to wait for."""
        self._sorted_pods = None
        identity = self._awaited_by.pop(key, None)
        awaited = self._awaited.get(identity) if identity is not None else None
        if identity is None or awaited is None:
            return
        awaited.discard(key)
        if not awaited:
            del self._awaited[identity]
            self._nominated.pop(identity, None)
            self._stale.add(identity)

    def _identity_of(self, name: str) -> str:
        """Of a Node, or of a NodeClaim that has no Node yet; "" if there is none of the name."""
        found = self._identity.get(name)
        if found is not None:
            return found
        claim = self.node_claims.get(name)
        return claim.status.provider_id if claim is not None else ""

    def put_virtual(self, counts: Mapping[str, int]) -> None:
        """Note how many virtual pods the last pass put on each node or in-flight NodeClaim, by name; all others have none."""
        fresh = {self._identity_of(name): count for name, count in counts.items() if count}
        fresh.pop("", None)
        self._stale |= {i for i in {**fresh, **self._virtual} if fresh.get(i) != self._virtual.get(i)}
        self._virtual = fresh

    def mark(self, provider_ids: Iterable[str]) -> None:
        """Treat these machines as going, from the moment a command decided it."""
        fresh = set(provider_ids) - self._marked
        self._marked |= fresh
        self._stale |= fresh

    def unmark(self, provider_ids: Iterable[str]) -> None:
        old = self._marked & set(provider_ids)
        self._marked -= old
        self._stale |= old

    # --- what the watches tell it --------------------------------------------------------------------------------------

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        self._note_ending(old, new)
        if old is not None and (new is None or new.spec.node_name != old.spec.node_name or pods.is_terminal(new)):
            self._take_off(old)
        if new is None or pods.is_terminal(new):
            gone = old if old is not None else new
            assert gone is not None
            if self._pending.pop(gone.key, None) is not None:
                self._waits_no_more(gone.key)
            return
        if not new.spec.node_name:
            self._pending[new.key] = new
            self._sorted_pods = None
            return
        if self._pending.pop(new.key, None) is not None:
            self._waits_no_more(new.key)
        self._bound.setdefault(new.spec.node_name, {})[new.key] = new
        self._touch_node(new.spec.node_name)

    def _note_ending(self, old: Pod | None, new: Pod | None) -> None:
        """A finished pod of a StatefulSet has a successor only once it is gone, and that needs a home. Source: scheduling 1.2."""
        if old is not None and self._ending.get(old.spec.node_name, {}).pop(old.key, None) is not None:
            self._touch_node(old.spec.node_name)
        if new is not None and new.spec.node_name and pods.is_terminal(new) and pods.is_reschedulable(new):
            self._ending.setdefault(new.spec.node_name, {})[new.key] = new
            self._touch_node(new.spec.node_name)

    def _take_off(self, pod: Pod) -> None:
        on = self._bound.get(pod.spec.node_name)
        if on is None or on.pop(pod.key, None) is None:
            return
        if not on:
            del self._bound[pod.spec.node_name]
        self._touch_node(pod.spec.node_name)

    def _touch_node(self, name: str) -> None:
        identity = self._identity.get(name)
        if identity is not None:
            self._stale.add(identity)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        changed = new if new is not None else old
        assert changed is not None
        name = changed.name
        before = self._identity.get(name)
        after = "" if new is None else identity_of(new)
        if before is not None and before != after:
            del self._nodes_of[before][name]
            if not self._nodes_of[before]:
                del self._nodes_of[before]
            del self._identity[name]
            self._stale.add(before)
        if new is not None and after:
            self._nodes_of.setdefault(after, {})[name] = new
            self._identity[name] = after
            self._stale.add(after)

    def _claim_changed(self, old: NodeClaim | None, new: NodeClaim | None) -> None:
        if new is not None:
            self._assumed.pop(new.name, None)
        before = old.status.provider_id if old is not None else ""
        after = new.status.provider_id if new is not None and self.is_managed(new.spec.node_class_ref) else ""
        if before and before != after and self._claim_of.pop(before, None) is not None:
            self._stale.add(before)
        if new is not None and after:
            self._claim_of[after] = new
            self._stale.add(after)

    def _forgets(self, name: str) -> Callable[[Object | None, Object | None], None]:
        def forget(_: Object | None, __: Object | None) -> None:
            self._sorted.pop(name, None)

        return forget

    # --- joining -------------------------------------------------------------------------------------------------------

    def _rebuild(self) -> None:
        if not self._stale:
            return
        for identity in self._stale:
            built = self._join(identity)
            if built is None:
                self._states.pop(identity, None)
                self._nominated.pop(identity, None)
                for key in self._awaited.pop(identity, ()):
                    self._awaited_by.pop(key, None)
                if identity not in self._claim_of and identity not in self._nodes_of:
                    self._marked.discard(identity)
            else:
                self._states[identity] = (state.name(built), built)
        self._stale.clear()
        self._sorted_nodes = tuple(s for _, s in sorted(self._states.values(), key=lambda pair: pair[0]))

    def _join(self, identity: str) -> StateNode | None:
        claim = self._claim_of.get(identity)
        listed = self._nodes_of.get(identity)
        node = listed[min(listed)] if listed else None
        if node is not None and claim is not None and not is_known(node):
            node = None
        if claim is None and (node is None or not is_known(node)):
            return None
        on = _by_key(self._bound.get(node.name, {})) if node is not None else ()
        virtual = self._virtual.get(identity, 0)
        known = StateNode(node, claim, on, False, self._nominated.get(identity), virtual)
        if identity in self._marked or state.is_going(known):
            ending = self._ending.get(node.name, {}) if node is not None else {}
            on = _by_key({**self._bound.get(node.name, {}), **ending}) if node is not None and ending else on
            return StateNode(node, claim, on, True, known.nominated_until, virtual)
        return known


def identity_of(node: Node) -> str:
    """What joins a Node to others: its providerID; an unmanaged one without is its own; "" for a managed one without."""
    if node.spec.provider_id:
        return node.spec.provider_id
    return "" if labels.NODEPOOL in node.metadata.labels else node.name


def is_known(node: Node) -> bool:
    """Whether enough is known of a Node to count it: a managed one needs its instance type before it is initialized."""
    if labels.NODEPOOL not in node.metadata.labels or nodes.is_initialized(node):
        return True
    return labels.INSTANCE_TYPE in node.metadata.labels


def _by_key(objects: Mapping[str, T]) -> tuple[T, ...]:
    return tuple(objects[key] for key in sorted(objects))
