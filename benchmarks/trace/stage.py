"""One side of the trace on virtual time: the whole operator, the pretend cluster and the fake EC2."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from msgspec.structs import replace

from benchmarks.trace import workload
from benchmarks.trace.deciders import Reference
from benchmarks.trace.ledger import Account, Ledger
from benchmarks.trace.workload import Shape
from kubewright.api import aws_labels
from kubewright.catalogue.types import InstanceType
from kubewright.clock import Clock
from kubewright.settings import Packing, Settings
from kubewright.sim import loop
from kubewright.sim.cluster import ClusterSettings
from kubewright.sim.ec2 import Faults
from kubewright.sim.joiner import JoinerSettings
from kubewright.sim.kubelet import KubeletDelays
from kubewright.sim.sandbox import Sandbox
from kubewright.solver.select import solver_settings
from tests.plane.kubewright import nodeclass

SIDES = ("reference", "kubewright")
SETTLE = timedelta(minutes=5)
"""Before the trace begins: the fleet is bought. It is paid for like the rest."""
SETTLE_SHORT = timedelta(minutes=1)

AT_ONCE = Faults(call_s=0.0, launch_s=0.0, launch_jitter_s=0.0, terminate_s=0.0, spot_prices_move=False)
JOINED_AT_ONCE = JoinerSettings(join_s=0.1, join_jitter_s=4.0, forget_s=0.0)
READY_AT_ONCE = ClusterSettings(kubelet=KubeletDelays(boot_s=0.1, start_s=0.1, stop_s=0.1))
"""A cloud that takes no time, as Karpenter's kwok provider and kwok's nodes."""


def play(shape: Shape, side: str, settle: timedelta, *, kwok: bool = False) -> Account:
    """Run the trace to its end; `kwok` for a cloud and nodes that take no time.

    Raises:
        OutOfTime: virtual time did not get there.
    """
    types = workload.types(shape)
    limit = shape.length + settle + timedelta(minutes=5)
    return loop.run(_play(shape, side, settle, types, kwok=kwok), limit_s=limit.total_seconds())


async def _play(shape: Shape, side: str, settle: timedelta, types: Sequence[InstanceType], *, kwok: bool) -> Account:
    clock = Clock(loop.EPOCH)
    settings = Settings(cluster_name="sandbox")
    reference = None
    if side == "reference":
        # What the reference does not have: improved plans, taints that steer pods away from nodes that are next to go.
        settings = replace(settings, packing=Packing.FIRST_FIT, disruption=replace(settings.disruption, steering=False))
        reference = Reference(solver_settings(settings, aws_labels.WELL_KNOWN))
    sandbox = Sandbox(
        clock,
        seed=shape.seed,
        settings=settings,
        faults=AT_ONCE if kwok else None,
        joining=JOINED_AT_ONCE if kwok else None,
        pace=READY_AT_ONCE if kwok else None,
        disrupter=reference,
    )
    ledger = Ledger(sandbox.store, sandbox.ec2, clock)
    async with sandbox.running():
        pool = workload.node_pool(shape, (t.name for t in types))
        for obj in workload.manifests(shape, nodeclass("default"), pool):
            sandbox.put(obj)
        await asyncio.sleep(settle.total_seconds())
        start = clock.now()
        beat_s = min(60.0, shape.churn_every.total_seconds())
        steps = list(workload.steps(shape))
        while clock.now() - start < shape.length:
            while steps and clock.now() - start >= steps[0].after:
                problem = sandbox.do(steps.pop(0).action)
                if problem:
                    raise SystemExit(f"the trace cannot go on: {problem}")
            await asyncio.sleep(beat_s)
            ledger.minute()
        return ledger.close()
