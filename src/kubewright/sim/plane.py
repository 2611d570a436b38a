"""The fake EC2 for an operator on a real control plane: its machines become Nodes there, which kwok keeps alive."""

import asyncio

from kubewright.clock import Clock
from kubewright.cloud.aws.provider import AwsProvider
from kubewright.kube.client import KubeClient
from kubewright.settings import Settings
from kubewright.sim.ec2 import FakeEc2, Faults
from kubewright.sim.joiner import Joiner, JoinerSettings

KWOK = {"kwok.x-k8s.io/node": "fake"}
"""The annotation by which kwok knows the Nodes it is to keep alive."""


class FakeCloud(AwsProvider):
    """The AWS provider on a fake EC2 of its own, with the work that joins its machines to the cluster."""

    def __init__(self, ec2: FakeEc2, joiner: Joiner, client: KubeClient, clock: Clock, settings: Settings) -> None:
        super().__init__(ec2, client, clock, settings, ec2.settings)
        self._joining = asyncio.create_task(joiner.run(), name="joiner")

    async def close(self) -> None:
        self._joining.cancel()
        await super().close()


async def fake_ec2(client: KubeClient, clock: Clock, settings: Settings, *, launch_s: float, join_s: float) -> FakeCloud:
    """A provider whose machines run `launch_s` after they were bought and join `join_s` later, both in seconds."""
    faults = Faults(launch_s=launch_s, launch_jitter_s=0.0, call_s=min(0.05, launch_s))
    ec2 = FakeEc2(clock, faults=faults, cluster=settings.cluster_name or "sandbox")
    joiner = Joiner(client, clock, JoinerSettings(join_s=join_s, join_jitter_s=0.0, forget_s=min(10.0, join_s), annotations=KWOK))
    ec2.on_running(joiner.running)
    ec2.on_terminated(joiner.terminated)
    return FakeCloud(ec2, joiner, client, clock, settings)
