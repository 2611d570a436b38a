"""Names on machines, once their Node is known: the console shows them, and bills can be split by them. Source: spec/aws 8.3."""

import asyncio
from datetime import timedelta

import structlog

from kubewright.api import aws_labels
from kubewright.api.karpenter import NodeClaim
from kubewright.cloud.aws import api, instances, retry, tags
from kubewright.cloud.aws.errors import AwsError
from kubewright.cloud.aws.machines import Machines
from kubewright.cloud.aws.unavailable import UnavailableOfferings
from kubewright.errors import CloudError, Conflict, InstanceNotFound, NotFound
from kubewright.kube.client import KubeClient, MergePatch

PAUSE_S = 1.0
"""After each call: CreateTags has one of EC2's smallest allowances."""
SHIFTED_AGAIN = timedelta(minutes=1)
_DONE = {aws_labels.TAGGED: "true", aws_labels.CLUSTER_NAME_TAGGED: "true"}


class Tagging:
    """`reconcile(name)` names one NodeClaim's machine; a tag that is there already stays as it is."""

    def __init__(
        self, ec2: api.Ec2Api, kube: KubeClient, machines: Machines, cluster: str, unavailable: UnavailableOfferings
    ) -> None:
        self._ec2 = ec2
        self._kube = kube
        self._machines = machines
        self._cluster = cluster
        self._unavailable = unavailable
        self._log = structlog.get_logger("kubewright.tagging")

    async def reconcile(self, name: str) -> timedelta | None:
        """Raises AwsError, KubeError: to be tried again."""
        try:
            claim = await self._kube.get(NodeClaim, name)
        except NotFound:
            return None
        if not self.wanted(claim):
            return None
        try:
            instance_id = instances.instance_id(claim.status.provider_id)
            machine = await self._machines.get(claim.status.provider_id)
        except InstanceNotFound:
            return None
        except CloudError as error:
            if isinstance(error, AwsError):
                raise
            self._log.error("cannot tag an instance", nodeclaim=name, error=str(error))
            return None
        if self._unavailable.shifted(machine.placement.availability_zone):
            return SHIFTED_AGAIN  # nothing is asked of a zone that is shifted away from
        wanted = {tags.NAME: claim.status.node_name, tags.NODE_CLAIM: claim.name, tags.CLUSTER: self._cluster}
        there = api.tags_of(machine.tags)
        missing = {key: value for key, value in wanted.items() if key not in there}
        if missing:
            try:
                await retry.call(self._ec2.create_tags, api.CreateTags(resources=(instance_id,), tags=tags.as_tags(missing)))
            except AwsError as error:
                if error.code == "InvalidInstanceID.NotFound":
                    return None
                raise
            await asyncio.sleep(PAUSE_S)
        body = {"metadata": {"annotations": _DONE}}
        try:
            await self._kube.patch(NodeClaim, name, MergePatch(body))
        except (NotFound, Conflict):
            return timedelta(seconds=1)
        return None

    @staticmethod
    def wanted(claim: NodeClaim) -> bool:
        found = claim.metadata.annotations
        return bool(
            claim.status.node_name
            and claim.status.provider_id.startswith("aws:///")
            and claim.metadata.deletion_timestamp is None
            and any(found.get(key) != value for key, value in _DONE.items())
        )
