"""The reference as judge: problems are answered by both, and what differs is told apart.

`python -m tests.conformance.judge 0 2000` does it for two thousand problems.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.conformance.adapter import answer
from tests.conformance.problems import FEATURES, problem
from tests.conformance.validator import violations

DIFFERENCES = {
    "reference-invalid": "the reference's own placement breaks a rule of Kubernetes, so its pods do not count",
    "min-domains-shared": "the reference counts spreads that differ only in minDomains or node filter as one (6.3 [Q])",
    "affinity-order": "with affinity and spread on the same pods the order decides who is left out",
    "limits-order": "where limits leave pods out, which ones they are depends on the order",
}
"""Differences on purpose, by name; each may only excuse what `excused` says."""


class Verdict(NamedTuple):
    seed: int
    features: frozenset[str]
    invalid: list[tuple[str, str]]
    missing: list[str]
    """Pods that the reference places, in accordance with Kubernetes, and we do not, unless we place more in all."""
    excuse: str
    reference_usd: float
    our_usd: float
    comparable: bool
    """Whether both place the same pods, validly, so that costs can be compared."""
    pending: int
    placed: int


class Oracle:
    """The reference, as one process that is kept running."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def answer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=10)
        self._process.stdout.close()


def judge(oracle: Oracle, seed: int) -> Verdict:
    asked, features = problem(seed)
    theirs, ours = oracle.answer(asked), answer(asked)
    assert not theirs.get("error"), theirs
    assert not ours.get("error"), ours
    pending = {
        f"{o['metadata']['namespace']}/{o['metadata']['name']}"
        for o in asked["objects"]
        if o["kind"] == "Pod" and not o["spec"].get("nodeName")
    }
    their_violations = violations(asked, theirs)
    wrong = {pod for pod, _ in their_violations}
    sound, all_theirs, mine = placed(theirs) - wrong, placed(theirs), placed(ours)
    missing = sorted(sound - mine) if len(mine) < len(sound) else []
    return Verdict(
        seed,
        features,
        violations(asked, ours),
        missing,
        excuse(features, wrong=bool(wrong)) if missing else "",
        usd(asked, theirs),
        usd(asked, ours),
        all_theirs == mine and not wrong,
        len(pending),
        len(mine),
    )


def excuse(features: Iterable[str], *, wrong: bool) -> str:
    """The named difference that a missing pod may be owed to; "" when there is none."""
    found = set(features)
    if wrong:
        return "reference-invalid"
    if "min-domains" in found:
        return "min-domains-shared"
    if "affinity" in found and "zone-spread" in found:
        return "affinity-order"
    return "limits-order" if "limits" in found else ""


def placed(given: Mapping[str, Any]) -> set[str]:
    return {pod for place in (*(given["newNodes"] or ()), *(given["existingNodes"] or ())) for pod in place["pods"]}


def usd(asked: Mapping[str, Any], given: Mapping[str, Any]) -> float:
    """What the new nodes cost an hour, each at its cheapest launchable offering."""
    types = {t["name"]: t for t in asked["instanceTypes"]}
    total = 0.0
    for node in given["newNodes"] or ():
        total += min(
            o["price"]
            for name in node["instanceTypes"]
            for o in types[name]["offerings"]
            if o["available"] and all(_allows(node["requirements"], r["key"], r["values"][0]) for r in o["requirements"])
        )
    return total


def _allows(requirements: Mapping[str, list[str]], key: str, value: str) -> bool:
    operator, *values = requirements.get(key, ["Exists"])
    return (value in values) == (operator == "In") if operator in ("In", "NotIn") else True


def main() -> int:
    from tests.plane.binaries import ensure

    first, last = int(sys.argv[1]), int(sys.argv[2])
    oracle = Oracle(ensure("oracle"))
    features: Counter[str] = Counter()
    pending: Counter[str] = Counter()
    stood: Counter[str] = Counter()
    invalid = unexcused = 0
    excuses: Counter[str] = Counter()
    theirs = ours = 0.0
    for seed in range(first, last):
        verdict = judge(oracle, seed)
        features.update(verdict.features)
        for feature in verdict.features:
            pending[feature] += verdict.pending
            stood[feature] += verdict.placed
        if verdict.invalid:
            invalid += 1
            print(f"problem {seed}: invalid: {verdict.invalid[:3]} {sorted(verdict.features)}")
        if verdict.missing and not verdict.excuse:
            unexcused += 1
            print(f"problem {seed}: the reference places {verdict.missing} {sorted(verdict.features)}")
        if verdict.excuse:
            excuses[verdict.excuse] += 1
        if verdict.comparable:
            theirs += verdict.reference_usd
            ours += verdict.our_usd
    oracle.close()
    count = last - first
    thin = [f for f in FEATURES if features[f] < 0.05 * count or stood[f] < 0.5 * pending[f]]
    for feature in FEATURES:
        share = stood[feature] / pending[feature] if pending[feature] else 0.0
        print(f"{feature:20} in {features[feature]:5} problems, {share:4.0%} of their pods placed")
    print(f"{count} problems: {invalid} invalid, {unexcused} place fewer without a named difference; named: {dict(excuses)}")
    print(f"USD per hour where both place the same pods: reference {theirs:.3f}, ours {ours:.3f}")
    print(f"features that stand in too few problems or stay unplaced: {', '.join(thin) or 'none'}")
    return int(bool(invalid or unexcused or ours > theirs or thin))


if __name__ == "__main__":
    sys.exit(main())
