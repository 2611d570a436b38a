"""Reads a cluster once, as `takeover.judge` wants it; nothing is written."""

import asyncio
from typing import ClassVar

import msgspec
from msgspec import field

from kubewright.api.core import Lease, Node
from kubewright.api.karpenter import NodeClaim
from kubewright.api.meta import Object, Resource, Wire
from kubewright.clock import Clock
from kubewright.cloud.provider import CloudProvider
from kubewright.disruption.memory import Memory
from kubewright.errors import CloudError, ConfigError, NotFound
from kubewright.install.takeover import Found, Karpenter
from kubewright.kube.client import KubeClient
from kubewright.lifecycle import claims
from kubewright.operator.deciding import Solver
from kubewright.operator.disrupting import Disrupter
from kubewright.operator.neighbours import AUTO_MODE, KARPENTER
from kubewright.operator.options import Options
from kubewright.state.mirror import Mirror

PATIENCE_S = 60.0


class Variable(Wire, frozen=True, kw_only=True):
    name: str
    value: str = ""


class ProgramContainer(Wire, frozen=True, kw_only=True):
    name: str = ""
    image: str = ""
    env: tuple[Variable, ...] = ()
    args: tuple[str, ...] = ()


class ProgramPod(Wire, frozen=True, kw_only=True):
    containers: tuple[ProgramContainer, ...] = ()


class ProgramTemplate(Wire, frozen=True, kw_only=True):
    spec: ProgramPod = ProgramPod()


class ProgramSpec(Wire, frozen=True, kw_only=True):
    replicas: int | None = None
    template: ProgramTemplate = ProgramTemplate()


class Program(Object, frozen=True, kw_only=True):
    """A Deployment, with what its containers are told; the narrow one for scheduling has none of it."""

    RESOURCE: ClassVar[Resource] = Resource("apps", "v1", "Deployment", "deployments", True)
    spec: ProgramSpec = field(default_factory=ProgramSpec)


async def read(client: KubeClient, provider: CloudProvider, clock: Clock, options: Options, lease: tuple[str, str]) -> Found:
    """Everything at one moment; `lease` is namespace and name of Karpenter's.

    Raises:
        KubeError: something cannot be read.
        ConfigError: the server does not answer in time.
    """
    mirror = Mirror(client, provider, clock, options.settings)
    watching = asyncio.create_task(mirror.run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            await mirror.wait_synced()
            await mirror.refresh_pools()
        snapshot = mirror.snapshot(clock.now())
        node_claims = tuple(mirror.node_claims.objects[name] for name in sorted(mirror.node_claims.objects))
        solver = Solver(options.settings, provider)
        problem, _ = solver.ask(snapshot)
        return Found(
            snapshot=snapshot,
            karpenters=tuple([_karpenter(one) for one in (await client.list(Program, labels=KARPENTER)).items]),
            lease_holder=await _holder(client, *lease),
            auto_mode_nodes=tuple(sorted(node.name for node in (await client.list(Node, labels=AUTO_MODE)).items)),
            node_pools=tuple(mirror.node_pools.objects[name] for name in sorted(mirror.node_pools.objects)),
            node_claims=node_claims,
            node_classes=tuple(
                informer.objects[name] for informer in mirror.node_classes.values() for name in sorted(informer.objects)
            ),
            managed=frozenset((k.group, k.kind) for k in provider.node_class_kinds),
            cloud_drift=await _drift(provider, mirror, node_claims),
            plan=await asyncio.to_thread(solver.decide, problem),
            decisions=await asyncio.to_thread(Disrupter(options.settings, provider).look, snapshot, Memory()),
            cluster_ca_bundle=options.provider.get("cluster-ca-bundle", ""),
        )
    except TimeoutError as error:
        late = ", ".join(i.kind.RESOURCE.plural for i in mirror.informers if not i.synced)
        raise ConfigError(
            f"no list of {late} within {PATIENCE_S:.0f} s; see that the server answers and may be read from"
        ) from error
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _holder(client: KubeClient, namespace: str, name: str) -> str:
    try:
        return (await client.get(Lease, name, namespace)).spec.holder_identity or ""
    except NotFound:
        return ""


async def _drift(provider: CloudProvider, mirror: Mirror, found: tuple[NodeClaim, ...]) -> dict[str, str]:
    answers: dict[str, str] = {}
    for claim in found:
        if mirror.is_managed(claim.spec.node_class_ref) and claims.is_set(claim, claims.LAUNCHED):
            try:
                answers[claim.name] = await provider.drift_reason(claim)
            except CloudError:
                continue  # a machine that is gone, or a cloud that cannot answer, is no drift
    return answers


def _karpenter(one: Program) -> Karpenter:
    containers = one.spec.template.spec.containers
    main = next((c for c in containers if c.name == "controller"), containers[0] if containers else ProgramContainer())
    return Karpenter(
        key=one.key,
        replicas=1 if one.spec.replicas is None else one.spec.replicas,
        version=one.metadata.labels.get("app.kubernetes.io/version", "") or _tag(main.image),
        environment={v.name: v.value for v in main.env if v.value},
        arguments=main.args,
    )


def _tag(image: str) -> str:
    return image.partition("@")[0].rpartition("/")[2].partition(":")[2]


def as_json(report: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(report), indent=2)
