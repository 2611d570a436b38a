"""The fake EC2 for an operator on a real control plane: its machines become Nodes there, which kwok keeps alive.

It lives in the operator's process. With a state file it outlives it: a process that was killed finds its machines again, with
whatever happened to them meanwhile still to come.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from kubewright.clock import Clock
from kubewright.cloud.aws.catalogue import Catalogue, embedded
from kubewright.cloud.aws.provider import AwsProvider
from kubewright.cloud.provider import Background
from kubewright.kube import config
from kubewright.kube.client import KubeClient
from kubewright.kube.http import HttpClient
from kubewright.settings import Settings
from kubewright.sim.ec2 import FakeEc2, Faults
from kubewright.sim.ec2.keeping import Keeper
from kubewright.sim.joiner import Joiner, JoinerSettings

KWOK = {"kwok.x-k8s.io/node": "fake"}
"""The annotation by which kwok knows the Nodes it is to keep alive."""


REGION = "us-west-2"


def selling_region(known: Catalogue) -> str:
    """Where the fake EC2 stands: us-west-2, or the first region that the catalogue has."""
    return REGION if REGION in known.regions else min(known.regions)


class FakeCloud(AwsProvider):
    """The AWS provider on a fake EC2 of its own, with the work that joins its machines to the cluster."""

    def __init__(
        self,
        ec2: FakeEc2,
        joiner: Joiner,
        client: KubeClient,
        clock: Clock,
        settings: Settings,
        known: Catalogue,
        kubelets: HttpClient | None = None,
    ) -> None:
        """`kubelets` is closed with the provider."""
        super().__init__(ec2, client, clock, settings, ec2.settings, known=known)
        self._fake = ec2
        self._joiner = joiner
        self._kubelets = kubelets

    def background(self) -> Sequence[Background]:
        return (*super().background(), _Joining(self._joiner))

    async def close(self) -> None:
        self._fake.stop()
        if self._kubelets is not None:
            await self._kubelets.close()
        await super().close()


class _Joining:
    name = "fake machines that join"

    def __init__(self, joiner: Joiner) -> None:
        self._joiner = joiner

    async def run(self) -> None:
        await self._joiner.run()


async def fake_ec2(
    client: KubeClient,
    clock: Clock,
    settings: Settings,
    *,
    launch_s: float,
    join_s: float,
    state: Path | None = None,
    known: Catalogue | None = None,
    kubelets: str = "",
) -> FakeCloud:
    """A provider whose machines run `launch_s` after they were bought and join `join_s` later, both in seconds.

    Calls, terminations and the deletion of a dead machine's Node are no slower than that either. `state` is the file that the
    account is kept in; `known` is what it sells, the embedded catalogue by default.
    `kubelets` is the kubeconfig whose user makes and deletes the Nodes, which an operator's own may not; "" for `client`'s.

    Raises:
        ConfigError: `state` is not such a file, or cannot be written; or `kubelets` cannot be used.
    """
    defaults = Faults()
    faults = Faults(
        launch_s=launch_s,
        launch_jitter_s=0.0,
        call_s=min(defaults.call_s, launch_s),
        terminate_s=min(defaults.terminate_s, launch_s),
    )
    known = known or embedded()
    ec2 = FakeEc2(clock, faults=faults, region=selling_region(known), cluster=settings.cluster_name or "sandbox", known=known)
    forget_s = min(JoinerSettings().forget_s, join_s)
    own = HttpClient(config.load(kubelets)) if kubelets else None
    joiner = Joiner(own or client, clock, JoinerSettings(join_s=join_s, join_jitter_s=0.0, forget_s=forget_s, annotations=KWOK))
    ec2.on_running(joiner.running)
    ec2.on_terminated(joiner.terminated)
    if state is not None:
        keeper = Keeper(ec2, state)
        await asyncio.to_thread(keeper.check)
        keeper.restore()
        keeper.keep()
    return FakeCloud(ec2, joiner, client, clock, settings, known, own)
