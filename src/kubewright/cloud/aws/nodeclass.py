"""The EC2NodeClass controller: what a class selects, written into its status with the conditions that say if it may be used.

Source: spec/aws 1.3, 1.4, 1.5.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from kubewright.api import aws_labels, conditions
from kubewright.api import hash as hashes
from kubewright.api.aws import (
    CONDITIONS,
    CONDITIONS_WITH_RESERVATIONS,
    EC2NodeClass,
    EC2NodeClassStatus,
    SecurityGroup,
    Subnet,
)
from kubewright.api.karpenter import NodeClaim
from kubewright.api.meta import find_condition
from kubewright.clock import Clock
from kubewright.cloud.aws import amis, api, placement, profiles, reservations, selectors
from kubewright.cloud.aws.addresses import Addresses
from kubewright.cloud.aws.cluster import Cluster
from kubewright.cloud.aws.errors import AwsError, is_retryable
from kubewright.cloud.aws.placement import PlacementGroups
from kubewright.cloud.aws.reservations import ReservationCounts
from kubewright.cloud.aws.settings import AwsSettings
from kubewright.cloud.aws.templates import LaunchTemplates
from kubewright.cloud.aws.unavailable import UnavailableOfferings
from kubewright.cloud.aws.validation import Validation, Verdict
from kubewright.errors import NodeClassNotReady, NotFound
from kubewright.kube.client import KubeClient, MergePatch
from kubewright.kube.events import Recorder
from kubewright.lifecycle import changes

SOON = timedelta(minutes=1)
LATER = timedelta(minutes=5)
WAIT_FOR_CLAIMS = timedelta(minutes=10)


Step = tuple[EC2NodeClassStatus, Verdict, timedelta]
"""The status with what was found, the condition, and when to look again."""


class NodeClasses:
    """`reconcile(name)` brings one NodeClass up to date and says when to look again. May be killed at any write."""

    def __init__(
        self,
        ec2: api.Ec2Api,
        kube: KubeClient,
        clock: Clock,
        settings: AwsSettings,
        cluster: Callable[[], Awaitable[Cluster]],
        templates: LaunchTemplates,
        validation: Validation,
        groups: PlacementGroups,
        reservations: ReservationCounts,
        addresses: Addresses,
        unavailable: UnavailableOfferings,
        recorder: Recorder,
    ) -> None:
        self._ec2 = ec2
        self._kube = kube
        self._clock = clock
        self._settings = settings
        self._cluster = cluster
        self._templates = templates
        self._validation = validation
        self._placement_groups = groups
        self._reservations = reservations
        self._addresses = addresses
        self._unavailable = unavailable
        self._recorder = recorder
        self._kinds = CONDITIONS_WITH_RESERVATIONS if settings.reserved_capacity else CONDITIONS
        self.roles = profiles.MissingRoles()
        self._parameters = amis.Parameters(ec2)

    async def reconcile(self, name: str) -> timedelta | None:
        """Raises KubeError, AwsError: to be tried again."""
        try:
            node_class = await self._kube.get(EC2NodeClass, name)
        except NotFound:
            return None
        if node_class.metadata.deletion_timestamp is not None:
            return await self._finalize(node_class)
        node_class = await self._mark(node_class)
        now = self._clock.now()
        before, failures = node_class.status, []
        again = []
        steps = [self._amis, self._capacity, self._placement, self._subnets, self._groups, self._profile]
        if not self._settings.reserved_capacity:
            steps.remove(self._capacity)
        for step in steps:
            try:
                status, verdict, delay = await step(node_class)
            except AwsError as error:
                failures.append(error)
                continue
            node_class = replace(node_class, status=status)
            node_class = self._set(node_class, verdict, now)
            again.append(delay)
        try:
            found, delay = await self._validation.verdict(node_class)
            again.append(delay)
            if found is not None:
                node_class = self._set(node_class, found, now)
        except AwsError as error:
            failures.append(error)
        if node_class.status != before:
            body = {
                "metadata": {"resourceVersion": node_class.metadata.resource_version},
                "status": _status(before, node_class.status),
            }
            await self._kube.patch(EC2NodeClass, name, MergePatch(body), subresource="status")
        if failures:
            raise failures[0]
        return min(again)

    async def _mark(self, node_class: EC2NodeClass) -> EC2NodeClass:
        """Finalizer and hash annotations, which must stand before anything is launched."""
        body: dict[str, object] = {}
        if aws_labels.TERMINATION_FINALIZER not in node_class.metadata.finalizers:
            body["finalizers"] = [*node_class.metadata.finalizers, aws_labels.TERMINATION_FINALIZER]
        wanted = {
            aws_labels.EC2_NODE_CLASS_HASH: hashes.ec2_node_class_hash(node_class, self._settings.cluster_ca_bundle),
            aws_labels.EC2_NODE_CLASS_HASH_VERSION: hashes.EC2_NODE_CLASS_HASH_VERSION,
        }
        version = node_class.metadata.annotations.get(aws_labels.EC2_NODE_CLASS_HASH_VERSION)
        if version is not None and version != hashes.EC2_NODE_CLASS_HASH_VERSION:
            await self._rehash_claims(node_class.name, wanted)
        if any(node_class.metadata.annotations.get(key) != value for key, value in wanted.items()):
            body["annotations"] = wanted
        if not body:
            return node_class
        body["resourceVersion"] = node_class.metadata.resource_version
        return await self._kube.patch(EC2NodeClass, node_class.name, MergePatch({"metadata": body}))

    async def _rehash_claims(self, name: str, wanted: dict[str, str]) -> None:
        """Claims of another hash version are re-hashed, not drifted; one that has drifted already keeps its hash."""
        version = wanted[aws_labels.EC2_NODE_CLASS_HASH_VERSION]
        for claim in await self._claims(name):
            if claim.metadata.annotations.get(aws_labels.EC2_NODE_CLASS_HASH_VERSION) == version:
                continue
            drifted = find_condition(claim.status.conditions, "Drifted") is not None
            found = {aws_labels.EC2_NODE_CLASS_HASH_VERSION: version} if drifted else wanted
            await self._kube.patch(NodeClaim, claim.name, MergePatch({"metadata": {"annotations": found}}))

    def _set(self, node_class: EC2NodeClass, verdict: Verdict, now: datetime) -> EC2NodeClass:
        found = conditions.set_condition(
            node_class.status.conditions,
            verdict.kind,
            verdict.status,
            verdict.reason,
            verdict.message,
            kinds=self._kinds,
            meta=node_class.metadata,
            now=now,
        )
        return replace(node_class, status=replace(node_class.status, conditions=found))

    async def _amis(self, node_class: EC2NodeClass) -> Step:
        version = (await self._cluster()).version if any(t.alias for t in node_class.spec.ami_selector_terms) else ""
        try:
            found = await amis.resolve(self._ec2, self._parameters, node_class, version, self._clock.now())
        except amis.AliasUnsupported as error:
            return (
                replace(node_class.status, amis=()),
                Verdict("AMIsReady", conditions.FALSE, "UnsupportedAlias", str(error)),
                LATER,
            )
        status = replace(node_class.status, amis=found)
        if not found:
            text = "AMISelector did not match any AMIs"
            return status, Verdict("AMIsReady", conditions.FALSE, "AMINotFound", text), SOON
        return status, Verdict("AMIsReady", conditions.TRUE), LATER

    async def _capacity(self, node_class: EC2NodeClass) -> Step:
        now = self._clock.now()
        found = await reservations.resolve(self._ec2, node_class.spec.capacity_reservation_selector_terms, now)
        for r in found:
            self._reservations.told(r.capacity_reservation_id, r.available_instance_count, now)
        status = replace(node_class.status, capacity_reservations=reservations.described(found, now))
        ends = [r.end_date - now for r in found if r.end_date is not None]
        return status, Verdict("CapacityReservationsReady", conditions.TRUE), min([SOON, *ends])

    async def _placement(self, node_class: EC2NodeClass) -> Step:
        kind = "PlacementGroupReady"
        if node_class.spec.placement_group_selector is None:
            return node_class.status, Verdict(kind, conditions.TRUE), LATER
        try:
            found = await self._placement_groups.resolve(self._ec2, node_class, self._clock.now())
        except AwsError as error:
            if is_retryable(error):
                raise
            text = f"Failed to resolve placement group ({error})"
            return node_class.status, Verdict(kind, conditions.FALSE, "PlacementGroupResolutionFailed", text), SOON
        if found is None:
            text = f'Placement group "{placement.shown(node_class)}" not found'
            return node_class.status, Verdict(kind, conditions.FALSE, "PlacementGroupNotFound", text), SOON
        return node_class.status, Verdict(kind, conditions.TRUE), LATER

    async def _subnets(self, node_class: EC2NodeClass) -> Step:
        found = await selectors.subnets(self._ec2, node_class.spec.subnet_selector_terms)
        self._addresses.told(found)
        self._unavailable.know({s.availability_zone: s.availability_zone_id for s in found})
        listed = tuple(Subnet(id=s.subnet_id, zone=s.availability_zone, zone_id=s.availability_zone_id) for s in found)
        status = replace(node_class.status, subnets=listed)
        if not found:
            text = "SubnetSelector did not match any Subnets"
            return status, Verdict("SubnetsReady", conditions.FALSE, "SubnetsNotFound", text), SOON
        return status, Verdict("SubnetsReady", conditions.TRUE), SOON

    async def _groups(self, node_class: EC2NodeClass) -> Step:
        found = await selectors.security_groups(self._ec2, node_class.spec.security_group_selector_terms)
        status = replace(node_class.status, security_groups=tuple(SecurityGroup(id=g.group_id, name=g.group_name) for g in found))
        if not found:
            text = "SecurityGroupSelector did not match any SecurityGroups"
            return status, Verdict("SecurityGroupsReady", conditions.FALSE, "SecurityGroupsNotFound", text), SOON
        return status, Verdict("SecurityGroupsReady", conditions.TRUE), LATER

    async def _profile(self, node_class: EC2NodeClass) -> Step:
        spec = node_class.spec
        if spec.instance_profile:
            name = spec.instance_profile
        else:
            try:
                cluster = (await self._cluster()).name
                name = await profiles.ensure(self._ec2, cluster, self._settings.region, node_class, self.roles, self._clock.now())
            except profiles.RoleMissing as missing:
                verdict = Verdict("InstanceProfileReady", conditions.FALSE, "RoleNotFound", str(missing))
                return replace(node_class.status, instance_profile=""), verdict, SOON
        return replace(node_class.status, instance_profile=name), Verdict("InstanceProfileReady", conditions.TRUE), LATER

    async def _finalize(self, node_class: EC2NodeClass) -> timedelta | None:
        if aws_labels.TERMINATION_FINALIZER not in node_class.metadata.finalizers:
            return None
        claims = sorted(c.name for c in await self._claims(node_class.name))
        if claims:
            more = f" and {len(claims) - 5} other(s)" if len(claims) > 5 else ""
            text = f"Waiting on NodeClaim termination for {', '.join(claims[:5])}{more}"
            self._recorder.publish(
                node_class, "Normal", "WaitingOnNodeClaimTermination", text, (node_class.metadata.uid, *claims[:5])
            )
            return WAIT_FOR_CLAIMS
        if not self._settings.isolated_vpc:
            await profiles.remove_all(self._ec2, (await self._cluster()).name, self._settings.region, node_class)
        self._validation.forget(node_class.name)
        await self._templates.remove_class(node_class.name)
        rest = [f for f in node_class.metadata.finalizers if f != aws_labels.TERMINATION_FINALIZER]
        body = {"metadata": {"finalizers": rest, "resourceVersion": node_class.metadata.resource_version}}
        with suppress(NotFound):
            await self._kube.patch(EC2NodeClass, node_class.name, MergePatch(body))
        return None

    async def _claims(self, name: str) -> list[NodeClaim]:
        listed = (await self._kube.list(NodeClaim)).items
        return [c for c in listed if c.spec.node_class_ref.kind == "EC2NodeClass" and c.spec.node_class_ref.name == name]


def _status(before: EC2NodeClassStatus, after: EC2NodeClassStatus) -> dict[str, object]:
    """The merge patch between the two: lists whole, None for what went."""
    old, new = msgspec.to_builtins(before), msgspec.to_builtins(after)
    for ami, described in zip(after.amis, new.get("amis", ()), strict=True):
        described["requirements"] = msgspec.to_builtins(ami.requirements)
    # The CRD wants a message in every condition, an empty one too.
    old["conditions"] = [changes.condition(c) for c in before.conditions]
    new["conditions"] = [changes.condition(c) for c in after.conditions]
    return {key: new.get(key) for key in sorted({*old, *new}) if old.get(key) != new.get(key)}


def refusal(node_class: EC2NodeClass) -> NodeClassNotReady | None:
    """Why a NodeClass cannot serve launches now; None if it can. Source: spec/aws 7.1."""
    if node_class.metadata.deletion_timestamp is not None:
        return NodeClassNotReady(f"EC2NodeClass {node_class.name} is being deleted")
    ready = find_condition(node_class.status.conditions, conditions.READY)
    if ready is None or ready.status == conditions.UNKNOWN:
        return NodeClassNotReady(f"EC2NodeClass {node_class.name} is not ready yet")
    if ready.status != conditions.TRUE or ready.observed_generation != node_class.metadata.generation:
        return NodeClassNotReady(f"EC2NodeClass {node_class.name} is not ready: {ready.message or 'it changed just now'}")
    return None
