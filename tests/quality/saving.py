"""What improved plans save on random problems, judged against the reference, and whether they are right.

`PYTHONPATH=src:. python -m tests.quality.saving 500` does it for 500: half of them small, over every feature
(`tests.conformance.problems`), half capped (`tests.quality.problems`). Every plan must be valid by the independent validator, and
where both sides place the same pods it must not cost more than the best of three answers of the reference, which vary. Over the
capped set it must be 6 % cheaper.
"""

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tests.conformance.adapter import answer
from tests.conformance.judge import Oracle, placed, usd
from tests.conformance.problems import problem
from tests.conformance.problems.shapes import CT, RESERVATION
from tests.conformance.validator import violations
from tests.quality.problems import capped

RUNS = 3
LEAST_SAVED = 0.06
_ROUNDING = 1e-6


class Outcome(NamedTuple):
    name: str
    invalid: list[tuple[str, str]]
    """Rules that the improved plan breaks and first fit's does not."""
    usd: float
    first_usd: float
    best_usd: float
    """The reference's best; 0 where the two did not place the same pods, or the reference broke a rule or could not launch it."""

    @property
    def is_comparable(self) -> bool:
        return self.best_usd > 0

    @property
    def saved(self) -> float:
        """Share of the reference's best."""
        return 1 - self.usd / self.best_usd

    @property
    def is_dearer(self) -> bool:
        return self.is_comparable and self.usd > self.best_usd * (1 + _ROUNDING)


def asked_of(index: int) -> tuple[str, Mapping[str, Any]]:
    """Problems come in turns: a small one over every feature, a capped one."""
    seed, is_capped = divmod(index, 2)
    if is_capped:
        return f"capped {seed}", capped(seed)
    asked = problem(seed)[0]
    return f"small {seed}", {**asked, "wellKnownLabels": [*asked["wellKnownLabels"], RESERVATION]}


def outcome(oracle: Oracle | None, name: str, asked: Mapping[str, Any]) -> Outcome:
    """Without an oracle nothing is compared with it."""
    ours = answer({**asked, "packing": "improve"})
    first = answer({**asked, "packing": "first-fit"})
    assert not ours.get("error"), ours
    wrong = violations(asked, ours)
    if wrong:
        wrong = [w for w in wrong if w not in violations(asked, first)]
    best = 0.0
    for _ in range(RUNS if oracle is not None else 0):
        assert oracle is not None
        theirs = oracle.answer(asked)
        if theirs.get("error") or placed(theirs) != placed(ours) or violations(asked, theirs) or _cannot_launch(asked, theirs):
            continue
        cost = usd(asked, theirs)
        best = min(best, cost) if best else cost
    return Outcome(name, wrong, usd(asked, ours), usd(asked, first), best)


def _cannot_launch(asked: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Whether a node is to be reserved capacity and names types that have none, for minValues that its launch would break."""
    reserved = {
        t["name"]
        for t in asked["instanceTypes"]
        for o in t["offerings"]
        if any(r["values"] == ["reserved"] for r in o["requirements"])
    }
    keen = {
        o["metadata"]["name"]
        for o in asked["objects"]
        if o["kind"] == "NodePool" and any("minValues" in r for r in o["spec"]["template"]["spec"].get("requirements", ()))
    }
    return any(
        n["nodePool"] in keen and n["requirements"].get(CT) == ["In", "reserved"] and not set(n["instanceTypes"]) <= reserved
        for n in given["newNodes"] or ()
    )


def told(found: Sequence[Outcome]) -> list[str]:
    """The figures, by set."""
    lines = []
    for kind in ("small", "capped"):
        mine = [o for o in found if o.name.startswith(kind)]
        same = [o for o in mine if o.is_comparable]
        lines.append(
            f"{kind}: {len(mine)} problems, {sum(bool(o.invalid) for o in mine)} invalid, {len(same)} comparable,"
            f" {sum(o.is_dearer for o in mine)} dearer than the best of {RUNS}"
        )
        if same:
            theirs, ours, first = (sum(getattr(o, f) for o in same) for f in ("best_usd", "usd", "first_usd"))
            shares = sorted(o.saved for o in same)
            lines.append(
                f"  $/h: reference's best {theirs:.2f}, first fit {first:.2f}, improved {ours:.2f}: {1 - ours / theirs:.1%} less;"
                f" saved by problem: median {statistics.median(shares):.1%},"
                f" 95th percentile {shares[min(len(shares) - 1, int(0.95 * len(shares)))]:.1%}, least {shares[0]:.1%}"
            )
    return lines


def saved(found: Sequence[Outcome]) -> float:
    """Share of the reference's bill over the capped problems that both answer alike."""
    same = [o for o in found if o.name.startswith("capped") and o.is_comparable]
    return 1 - sum(o.usd for o in same) / sum(o.best_usd for o in same)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=500)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    from tests.plane.binaries import ensure

    oracle = Oracle(ensure("oracle"))
    found = []
    for index in range(given.first, given.first + given.count):
        found.append(outcome(oracle, *asked_of(index)))
        if found[-1].invalid or found[-1].is_dearer:
            print(found[-1], flush=True)
    oracle.close()
    print("\n".join(told(found)))
    bad = any(o.invalid or o.is_dearer for o in found)
    return int(bad or saved(found) < LEAST_SAVED)


if __name__ == "__main__":
    sys.exit(main())
