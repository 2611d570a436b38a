"""The AWS provider: NodeClaims in, EC2 instances out. Wiring and order of steps; the rules are in the modules it calls."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import msgspec
import structlog
from msgspec.structs import replace

from kubewright.api import aws_labels, labels
from kubewright.api.aws import EC2NodeClass
from kubewright.api.karpenter import NodeClaim, NodePool
from kubewright.api.meta import Object
from kubewright.catalogue.types import InstanceType
from kubewright.clock import Clock
from kubewright.cloud.aws import (
    api,
    catalogue,
    cluster,
    drift,
    errors,
    instances,
    launch,
    nodeclass,
    profiles,
    retry,
    tags,
)
from kubewright.cloud.aws.addresses import Addresses
from kubewright.cloud.aws.calls import paced
from kubewright.cloud.aws.collection import OrphanCollection
from kubewright.cloud.aws.fleet import Fleet
from kubewright.cloud.aws.gauges import Gauges
from kubewright.cloud.aws.instancetypes import InstanceTypes
from kubewright.cloud.aws.interruption import Interruptions
from kubewright.cloud.aws.machines import Machines
from kubewright.cloud.aws.measures import Measures
from kubewright.cloud.aws.observed import Observed
from kubewright.cloud.aws.offers import Offers
from kubewright.cloud.aws.ownership import Ownership
from kubewright.cloud.aws.placement import PlacementGroups
from kubewright.cloud.aws.reservations import ReservationCounts
from kubewright.cloud.aws.settings import AwsSettings
from kubewright.cloud.aws.shift import ZonalShift, ask
from kubewright.cloud.aws.status import InstanceStatuses
from kubewright.cloud.aws.tagging import Tagging
from kubewright.cloud.aws.templates import LaunchTemplates
from kubewright.cloud.aws.unavailable import UnavailableOfferings
from kubewright.cloud.aws.upkeep import ReservationUpkeep
from kubewright.cloud.aws.userdata import UserDataError
from kubewright.cloud.aws.validation import Validation
from kubewright.cloud.aws.witness import Witness
from kubewright.cloud.provider import Background, Correct, Instance, NodeClassKind, RepairPolicy
from kubewright.errors import CloudError, InstanceNotFound, KubeError, LaunchFailed, NodeClassNotReady, NotFound, Throttled
from kubewright.kube.client import KubeClient
from kubewright.kube.controller import Controller
from kubewright.kube.events import Recorder
from kubewright.kube.informer import Informer
from kubewright.metrics import Registry
from kubewright.settings import Settings

MOST_CHOSEN = 16
METRICS_EVERY = timedelta(minutes=1)
_REPAIRS = (
    ("Ready", "False", 30),
    ("Ready", "Unknown", 30),
    ("AcceleratedHardwareReady", "False", 10),
    ("StorageReady", "False", 30),
    ("NetworkingReady", "False", 30),
    ("KernelReady", "False", 30),
    ("ContainerRuntimeReady", "False", 30),
)
"""Condition, status, minutes. Source: spec/aws 9.4."""


class AwsProvider:
    """`cloud.provider.CloudProvider` for AWS. `api` and `kube` belong to the caller; `close` closes `api` only."""

    name = "aws"
    node_class_kinds: Sequence[NodeClassKind] = (NodeClassKind("karpenter.k8s.aws", "EC2NodeClass"),)
    node_class_types: Sequence[type[Object]] = (EC2NodeClass,)
    well_known_labels = aws_labels.WELL_KNOWN
    label_aliases = aws_labels.ALIASES

    def __init__(
        self,
        api: api.Ec2Api,
        kube: KubeClient,
        clock: Clock,
        settings: Settings,
        aws: AwsSettings,
        known: catalogue.Catalogue | None = None,
    ) -> None:
        self._measures = Measures()
        self._ec2 = paced(api, self._measures)
        self._kube = kube
        self._clock = clock
        self._settings = settings
        aws = replace(aws, reserved_capacity=settings.feature_gates.reserved_capacity)
        self._aws = aws
        self._known = known or catalogue.embedded()
        self._log = structlog.get_logger("kubewright.aws")
        self._unavailable = UnavailableOfferings()
        self._reservations = ReservationCounts()
        self._groups = PlacementGroups()
        self._addresses = Addresses()
        self._observed = Observed()
        self._types = InstanceTypes(self._unavailable, self._reservations, self._observed)
        name = settings.cluster_name
        self._templates = LaunchTemplates(self._ec2, name)
        self._machines = Machines(self._ec2, clock, self._measures)
        self._ownership = Ownership(self._ec2, kube, clock, name)
        self._recorder = Recorder(kube, clock)
        self._classes = Informer(kube, EC2NodeClass)
        self._claims = Informer(kube, NodeClaim)
        self._witness = Witness(kube, clock, self._classes, self._claims, self._observed)
        self._gauges = Gauges(self._measures)
        self._offers = Offers(self._ec2, clock, settings, aws, self._known)
        self._cluster: cluster.Cluster | None = None
        self._clustering = asyncio.Lock()
        self._correct: Correct = lambda _, types: types
        self._chosen: dict[int, tuple[tuple[InstanceType, ...], dict[bytes, launch.Choice]]] = {}
        """By identity of the types that were chosen from."""
        self._fleet = Fleet(
            self._ec2,
            clock,
            name,
            self._templates,
            self._unavailable,
            self._addresses,
            self._reservations,
            self._measures,
        )
        self._validation = Validation(self._ec2, kube, clock, aws, self._describe_cluster, self._templates, self._of_class)
        self._node_classes = nodeclass.NodeClasses(
            self._ec2,
            kube,
            clock,
            aws,
            self._describe_cluster,
            self._templates,
            self._validation,
            self._groups,
            self._reservations,
            self._addresses,
            self._unavailable,
            self._recorder,
        )

    def measure(self, registry: Registry) -> None:
        """Count on `registry` from now on."""
        self._measures.registry = registry

    # --- CloudProvider -------------------------------------------------------------------------------------------------

    async def create(self, claim: NodeClaim) -> Instance:
        """See `CloudProvider.create`. A machine that an earlier process bought for the same UID is found by its tag."""
        node_class = await self._node_class(claim.spec.node_class_ref.name)
        types = self._correct(claim.metadata.labels.get(labels.NODEPOOL, ""), await self._of_class(node_class))
        try:
            bought = await self._ownership.find(claim)
            if bought is None:
                choice = self._choose(claim, types)
                group = await self._group(node_class)
                described = await self._describe_cluster()
                bought = (await self._fleet.buy(claim, node_class, choice, described, self._aws, group)).instance
                self._ownership.bought(claim.metadata.uid, bought.instance_id)
                self._machines.bought(bought.instance_id)
                if group is not None and group.strategy == "partition" and not bought.placement.partition_number:
                    bought = await self._with_partition(bought)
        except errors.AwsError as error:
            raise errors.of_launch(error) from error
        except UserDataError as error:
            raise LaunchFailed("UserDataInvalid", str(error)) from error
        return self._describe(bought, types, node_class, claim)

    def correct_with(self, correct: Correct) -> None:
        """See `HeedsCorrections`."""
        self._correct = correct

    async def delete(self, provider_id: str) -> None:
        """See `CloudProvider.delete`."""
        found = await self._machines.get(provider_id)
        if found.state.name == "shutting-down":
            return
        try:
            await self._machines.end(found.instance_id)
        except InstanceNotFound:
            raise
        except CloudError:
            zone = found.placement.availability_zone
            self._measures.count(
                "karpenter_cloudprovider_instance_termination_failures_total",
                zone=zone,
                zone_id=self._unavailable.zone_id(zone),
            )
            raise

    async def get(self, provider_id: str) -> Instance:
        """See `CloudProvider.get`."""
        found = await self._machines.get(provider_id)
        return instances.describe(found, await self._shape(found))

    async def list(self) -> Sequence[Instance]:
        """See `CloudProvider.list`."""
        request = api.DescribeInstances(filters=instances.owned_filters(self._settings.cluster_name), max_results=1000)
        found: list[api.Ec2Instance] = []
        try:
            async for page in retry.pages(self._ec2.describe_instances, request):
                found += page.instances
        except errors.AwsError as error:
            raise errors.of_call(error) from error
        return [instances.describe(i, await self._shape(i)) for i in sorted(found, key=lambda i: i.instance_id)]

    async def instance_types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        """See `CloudProvider.instance_types`."""
        return await self._of_class(await self._node_class(pool.spec.template.spec.node_class_ref.name))

    async def drift_reason(self, claim: NodeClaim) -> str:
        """See `CloudProvider.drift_reason`."""
        if not claim.status.provider_id:
            return ""
        try:
            node_class = await self._node_class(claim.spec.node_class_ref.name)
        except NodeClassNotReady:
            return ""
        shapes = {t.name: t for t in await self._of_class(node_class)}
        shape = shapes.get(claim.metadata.labels.get("node.kubernetes.io/instance-type", ""))
        found = drift.of_hash(claim, node_class) or drift.of_image(claim, node_class, shape)
        if found:
            return found
        machine = await self._machines.get(claim.status.provider_id)
        group = await self._group(node_class)
        return (
            drift.of_network(machine, node_class)
            or drift.of_reservation(machine, node_class)
            or drift.of_group(claim, node_class, group)
        )

    def repair_policies(self) -> Sequence[RepairPolicy]:
        return [RepairPolicy(kind, status, timedelta(minutes=minutes)) for kind, status, minutes in _REPAIRS]

    async def look(self) -> None:
        """See `LooksOnce`: which zones are shifted away from."""
        if not self._aws.zonal_shift:
            return
        for one in (await self._kube.list(EC2NodeClass)).items:
            self._unavailable.know({s.zone: s.zone_id for s in one.status.subnets})
        described = await self._describe_cluster()
        try:
            self._unavailable.shift(await ask(self._ec2, described.arn, self._clock))
        except errors.AwsError as error:
            raise errors.of_call(error) from error

    async def close(self) -> None:
        await self._ec2.close()

    # --- background ----------------------------------------------------------------------------------------------------

    def background(self) -> Sequence[Background]:
        """NodeClass controller, prices, names on machines, orphans, interruptions, shifts, reservations, metrics, events."""
        name = self._settings.cluster_name
        parts: list[Background] = [
            _Part("nodeclass", self._run_node_classes),
            _Part("providers.pricing", self._offers.run),
            _Part("aws events", self._recorder.run),
            _Part("nodeclaim.tagging", self._run_claims),
            _Part("instance.garbagecollection", self._run_orphans),
            _Part("instanceprofile.garbagecollection", self._run_profiles),
            _Part("providers.instancetype.capacity", self._witness.run),
            _Part("cloudprovider.metrics", self._run_metrics),
            InstanceStatuses(self._ec2, self._kube, self._clock, self._recorder, self._measures),
        ]
        if self._aws.reserved_capacity:
            parts.append(ReservationUpkeep(self._ec2, self._kube, self._clock, name, self._recorder, self._reservations))
        if self._aws.zonal_shift:
            parts.append(_Part("zonalshift", self._run_shifts))
        if self._aws.interruption_queue:
            parts.append(
                Interruptions(
                    self._ec2,
                    self._kube,
                    self._clock,
                    self._aws.interruption_queue,
                    self._unavailable,
                    self._reservations,
                    self._recorder,
                    self._measures,
                    rebalance=self._aws.rebalance,
                )
            )
        return parts

    async def begin(self) -> None:
        """Note what an earlier process may have left half done; before this one makes NodeClaims."""
        await self._ownership.begin()

    async def reconcile_node_class(self, name: str) -> timedelta | None:
        """One round of the NodeClass controller."""
        return await self._node_classes.reconcile(name)

    async def _run_node_classes(self) -> None:
        await self.begin()
        controller = Controller("nodeclass", self.reconcile_node_class, workers=10)
        self._classes.subscribe(controller.enqueue_object)
        self._claims.subscribe(lambda old, new: controller.enqueue(old.spec.node_class_ref.name) if old and new is None else None)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._classes.run(), name="nodeclass informer")
            tasks.create_task(controller.run(), name="nodeclass controller")

    async def _run_claims(self) -> None:
        tagging = Tagging(self._ec2, self._kube, self._machines, self._settings.cluster_name, self._unavailable)
        controller = Controller("nodeclaim.tagging", tagging.reconcile, workers=1)
        self._claims.subscribe(lambda _, new: controller.enqueue(new.name) if new is not None and tagging.wanted(new) else None)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._claims.run(), name="nodeclaim informer")
            tasks.create_task(controller.run(), name="tagging controller")

    async def _run_orphans(self) -> None:
        described = await self._described_at_last()
        await OrphanCollection(
            self._ec2,
            self._kube,
            self._clock,
            self._settings.cluster_name,
            self._templates,
            self._machines,
            described.uid,
        ).run()

    async def _run_profiles(self) -> None:
        while not self._aws.isolated_vpc:
            try:
                await self.collect_profiles()
            except (CloudError, KubeError) as error:
                self._log.warning("cannot look for instance profiles that nobody uses", error=str(error))
            await asyncio.sleep(profiles.COLLECT_EVERY.total_seconds())

    async def collect_profiles(self) -> Sequence[str]:
        """Remove profiles that no NodeClass and no NodeClaim names; their names."""
        used = {c.status.instance_profile for c in (await self._kube.list(EC2NodeClass)).items}
        for claim in (await self._kube.list(NodeClaim)).items:
            used.add(claim.metadata.annotations.get(aws_labels.INSTANCE_PROFILE_NAME, ""))
        name = self._settings.cluster_name
        return await profiles.collect(self._ec2, name, self._aws.region, used, self._clock.now())

    async def _run_shifts(self) -> None:
        described = await self._described_at_last()
        await ZonalShift(
            self._ec2,
            self._kube,
            self._clock,
            described.arn,
            self._unavailable,
            self._recorder,
            self._aws.evacuate_shifted,
        ).run()

    async def _described_at_last(self) -> cluster.Cluster:
        """The cluster as EKS describes it, asked until it does."""
        while True:
            try:
                return await self._describe_cluster()
            except CloudError as error:
                self._log.warning("cannot describe the cluster", error=str(error))
            await asyncio.sleep(10)

    async def _run_metrics(self) -> None:
        while True:
            await asyncio.sleep(METRICS_EVERY.total_seconds())
            if self._measures.registry is None:
                continue
            try:
                ready = [c for c in (await self._kube.list(EC2NodeClass)).items if nodeclass.refusal(c) is None]
                self._gauges.tell([t for c in ready for t in await self._of_class(c)])
            except (CloudError, KubeError) as error:
                self._log.debug("no instance types to measure yet", error=str(error))

    async def refresh_spot(self) -> None:
        """See `Offers.refresh_spot`."""
        await self._offers.refresh_spot()

    async def rediscover(self) -> None:
        """See `Offers.rediscover`."""
        await self._offers.rediscover()

    # --- inner ---------------------------------------------------------------------------------------------------------

    async def _node_class(self, name: str) -> EC2NodeClass:
        found = self._classes.get(name) if self._classes.synced else None
        if found is None or nodeclass.refusal(found) is not None:
            try:
                found = await self._kube.get(EC2NodeClass, name)
            except NotFound as error:
                raise NodeClassNotReady(f"EC2NodeClass {name} does not exist") from error
        refused = nodeclass.refusal(found)
        if refused is not None:
            raise refused
        return found

    def _choose(self, claim: NodeClaim, types: tuple[InstanceType, ...]) -> launch.Choice:
        """`launch.choose`, once for equal claims: a plan's claims differ in little but their names."""
        of_types = self._chosen.get(id(types))
        if of_types is None or of_types[0] is not types:
            while len(self._chosen) >= MOST_CHOSEN:
                del self._chosen[next(iter(self._chosen))]
            of_types = self._chosen[id(types)] = (types, {})
        chosen = of_types[1]
        key = msgspec.json.encode((claim.spec.requirements, claim.spec.resources), order="deterministic")
        if key not in chosen:
            chosen[key] = launch.choose(claim, types, self._settings.min_values_policy)
        return chosen[key]

    async def _of_class(self, node_class: EC2NodeClass) -> tuple[InstanceType, ...]:
        now = self._clock.now()
        group = self._groups.of(node_class, now)
        market, known = await self._offers.market(), await self._offers.prices()
        return self._types.of(node_class, market, known, now, group, reserved=self._aws.reserved_capacity)

    async def _describe_cluster(self) -> cluster.Cluster:
        async with self._clustering:
            if self._cluster is None:
                self._cluster = await cluster.describe(self._ec2, self._kube, self._settings.cluster_name, self._aws)
            return self._cluster

    async def _group(self, node_class: EC2NodeClass) -> api.PlacementGroup | None:
        found = self._groups.of(node_class, self._clock.now())
        if found is None and node_class.spec.placement_group_selector is not None:
            found = await self._groups.resolve(self._ec2, node_class, self._clock.now())
            if found is None:
                raise NodeClassNotReady(f"EC2NodeClass {node_class.name}: its placement group is not there")
        return found

    async def _with_partition(self, bought: api.Ec2Instance) -> api.Ec2Instance:
        """EC2 chose the partition; topology spread needs to know it before pods come."""
        provider_id = instances.provider_id(bought.placement.availability_zone, bought.instance_id)
        for _ in range(5):
            try:
                seen = await self._machines.get(provider_id)
            except Throttled:
                await asyncio.sleep(2)
                continue
            if seen.placement.partition_number:
                return replace(bought, placement=replace(bought.placement, partition_number=seen.placement.partition_number))
            await asyncio.sleep(2)
        return bought

    async def _shape(self, instance: api.Ec2Instance) -> InstanceType | None:
        """The type as the machine's NodeClass shows it; None if the class is gone or not ready."""
        try:
            node_class = await self._node_class(api.tags_of(instance.tags).get(tags.NODE_CLASS, ""))
            types = await self._of_class(node_class)
        except CloudError:
            return None
        return next((t for t in types if t.name == instance.instance_type), None)

    def _describe(
        self, instance: api.Ec2Instance, types: Sequence[InstanceType], node_class: EC2NodeClass, claim: NodeClaim
    ) -> Instance:
        shape = next((t for t in types if t.name == instance.instance_type), None)
        zone_id = next((s.zone_id for s in node_class.status.subnets if s.zone == instance.placement.availability_zone), "")
        wants_efa = aws_labels.EFA in claim.spec.resources.requests or bool(node_class.spec.network_interfaces)
        found = instances.describe(instance, shape, zone_id, wants_efa=wants_efa)
        reservation = next((r for r in node_class.status.capacity_reservations if r.id == instance.capacity_reservation_id), None)
        if reservation is not None and found.labels[labels.CAPACITY_TYPE] == labels.RESERVED:
            more = {
                aws_labels.CAPACITY_RESERVATION_TYPE: reservation.reservation_type,
                aws_labels.CAPACITY_RESERVATION_INTERRUPTIBLE: str(reservation.interruptible).lower(),
            }
            found = replace(found, labels=dict(sorted({**found.labels, **more}.items())))
        written = node_class.metadata.annotations
        kept = (aws_labels.EC2_NODE_CLASS_HASH, aws_labels.EC2_NODE_CLASS_HASH_VERSION)
        noted = {key: written[key] for key in kept if key in written}
        noted[aws_labels.INSTANCE_PROFILE_NAME] = node_class.status.instance_profile
        return replace(found, annotations=noted, node_claim=claim.name)


class _Part:
    """A piece of background work by name."""

    def __init__(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        self.name = name
        self._run = run

    async def run(self) -> None:
        await self._run()
