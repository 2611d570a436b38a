"""`kubewright explain`: why a pod waits or goes where it goes; why a node is what it is, and why it stays."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kubewright.cli import stock
from kubewright.errors import ConfigError

if TYPE_CHECKING:
    from kubewright.cli.looking import Look
    from kubewright.explain.node import NodeStory
    from kubewright.explain.why import Explanation

F = TypeVar("F", bound=Callable[..., Any])
_TAKES_FLAGS = {"ignore_unknown_options": True, "allow_extra_args": True}


@click.group("explain", short_help="Say why a pod has no node, why a node is what it is, and why it stays.")
def command() -> None:
    """Say why a pod has no node, which constraints conflict, and what the nearest fix is; why a node has its type and price, what
    the cloud chose, and why the node stays.

    \b
    On the cluster of your kubeconfig:  kubewright explain pod shop/web-1
                                        kubewright explain node ip-10-0-1-23.us-west-2.compute.internal
                                        kubewright explain nodeclaim general-7xk2p
    In the sandbox:                     kubewright sandbox --serve, and in another shell
                                        KUBECONFIG=kubewright-sandbox.kubeconfig kubewright explain pod shop/web-1
    From files:                         kubectl get -o yaml -A pods,nodes,nodeclaims,nodepools,ec2nodeclasses,daemonsets,\\
                                        poddisruptionbudgets,persistentvolumeclaims > cluster.yaml
                                        kubewright explain pod shop/web-1 -f cluster.yaml
    From a record of a pass:            kubewright explain pod shop/web-1 --record FILE

    Nothing is changed anywhere. -o json prints all of it for programs.
    """  # noqa: D301 (click wants the control character)


def _of_a_cluster(function: F) -> F:
    """The options that say which cluster is meant, and how to print."""
    for option in (
        click.argument("flags", nargs=-1, type=click.UNPROCESSED),
        click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True),
        stock.option,
        click.option(
            "--cloud", default=None, help="As `run` takes it. [default: aws; fake-ec2 with -f and for the sandbox's kubeconfig]"
        ),
        click.option(
            "-f",
            "--filename",
            "files",
            multiple=True,
            type=click.Path(path_type=Path),
            help="Saved objects instead of a cluster.",
        ),
    ):
        function = option(function)
    return function


@command.command("pod", context_settings=_TAKES_FLAGS)
@click.argument("pod", metavar="NAMESPACE/NAME")
@click.option("--record", type=click.Path(path_type=Path), help="A record that `kubewright run --record` wrote.")
@_of_a_cluster
def pod_command(pod: str, record: Path | None, output: str, **which: Any) -> int:
    """Explain one pod. FLAGS are those of `kubewright run` that planning depends on, such as --preference-policy.

    For a pod that waits: how the instance types of each NodePool dwindle, constraint by constraint, and who asked for it; the
    smallest set of constraints that cannot be met together; the changes that would let it in, smallest first, each tried out.

    Exit code: 0 if the pod has a place or will get one, 1 if it waits, 2 if the cluster or the pod cannot be found.
    """
    from kubewright.explain import why  # noqa: PLC0415 (so that --help is quick)

    if pod.count("/") > 1 or not pod.strip("/"):
        raise ConfigError(f"found {pod!r}; write NAMESPACE/NAME, or NAME for the namespace default")
    key = pod if "/" in pod else f"default/{pod}"
    told = _from_record(record, key) if record is not None else _explain(_look(which), key)
    click.echo(told.as_json().decode() if output == "json" else why.text(told))
    return 0 if told.placed else 1


@command.command("node", context_settings=_TAKES_FLAGS)
@click.argument("name", metavar="NAME")
@_of_a_cluster
def node_command(name: str, output: str, **which: Any) -> int:
    """Explain one node. FLAGS are those of `kubewright run` that disruption depends on.

    What it was bought for, what each constraint removed of the instance types, the cheapest that were left and the runner-up,
    what the cloud chose of them; and why it stays: which pod, which PodDisruptionBudget, which budget and when that next opens,
    or what would be saved and why that is not worth it.

    Exit code: 0, or 1 if the node is about to go, 2 if the cluster or the node cannot be found.
    """
    return _node(name, output, which, claim=False)


@command.command("nodeclaim", context_settings=_TAKES_FLAGS)
@click.argument("name", metavar="NAME")
@_of_a_cluster
def nodeclaim_command(name: str, output: str, **which: Any) -> int:
    """Explain one NodeClaim, as `kubewright explain node` does; it need not have a machine yet.

    Exit code: 0, or 1 if it is about to go, 2 if the cluster or the NodeClaim cannot be found.
    """
    return _node(name, output, which, claim=True)


def _look(which: dict[str, Any]) -> "Look":
    from kubewright.cli import looking  # noqa: PLC0415

    return looking.look(looking.Wanted(**which))


def _node(name: str, output: str, which: dict[str, Any], *, claim: bool) -> int:
    from kubewright.explain import node  # noqa: PLC0415

    told = _story(_look(which), name, claim=claim)
    click.echo(told.as_json().decode() if output == "json" else node.text(told))
    return 1 if told.going else 0


def _story(seen: "Look", name: str, *, claim: bool) -> "NodeStory":
    from kubewright.cli.looking import some  # noqa: PLC0415
    from kubewright.disruption.decisions import decide  # noqa: PLC0415
    from kubewright.disruption.memory import Memory  # noqa: PLC0415
    from kubewright.explain import node  # noqa: PLC0415
    from kubewright.lifecycle import orders, state  # noqa: PLC0415

    known = node.find(seen.snapshot, name, claim=claim)
    if known is None:
        if claim and name in seen.claims:
            return node.unlaunched(seen.claims[name], seen.snapshot, seen.solver)
        there = sorted(seen.claims) if claim else node.names_of(seen.snapshot)
        raise ConfigError(f"no {'NodeClaim' if claim else 'Node'} {name} in the cluster; there are: {some(there)}")
    ordered = (n for n in seen.snapshot.nodes if n.claim is not None and orders.order_of(n.claim) is not None)
    memory = Memory(queued=frozenset(map(state.provider_id, ordered)))
    decisions = decide(seen.snapshot, seen.settings, seen.snapshot.now, memory, seen.solver)
    return node.story(known, seen.snapshot, decisions, seen.solver)


def _from_record(path: Path, key: str) -> "Explanation":
    from kubewright import records  # noqa: PLC0415
    from kubewright.cli.looking import some  # noqa: PLC0415
    from kubewright.explain.why import explain  # noqa: PLC0415

    try:
        record = records.load(path)
    except OSError as error:
        raise ConfigError(
            f"--record: found {str(path)!r}, which cannot be read ({error.strerror}); write another path"
        ) from error
    if all(p.key != key for p in record.problem.pods):
        raise ConfigError(f"{path}: no pod {key} in this pass; write one of {some(p.key for p in record.problem.pods)}")
    return explain(record.problem, record.plan, key)


def _explain(seen: "Look", key: str) -> "Explanation":
    import msgspec  # noqa: PLC0415

    from kubewright.cli.looking import some  # noqa: PLC0415
    from kubewright.explain.why import Explanation, explain, explain_ignored  # noqa: PLC0415
    from kubewright.lifecycle.unused import relieved  # noqa: PLC0415
    from kubewright.packing import plan  # noqa: PLC0415
    from kubewright.solver.select import select  # noqa: PLC0415

    snapshot = seen.snapshot
    for place in snapshot.nodes:
        if any(p.key == key for p in place.pods) and place.node is not None:
            return Explanation(key, f"node {place.node.name}", notes=("It runs there already.",))
    chosen = select(snapshot, seen.solver)
    pending = next((p for p in snapshot.pods if p.key == key), None)
    if pending is None:
        raise ConfigError(f"no pod {key} in the cluster; pods that wait: {some(p.key for p in snapshot.pods)}")
    if key in chosen.ignored:
        return explain_ignored(chosen.problem, pending, chosen.ignored[key])
    if all(p.key != key for p in chosen.problem.pods):
        return Explanation(key, "", reasons=("kube-scheduler has not called it unschedulable, so no node is planned for it.",))
    problem, in_vain = relieved(chosen.problem)
    told = explain(problem, plan(problem, seen.settings), key)
    return msgspec.structs.replace(told, notes=(in_vain[key], *told.notes)) if key in in_vain else told
