"""The tables that close a sandbox run."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kubewright.explain import cost as costs

if TYPE_CHECKING:
    from kubewright.sim.report import Report

PIPED_WIDTH = 130
"""Columns where the output is no terminal."""
NARROW = 110
"""Terminals below this get tables without the columns that tell of pods."""
MOST_PENDING = 20


def console() -> Console:
    return Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)


def show(report: "Report", out: Console, prices: str) -> None:
    """Everything the report says; `prices` is where the money comes from. The same report is the same text, to the byte."""
    out.print()
    _nodes(report, out)
    _machines(report, out)
    if report.pending:
        _pending(report, out)
    for title, lines in (("Steps that could not be done", report.failed_steps), ("Warnings", report.warnings)):
        if lines:
            out.print(Text(title, style="bold"))
            for line in lines:
                out.print(Text(f"  {line}"), soft_wrap=True)
    minutes = report.elapsed_seconds / 60
    ended = "the cluster is quiet" if report.quiet else "it was ended before the cluster was quiet"
    out.print(
        f"{minutes:.0f} minutes of cluster time; {ended}. "
        f"Cost: ${report.usd:.4f} in all, ${report.usd_per_hour:.4f} an hour at the end.",
        highlight=False,
    )
    if report.planned.usd_per_hour:
        out.print(Text(f"Machines were bought for {costs.text(report.planned)}."), soft_wrap=True)
    out.print(Text(prices, style="dim"), soft_wrap=True)


def _nodes(report: "Report", out: Console) -> None:
    if not report.nodes:
        out.print("There are no nodes at the end.")
        return
    table = _table("Nodes at the end", ("node", "pool", "type", "zone", "capacity"), ("pods", "$/h"), out, "what runs there")
    for row in report.nodes:
        _row(
            table,
            (row.name, row.node_pool, row.instance_type, row.zone, row.capacity_type),
            (str(sum(row.pods.values())), f"{row.usd_per_hour:.4f}"),
            _counts(row.pods),
        )
    table.add_section()
    pods = sum(sum(r.pods.values()) for r in report.nodes)
    _row(table, ("total", _many(len(report.nodes), "node"), "", "", ""), (str(pods), f"{report.usd_per_hour:.4f}"), "")
    out.print(table)


def _machines(report: "Report", out: Console) -> None:
    if not report.machines:
        out.print("No machine was bought.")
        return
    title = "Every machine of the run"
    table = _table(title, ("machine", "pool", "type", "zone", "capacity"), ("minutes", "$"), out, "pods that ran there")
    for row in report.machines:
        _row(
            table,
            (row.name, row.node_pool, row.instance_type, row.zone, row.capacity_type),
            (f"{row.hours * 60:.1f}", f"{row.usd:.4f}"),
            _counts(row.pods),
        )
    table.add_section()
    minutes = sum(r.hours for r in report.machines) * 60
    _row(table, ("total", _many(len(report.machines), "machine"), "", "", ""), (f"{minutes:.1f}", f"{report.usd:.4f}"), "")
    out.print(table)


def _pending(report: "Report", out: Console) -> None:
    table = Table(title="Pods without a node", title_justify="left", show_lines=True)
    table.add_column("pod", overflow="fold")
    table.add_column("why, in kubewright's words", overflow="fold", ratio=2)
    table.add_column("in kube-scheduler's words", overflow="fold", ratio=1)
    # Pods of one workload wait for the same reason; one row tells it for all of them.
    alike: dict[tuple[str, str], list[str]] = {}
    for waiting in report.pending:
        alike.setdefault((waiting.why, waiting.scheduler), []).append(waiting.pod)
    for (why, scheduler), pods in list(alike.items())[:MOST_PENDING]:
        more = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
        table.add_row(Text(pods[0] + more), Text(why or "nothing said yet"), Text(scheduler))
    if len(alike) > MOST_PENDING:
        table.add_row(f"and others, for {len(alike) - MOST_PENDING} more reasons", "", "")
    out.print(table)


def _table(title: str, left: tuple[str, ...], right: tuple[str, ...], out: Console, last: str) -> Table:
    table = Table(title=title, title_justify="left")
    for name in left:
        table.add_column(name, no_wrap=True)
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    if out.width >= NARROW:
        table.add_column(last)
    return table


def _row(table: Table, left: tuple[str, ...], right: tuple[str, ...], last: str) -> None:
    cells = (*left, *right, last)
    table.add_row(*cells[: len(table.columns)])


def _many(count: int, name: str) -> str:
    return f"{count} {name}{'s' if count != 1 else ''}"


def _counts(pods: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(pods.items()))
