"""The AWS provider: NodeClaims in, EC2 instances out. Wiring and order of steps; the rules are in the modules it calls."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from fractions import Fraction

import msgspec
import structlog
from msgspec.structs import replace

from kubewright.api import aws_labels, labels
from kubewright.api.aws import EC2NodeClass
from kubewright.api.karpenter import NodeClaim, NodePool
from kubewright.api.meta import Object
from kubewright.catalogue.types import InstanceType
from kubewright.clock import Clock
from kubewright.cloud.aws import api, catalogue, cluster, drift, errors, instances, launch, nodeclass, prices, retry, tags
from kubewright.cloud.aws.capacity import Sizing
from kubewright.cloud.aws.collection import OrphanCollection
from kubewright.cloud.aws.fleet import Fleet
from kubewright.cloud.aws.instancetypes import InstanceTypes, Market
from kubewright.cloud.aws.interruption import Interruptions
from kubewright.cloud.aws.settings import AwsSettings
from kubewright.cloud.aws.templates import LaunchTemplates
from kubewright.cloud.aws.unavailable import UnavailableOfferings
from kubewright.cloud.aws.userdata import UserDataError
from kubewright.cloud.provider import Background, Correct, Instance, NodeClassKind, RepairPolicy
from kubewright.errors import CloudError, InstanceNotFound, LaunchFailed, NodeClassNotReady, NotFound, Throttled
from kubewright.kube.client import KubeClient
from kubewright.kube.controller import Controller
from kubewright.kube.events import Recorder
from kubewright.kube.informer import Informer
from kubewright.settings import Settings

DISCOVER_EVERY = timedelta(hours=12)
"""Source: spec/aws 5.1."""
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
        self._ec2 = api
        self._kube = kube
        self._clock = clock
        self._settings = settings
        self._aws = aws
        self._known = known or catalogue.embedded()
        self._log = structlog.get_logger("kubewright.aws")
        self._unavailable = UnavailableOfferings()
        self._types = InstanceTypes(self._unavailable)
        self._templates = LaunchTemplates(api, settings.cluster_name)
        self._recorder = Recorder(kube, clock)
        self._classes = Informer(kube, EC2NodeClass)
        self._prices = prices.Prices(self._known.prices(aws.region))
        self._market: Market | None = None
        self._cluster: cluster.Cluster | None = None
        self._hydrating = asyncio.Lock()
        self._spot_asked: datetime | None = None
        self._leading_since: datetime | None = None
        self._tried: set[str] = set()
        self._chosen_from: tuple[InstanceType, ...] = ()
        self._chosen: dict[bytes, launch.Choice] = {}
        self._fleet = Fleet(api, settings.cluster_name, self._templates, self._unavailable)
        self._correct: Correct = lambda _, types: types
        self._node_classes = nodeclass.NodeClasses(api, kube, clock, aws, self._describe_cluster, self._templates)

    # --- CloudProvider -------------------------------------------------------------------------------------------------

    async def create(self, claim: NodeClaim) -> Instance:
        """See `CloudProvider.create`. A machine that an earlier try bought for the same UID is found by its tag."""
        self._leading_since = self._leading_since or self._clock.now()
        node_class = await self._node_class(claim.spec.node_class_ref.name)
        types = self._correct(claim.metadata.labels.get(labels.NODEPOOL, ""), await self._of_class(node_class))
        try:
            existing = await self._bought_before(claim)
            if existing is not None:
                return self._describe(existing, types, node_class, claim)
            choice = self._choose(claim, types)
            self._tried.add(claim.metadata.uid)
            described = await self._describe_cluster()
            bought = await self._fleet.buy(claim, node_class, choice, described, self._aws, self._clock.now())
        except errors.AwsError as error:
            raise errors.of_launch(error) from error
        except UserDataError as error:
            raise LaunchFailed("UserDataInvalid", str(error)) from error
        if bought is None:
            # An earlier fleet of this claim exists, but EC2 does not show its machine yet.
            raise Throttled("waiting for EC2 to show the instance of an earlier launch")
        return self._describe(bought, types, node_class, claim)

    def correct_with(self, correct: Correct) -> None:
        """See `HeedsCorrections`."""
        self._correct = correct

    async def delete(self, provider_id: str) -> None:
        """See `CloudProvider.delete`."""
        found = await self._get(provider_id)
        if found.state.name == "shutting-down":
            return
        try:
            await retry.call(self._ec2.terminate_instances, api.TerminateInstances(instance_ids=(found.instance_id,)))
        except errors.AwsError as error:
            raise errors.of_call(error) from error

    async def get(self, provider_id: str) -> Instance:
        """See `CloudProvider.get`."""
        found = await self._get(provider_id)
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
        return found or drift.of_network(await self._get(claim.status.provider_id), node_class)

    def repair_policies(self) -> Sequence[RepairPolicy]:
        return [RepairPolicy(kind, status, timedelta(minutes=minutes)) for kind, status, minutes in _REPAIRS]

    async def close(self) -> None:
        await self._ec2.close()

    # --- background ----------------------------------------------------------------------------------------------------

    def background(self) -> Sequence[Background]:
        """NodeClass controller, prices, orphans, interruptions, events."""
        parts: list[Background] = [
            _Part("nodeclass", self._run_node_classes),
            _Part("providers.pricing", self._run_prices),
            _Part("aws events", self._recorder.run),
            OrphanCollection(self._ec2, self._kube, self._clock, self._settings.cluster_name, self._templates),
        ]
        if self._aws.interruption_queue:
            parts.append(
                Interruptions(self._ec2, self._kube, self._clock, self._aws.interruption_queue, self._unavailable, self._recorder)
            )
        return parts

    async def reconcile_node_class(self, name: str) -> timedelta | None:
        """One round of the NodeClass controller."""
        return await self._node_classes.reconcile(name)

    async def _run_node_classes(self) -> None:
        self._leading_since = self._leading_since or self._clock.now()
        controller = Controller("nodeclass", self.reconcile_node_class, workers=10)
        self._classes.subscribe(controller.enqueue_object)
        claims = Informer(self._kube, NodeClaim)
        claims.subscribe(lambda old, new: controller.enqueue(old.spec.node_class_ref.name) if old and new is None else None)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._classes.run(), name="nodeclass informer")
            tasks.create_task(claims.run(), name="nodeclass claims")
            tasks.create_task(controller.run(), name="nodeclass controller")

    async def _run_prices(self) -> None:
        fresh = self._clock.now()
        while True:
            await asyncio.sleep(prices.SPOT_REFRESH_EVERY.total_seconds())
            await self.refresh_spot()
            if self._clock.now() - fresh >= DISCOVER_EVERY:
                fresh = self._clock.now()
                await self.rediscover()

    async def refresh_spot(self) -> None:
        """Ask for spot prices; an answer that changes nothing keeps the lists as they are, a failure keeps the last prices."""
        self._spot_asked = self._clock.now()
        try:
            found = await prices.spot_prices(self._ec2, self._spot_asked)
        except errors.AwsError as error:
            self._log.warning("cannot refresh spot prices, the last ones stay", error=str(error))
            return
        merged = {**(self._prices.spot or {}), **found}
        if merged and merged != self._prices.spot:
            self._prices = replace(self._prices, spot=merged)

    async def rediscover(self) -> None:
        """Ask again what the region sells and at which list prices; a failed look keeps the last answers."""
        try:
            found = await self._discover()
            if found != self._market:
                self._market = found
            if not self._aws.isolated_vpc:
                listed = await catalogue.on_demand_prices(self._ec2, self._aws.region)
                merged = {**self._prices.on_demand, **listed}
                if merged != self._prices.on_demand:
                    self._prices = replace(self._prices, on_demand=merged)
        except errors.AwsError as error:
            self._log.warning("cannot refresh types and list prices, the last ones stay", error=str(error))

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
        if self._chosen_from is not types:
            self._chosen_from, self._chosen = types, {}
        key = msgspec.json.encode((claim.spec.requirements, claim.spec.resources), order="deterministic")
        if key not in self._chosen:
            self._chosen[key] = launch.choose(claim, types, self._settings.min_values_policy)
        return self._chosen[key]

    async def _of_class(self, node_class: EC2NodeClass) -> tuple[InstanceType, ...]:
        market = await self._discovered()
        if self._spot_asked is None:
            await self.refresh_spot()
        return self._types.of(node_class, market, self._prices, self._unavailable.version(self._clock.now()))

    async def _discovered(self) -> Market:
        """What the region sells; asked once, later by `rediscover`."""
        async with self._hydrating:
            if self._market is None:
                try:
                    self._market = await self._discover()
                except errors.AwsError as error:
                    raise errors.of_call(error) from error
            return self._market

    async def _discover(self) -> Market:
        types = await catalogue.describe_types(self._ec2)
        offered = await catalogue.describe_offerings(self._ec2, {})
        overhead = Fraction(str(self._settings.vm_memory_overhead_percent))
        sizing = Sizing(overhead, self._aws.reserved_enis, self._known.branch_interfaces)
        return Market(self._aws.region, types, offered, sizing, self._known.network_mbps)

    async def _describe_cluster(self) -> cluster.Cluster:
        if self._cluster is None:
            self._cluster = await cluster.describe(self._ec2, self._settings.cluster_name, self._aws)
        return self._cluster

    async def _bought_before(self, claim: NodeClaim) -> api.Ec2Instance | None:
        """The live machine that carries the claim's UID. Not asked for claims that nobody can have bought for yet."""
        uid, made = claim.metadata.uid, claim.metadata.creation_timestamp
        if (
            uid not in self._tried
            and made is not None
            and self._leading_since is not None
            and made > self._leading_since + timedelta(minutes=1)
        ):
            return None
        filters = (
            api.Filter(name=f"tag:{tags.UID}", values=(uid,)),
            api.Filter(name=f"tag:{tags.CLUSTER}", values=(self._settings.cluster_name,)),
            api.Filter(name="instance-state-name", values=("pending", "running")),
        )
        page = await retry.call(self._ec2.describe_instances, api.DescribeInstances(filters=filters))
        return min(page.instances, key=lambda i: i.instance_id, default=None)

    async def _get(self, provider_id: str) -> api.Ec2Instance:
        wanted = instances.instance_id(provider_id)
        try:
            page = await retry.call(self._ec2.describe_instances, api.DescribeInstances(instance_ids=(wanted,)))
        except errors.AwsError as error:
            raise errors.of_call(error) from error
        found = next((i for i in page.instances if i.instance_id == wanted and i.state.name != "terminated"), None)
        if found is None:
            raise InstanceNotFound(f"instance {wanted} is gone")
        return found

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
        found = instances.describe(instance, shape, zone_id)
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
