"""The reference as judge: problems are answered by both, and what differs is told apart.

`python -m tests.conformance.judge 0 2000` does it for two thousand problems.
"""

import argparse
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.conformance.adapter import answer
from tests.conformance.problems import FEATURES, Made, made, shrunk
from tests.conformance.problems.features import UNKNOWN_TO_THE_REFERENCE
from tests.conformance.problems.source import Seeded
from tests.conformance.validator import violations

DIFFERENCES = {
    "order-of-equals": "the reference itself places no more when it is asked again, with pods of equal size in other orders",
    "reference-invalid": "its placement breaks a rule of Kubernetes; without the pods that do, it places no more than we do",
    "min-domains-shared": "it counts spreads that differ only in minDomains or node filter as one (6.3 [Q]); these pods have one",
    "first-term-domains": "it counts the domains of the first of several required terms; with that term alone we place as many",
    "reference-uncounted": "it does not count pods on claims whose labels are open, so it goes beyond its own skew (6.5 [Q])",
    "limits-order": "without limits we place these pods too, and within them we place others instead",
}
"""Differences on purpose, by name; each is proven for the very pods it excuses, see `excuse`."""
_AGAIN = 8


class Verdict(NamedTuple):
    seed: int
    features: Mapping[str, frozenset[str]]
    """As of the problem: feature → keys of the pods that show whether it works."""
    invalid: list[tuple[str, str]]
    missing: list[str]
    """Pods that the reference places, in accordance with Kubernetes, and we do not, unless we place more in all."""
    excuse: str
    reference_usd: float
    our_usd: float
    comparable: bool
    """Whether both place the same pods, validly, so that costs can be compared."""
    placed: frozenset[str]


class Oracle:
    """The reference, as one process that is kept running."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def answer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(for_reference(asked)) + "\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=10)
        self._process.stdout.close()


def for_reference(asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """The problem with the cluster's default spread written out on every pod that gets it, a setting the reference lacks."""
    constraints = asked.get("defaultConstraints")
    if not constraints:
        return asked
    selectors = {_key(o): o["spec"]["selector"] for o in asked["objects"] if o["kind"] == "ReplicaSet"}

    def written_out(one: Mapping[str, Any]) -> Mapping[str, Any]:
        owner = next((o for o in one["metadata"].get("ownerReferences", ()) if o["kind"] == "ReplicaSet"), None)
        if one["kind"] != "Pod" or owner is None or one["spec"].get("topologySpreadConstraints"):
            return one
        selector = selectors[f"{one['metadata']['namespace']}/{owner['name']}"]
        spreads = [{**c, "labelSelector": selector} for c in constraints]
        return {**one, "spec": {**one["spec"], "topologySpreadConstraints": spreads}}

    return {**asked, "objects": [written_out(o) for o in asked["objects"]]}


def judge(oracle: Oracle, seed: int, packing: str = "") -> Verdict:
    return verdict(oracle, made(Seeded(seed)), seed, packing)


def verdict(oracle: Oracle, problem: Made, seed: int = -1, packing: str = "") -> Verdict:
    """Both sides' answers to one problem, compared. `packing` is the adapter's default where it is empty."""
    asked = {**problem.asked, "packing": packing} if packing else problem.asked
    theirs, ours = oracle.answer(asked), answer(asked)
    assert not theirs.get("error"), theirs
    assert not ours.get("error"), ours
    wrong = {pod for pod, _ in violations(asked, theirs)}
    sound, all_theirs, mine = placed(theirs) - wrong, placed(theirs), placed(ours)
    missing = sorted(sound - mine) if len(mine) < len(sound) else []
    return Verdict(
        seed,
        problem.features,
        violations(asked, ours),
        missing,
        excuse(oracle, asked, missing, mine, all_theirs, wrong) if missing else "",
        usd(asked, theirs),
        usd(asked, ours),
        all_theirs == mine and not wrong,
        frozenset(mine),
    )


def excuse(
    oracle: Oracle, asked: Mapping[str, Any], missing: Iterable[str], mine: set[str], theirs: set[str], wrong: set[str]
) -> str:
    """The named difference that leaves the missing pods out, once it is proven for them; "" when none is."""
    for again in range(_AGAIN):
        other = _in_other_order(asked, again) if again else asked
        answered = oracle.answer(other)
        if len(placed(answered) - {pod for pod, _ in violations(other, answered)}) <= len(mine):
            return "order-of-equals"
    if wrong and _no_more_without(oracle, asked, wrong, every_domain=False):
        return "reference-invalid"
    uncounted = {pod for pod, _ in violations(asked, oracle.answer(asked), every_domain=True)}
    if uncounted - wrong and _no_more_without(oracle, asked, uncounted, every_domain=True):
        return "reference-uncounted"
    if all(_shares_a_spread(asked, pod) for pod in missing):
        return "min-domains-shared"
    simpler = {**asked, "objects": [_with_first_term(o) for o in asked["objects"]]}
    if simpler["objects"] != asked["objects"] and len(placed(answer(simpler))) >= len(theirs - wrong):
        return "first-term-domains"
    boundless = [{**o, "spec": {**o["spec"], "limits": {}}} if o["kind"] == "NodePool" else o for o in asked["objects"]]
    if boundless != asked["objects"] and mine - theirs and set(missing) <= placed(answer({**asked, "objects": boundless})):
        return "limits-order"
    return ""


def _no_more_without(oracle: Oracle, asked: Mapping[str, Any], wrong: set[str], *, every_domain: bool) -> bool:
    """Whether the reference places, rightly, no more than we do once the pods that it places wrongly are gone."""
    gone = set(wrong)
    for _ in range(_AGAIN):
        rest = {**asked, "objects": [o for o in asked["objects"] if o["kind"] != "Pod" or _key(o) not in gone]}
        theirs = oracle.answer(rest)
        now_wrong = {pod for pod, _ in violations(rest, theirs, every_domain=every_domain)}
        if len(placed(theirs) - now_wrong) <= len(placed(answer(rest))):
            return True
        if not now_wrong:
            return False
        gone |= now_wrong
    return False


def _in_other_order(asked: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The same problem with other UIDs, by which both sides order pods of equal size."""
    rng = random.Random(seed)
    objects = [
        {**o, "metadata": {**o["metadata"], "uid": f"{rng.getrandbits(32):08x}"}} if o["kind"] == "Pod" else o
        for o in asked["objects"]
    ]
    return {**asked, "objects": objects}


def _with_first_term(one: Any) -> Any:
    """A pod with a spread and several required node affinity terms, with the first alone; others as they are."""
    if one["kind"] != "Pod" or not one["spec"].get("topologySpreadConstraints"):
        return one
    found = json.loads(json.dumps(one))
    required = found["spec"].get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", {})
    if len(required.get("nodeSelectorTerms", ())) < 2:
        return one
    del required["nodeSelectorTerms"][1:]
    return found


def _shares_a_spread(asked: Mapping[str, Any], name: str) -> bool:
    """Whether the pod has a spread that another pod has too but for minDomains or the nodes that count."""
    pods = [o for o in asked["objects"] if o["kind"] == "Pod"]
    own = next(o for o in pods if _key(o) == name)
    mine = _spreads(own)
    return any(
        shape == other_shape and rest != other_rest
        for o in pods
        if o["metadata"]["namespace"] == own["metadata"]["namespace"]
        for shape, rest in mine
        for other_shape, other_rest in _spreads(o)
    )


def _spreads(pod: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(what makes a group for the reference, what it leaves out) for every spread of the pod."""
    spec = pod["spec"]
    node = [spec.get("nodeSelector"), spec.get("affinity", {}).get("nodeAffinity"), spec.get("tolerations")]
    return [
        (json.dumps([c["topologyKey"], c["maxSkew"], c["labelSelector"]]), json.dumps([c.get("minDomains"), node]))
        for c in spec.get("topologySpreadConstraints", ())
    ]


def _key(one: Mapping[str, Any]) -> str:
    return f"{one['metadata']['namespace']}/{one['metadata']['name']}"


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

    parser = argparse.ArgumentParser(prog="python -m tests.conformance.judge")
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int, help="the first seed that is not judged any more")
    parser.add_argument("--packing", default="", help="first-fit or improve")
    parser.add_argument("--shrink", action="store_true", help="print the smallest problem found for the first failure")
    given = parser.parse_args()
    oracle = Oracle(ensure("oracle"))
    counts = Tally()

    for seed in range(given.first, given.last):
        found = judge(oracle, seed, given.packing)
        counts.add(found)
        if given.shrink and failure(found):
            print(json.dumps(smallest(oracle, found, given.packing).asked))
            break
    oracle.close()
    return counts.close()


def smallest(oracle: Oracle, found: Verdict, packing: str) -> Made:
    """The smallest problem that was found to fail in the same way."""

    def fails(problem: Made) -> bool:
        one = verdict(oracle, problem, packing=packing)
        return bool(one.invalid) if found.invalid else bool(failure(one)) and not one.invalid

    return shrunk(found.seed, fails)


def failure(one: Verdict) -> str:
    """What is wrong with a verdict, "" when nothing is."""
    if one.invalid:
        return f"invalid: {one.invalid[:3]}"
    return f"the reference places {one.missing}" if one.missing and not one.excuse else ""


class Tally:
    """The sum of many verdicts, and the table of it."""

    def __init__(self) -> None:
        self.problems = self.failed = 0
        self.having: Counter[str] = Counter()
        self.pods: Counter[str] = Counter()
        self.stood: Counter[str] = Counter()
        self.excuses: Counter[str] = Counter()
        self.theirs = self.ours = 0.0

    def add(self, one: Verdict) -> None:
        self.problems += 1
        for feature, pods in one.features.items():
            self.having[feature] += 1
            self.pods[feature] += len(pods)
            self.stood[feature] += len(pods & one.placed)
        said = failure(one)
        if said:
            self.failed += 1
            print(f"problem {one.seed}: {said} {sorted(one.features)}", flush=True)
        if one.excuse:
            self.excuses[one.excuse] += 1
        if one.comparable:
            self.theirs += one.reference_usd
            self.ours += one.our_usd

    def thin(self) -> list[str]:
        """Features in less than 5 % of the problems, or with more than half of their pods left out."""
        return [f for f in FEATURES if self.having[f] < 0.05 * self.problems or self.stood[f] < 0.5 * self.pods[f]]

    def close(self) -> int:
        """Print the table; 1 when the run failed."""
        print("| feature | problems | its pods | placed | judged by |\n|---|---|---|---|---|")
        for feature in FEATURES:
            share = self.stood[feature] / self.pods[feature] if self.pods[feature] else 0.0
            by = UNKNOWN_TO_THE_REFERENCE.get(feature, "reference and validator")
            print(f"| {feature} | {self.having[feature]} | {self.pods[feature]} | {share:.0%} | {by} |")
        thin = self.thin()
        print(f"{self.problems} problems: {self.failed} invalid or placing fewer without a named difference")
        print(f"named differences: {dict(sorted(self.excuses.items())) or 'none'}")
        print(f"USD per hour where both place the same pods: reference {self.theirs:.3f}, ours {self.ours:.3f}")
        print(f"features that stand in too few problems or stay unplaced: {', '.join(thin) or 'none'}")
        return int(bool(self.failed or self.ours > self.theirs or thin))


if __name__ == "__main__":
    sys.exit(main())
