"""A fleet that grows, shrinks and grows again with churn: our consolidation beside a model of the reference's, on virtual time.

    PYTHONPATH=src:. python -m benchmarks.trace                  300 nodes, 100 % → 25 % → 60 %, 20 minutes each
    PYTHONPATH=src:. python -m benchmarks.trace --nodes 30       a first look
    PYTHONPATH=src:. python -m benchmarks.trace --faithful       the model beside Karpenter 1.14.1 itself on the real plane: short
                                                                 traces, eight minutes each; needs Go once
    ... --seed 2 --consolidate-after 1m --budget 5%              other traces
    ... -o results.json                                          every figure

Both sides are the whole operator on the pretend cluster and the fake EC2, with the same pods, machines, prices, budgets and
consolidateAfter, and both start from nothing. The side "reference" decides on disruption by the model in `reference.py`, step by
step as the reference does, and buys by first fit, as the reference does; the side "kubewright" is what `kubewright run` does by
default.

$·h is what all machines cost from start to end; evictions are pods that were told to go for the sake of a node; launches are
machines bought; pending is how long pods were without a node, added up over all pods.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import msgspec
import structlog
from msgspec.structs import replace

from benchmarks.trace import real, stage
from benchmarks.trace.ledger import Account
from benchmarks.trace.workload import Shape
from kubewright.api import duration

SHORT = Shape(
    nodes=30, dwell=timedelta(minutes=2), churn_every=timedelta(seconds=20), churn=0.05, consolidate_after="10s", budget="20%"
)
"""The trace on which the model is held against Karpenter itself, in real time."""


def main() -> int:
    """Run and print; the exit code is 1 if ours is neither cheaper at half the evictions nor as gentle and cheaper."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.trace", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=300, help="about how many machines the pods fill at first (300)")
    parser.add_argument("--dwell", default="20m", help="at each level (20m)")
    parser.add_argument("--consolidate-after", default="30s", help="of the NodePool (30s)")
    parser.add_argument("--budget", default="10%", help="of the NodePool (10%%)")
    parser.add_argument("--capacity-type", choices=("on-demand", "spot"), default="on-demand")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=stage.SIDES, action="append", help="one side alone")
    parser.add_argument("--faithful", action="store_true", help="hold the model against Karpenter itself")
    parser.add_argument("--runs", type=int, default=3, help="of --faithful, each with a seed of its own (3)")
    parser.add_argument("-o", "--output", type=Path, help="write every figure as JSON")
    asked = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    if asked.faithful:
        found = {}
        for seed in range(asked.seed, asked.seed + asked.runs):
            shape = replace(SHORT, seed=seed)
            found[f"Karpenter, seed {seed}"] = real.play(shape, stage.SETTLE_SHORT)
            found[f"its model, seed {seed}"] = stage.play(shape, "reference", stage.SETTLE_SHORT, kwok=True)
    else:
        shape = Shape(
            nodes=asked.nodes,
            dwell=duration.parse(asked.dwell),
            consolidate_after=asked.consolidate_after,
            budget=asked.budget,
            capacity_type=asked.capacity_type,
            seed=asked.seed,
        )
        found = {}
        for side in asked.only or stage.SIDES:
            start = time.monotonic()
            found[side] = stage.play(shape, side, stage.SETTLE)
            sys.stderr.write(f"{side}: {shape.length} of cluster time in {time.monotonic() - start:.0f} s\n")
    print(table(found))
    if asked.faithful:
        accounts = list(found.values())
        print(nearness(accounts[::2], accounts[1::2]))
    if asked.output:
        asked.output.write_text(json.dumps(msgspec.to_builtins(found), indent=2) + "\n", encoding="utf-8")
    if set(found) != set(stage.SIDES):
        return 0
    return int(not is_won(found["kubewright"], found["reference"]))


def is_won(ours: Account, theirs: Account) -> bool:
    """At most its cost at half the evictions, or at most its evictions at lower cost."""
    gentle = ours.usd <= theirs.usd and 2 * ours.evictions <= theirs.evictions
    cheap = ours.usd < theirs.usd and ours.evictions <= theirs.evictions
    return gentle or cheap


def table(found: Mapping[str, Account]) -> str:
    """Markdown, one row a side."""
    rows = [("", "$", "evictions", "launches", "pending pod-seconds", "nodes: first, least, last")]
    for side, one in found.items():
        nodes = f"{one.nodes[0]}, {min(one.nodes)}, {one.nodes[-1]}" if one.nodes else ""
        rows.append((side, f"{one.usd:.2f}", str(one.evictions), str(one.launches), f"{one.pending_pod_seconds:.0f}", nodes))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def nearness(theirs: Sequence[Account], models: Sequence[Account]) -> str:
    """How far the model is from what it models, over all runs: nodes at each beat, money, evictions, launches."""
    pairs = [(a, b) for one, model in zip(theirs, models, strict=True) for a, b in zip(one.nodes, model.nodes, strict=False)]
    there, modelled = sum(a for a, _ in pairs), sum(b for _, b in pairs)
    off = sum(abs(a - b) for a, b in pairs) / there
    lines = [f"nodes at {len(pairs)} beats: {off:.1%} off on average, {modelled / there - 1:+.1%} in sum"]
    for one, model in zip(theirs, models, strict=True):
        lines += [f"  Karpenter {' '.join(map(str, one.nodes))}", f"  its model {' '.join(map(str, model.nodes))}"]
    for name in ("usd", "evictions", "launches"):
        real_sum, model_sum = (sum(getattr(one, name) for one in side) for side in (theirs, models))
        lines.append(f"{name}: {real_sum:.2f} and {model_sum:.2f}, {model_sum / max(real_sum, 1e-9) - 1:+.1%}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
