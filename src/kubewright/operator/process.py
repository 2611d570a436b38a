"""One operator process: metrics and probes, the lease, clean ends."""

import asyncio
import contextlib
import os
import signal
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from kubewright.clock import Clock
from kubewright.cloud.provider import CloudProvider
from kubewright.errors import ConfigError
from kubewright.kube import config
from kubewright.kube.client import KubeClient
from kubewright.kube.http import HttpClient
from kubewright.kube.instruments import ClientMetrics
from kubewright.kube.leases import LeaderElector
from kubewright.metrics import Registry
from kubewright.metrics.server import Page, serve
from kubewright.operator.neighbours import look_out
from kubewright.operator.operator import Operator
from kubewright.operator.options import Options
from kubewright.operator.pulse import pulse
from kubewright.operator.shadow import ReadOnly, Shadow
from kubewright.records.directory import Directory
from kubewright.records.keeper import Keeper

MakeProvider = Callable[[KubeClient, Clock], Awaitable[CloudProvider]]

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


async def run(options: Options, make_provider: MakeProvider, *, registry: Registry | None = None) -> None:
    """Run an operator on the cluster that `options` names, until SIGTERM or SIGINT, or until the lease is lost.

    Raises:
        ConfigError: the kubeconfig, a port or the provider's settings are not usable, or somebody else manages machines there.
        LeaseLost: another process leads now; start anew.
    """
    log = structlog.get_logger("kubewright.operator")
    for warning in options.warnings:
        log.warning(warning)
    clock = Clock()
    connection = config.load(options.kubeconfig, options.context)
    registry = registry or Registry()
    hooks = ClientMetrics(registry)
    client = HttpClient(connection, qps=options.kube_client_qps, burst=options.kube_client_burst, hooks=hooks)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(client.close)
        if options.shadow:
            await _run_shadow(options, client, clock, make_provider, registry)
            return
        wary = not options.take_over
        if wary:
            await look_out(client)
        provider = await make_provider(client, clock)
        stack.push_async_callback(provider.close)
        operator = Operator(
            client,
            provider,
            options.settings,
            clock,
            registry=registry,
            keeper=_keeper(options, clock),
            observability=options.observability,
        )
        await stack.enter_async_context(
            serve(
                operator.registry,
                ready=operator.ready_checks,
                metrics_port=options.metrics_port,
                health_port=options.health_probe_port,
                before_scrape=operator.observation.before_scrape,
            )
        )
        beat = asyncio.create_task(pulse(registry), name="pulse")
        stack.callback(beat.cancel)
        if options.leader_election:
            leading = _leading(options, client, clock, registry)
            work = operator.lead(leading, first=(lambda: look_out(client)) if wary else None)
        else:
            work = operator.run()
        await until_signalled(work)


async def _run_shadow(
    options: Options, client: KubeClient, clock: Clock, make_provider: MakeProvider, registry: Registry
) -> None:
    """Decide and write nothing, without a lease; say at the end how it would have gone."""
    reading = ReadOnly(client)
    provider = await make_provider(reading, clock)
    try:
        shadow = Shadow(reading, provider, options.settings, clock, registry)
        pages: dict[str, Page] = {
            "/shadow": lambda: ("application/json", shadow.as_json()),
            "/shadow.txt": lambda: ("text/plain", shadow.as_table().encode()),
        }
        serving = serve(
            registry,
            ready=shadow.ready_checks,
            metrics_port=options.metrics_port,
            health_port=options.health_probe_port,
            pages=pages,
        )
        async with serving:
            await until_signalled(shadow.run())
        for line in shadow.as_table().splitlines():
            structlog.get_logger("kubewright.shadow").info(line)
    finally:
        await provider.close()


def _keeper(options: Options, clock: Clock) -> Keeper | None:
    """Raises ConfigError: the directory cannot be written to."""
    if not options.record:
        return None
    directory = Directory(Path(options.record), most_files=options.record_files, most_bytes=options.record_bytes)
    return Keeper(directory, options.settings, clock)


async def until_signalled(work: Awaitable[None]) -> None:
    """Run `work`; SIGTERM or SIGINT cancels it and is then a good end."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    told = False

    def stop() -> None:
        nonlocal told
        told = True
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        await task
    except asyncio.CancelledError:
        if not told:
            raise
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _leading(
    options: Options, client: KubeClient, clock: Clock, registry: Registry
) -> Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]:
    """What `Operator.lead` wants: the election, with `leader_election_master_status` kept true."""
    elector = _elector(options, client, clock)

    def show(leads: float) -> None:
        registry.set("leader_election_master_status", leads, name=options.leader_election_name)

    async def led(lead: Callable[[], Awaitable[None]]) -> None:
        async def leading() -> None:
            show(1)
            try:
                await lead()
            finally:
                show(0)

        show(0)
        await elector.run(leading)

    return led


def _elector(options: Options, client: KubeClient, clock: Clock) -> LeaderElector:
    namespace = options.leader_election_namespace
    if not namespace and _NAMESPACE_FILE.is_file():
        namespace = _NAMESPACE_FILE.read_text().strip()
    if not namespace:
        raise ConfigError(
            "outside a cluster there is no namespace for the lease: add --leader-election-namespace NAME, or"
            " --disable-leader-election to run without a lease"
        )
    identity = f"{os.environ.get('HOSTNAME', 'kubewright')}_{uuid.uuid4()}"
    return LeaderElector(client, clock, namespace=namespace, name=options.leader_election_name, identity=identity)
