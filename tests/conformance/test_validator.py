"""The validator refuses what is made wrong on purpose, and our own plans are right by it."""

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.adapter import answer
from tests.conformance.problems import problem
from tests.conformance.validator import violations

SEEDS = range(20_000, 20_060)
J = dict[str, Any]


def test_plans_for_random_problems_are_valid() -> None:
    wrong = []
    for seed in SEEDS:
        asked, _ = problem(seed)
        found = violations(asked, answer(asked))
        wrong += [(seed, v) for v in found]
    assert wrong == []


def test_the_same_problem_gives_the_same_answer() -> None:
    for seed in SEEDS:
        asked, _ = problem(seed)
        first, second = answer(asked), answer(asked)
        first.pop("seconds")
        second.pop("seconds")
        assert first == second


def _pods(asked: J, given: J) -> list[J]:
    placed = {p for n in given["newNodes"] for p in n["pods"]}
    return [
        o for o in asked["objects"] if o["kind"] == "Pod" and f"{o['metadata']['namespace']}/{o['metadata']['name']}" in placed
    ]


def _too_big(asked: J, given: J) -> None:
    _pods(asked, given)[0]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "500"


def _too_fat(asked: J, given: J) -> None:
    _pods(asked, given)[0]["spec"]["containers"][0]["resources"]["requests"]["memory"] = "5000Gi"


def _missing_resource(asked: J, given: J) -> None:
    _pods(asked, given)[0]["spec"]["containers"][0]["resources"]["requests"]["example.com/fpga"] = "1"


def _smaller_machine(asked: J, given: J) -> None:
    for kind in asked["instanceTypes"]:
        kind["capacity"]["pods"] = "0"


def _taint(asked: J, given: J) -> None:
    for one in asked["objects"]:
        if one["kind"] == "NodePool":
            one["spec"]["template"]["spec"]["taints"] = [{"key": "new", "effect": "NoExecute"}]


def _selector(asked: J, given: J) -> None:
    _pods(asked, given)[0]["spec"]["nodeSelector"] = {"nobody.has/this": "yes"}


def _affinity(asked: J, given: J) -> None:
    term = {"matchExpressions": [{"key": "nobody.has/this", "operator": "Exists"}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    _pods(asked, given)[0]["spec"]["affinity"] = {"nodeAffinity": required}


def _lonely(asked: J, given: J) -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "nobody"}}}
    _pods(asked, given)[0]["spec"]["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _twice(asked: J, given: J) -> None:
    given["newNodes"].append(copy.deepcopy(given["newNodes"][0]))


def _stranger(asked: J, given: J) -> None:
    given["newNodes"][0]["pods"].append("default/nobody")


def _no_machine(asked: J, given: J) -> None:
    given["newNodes"][0]["instanceTypes"] = []


def _no_claim(asked: J, given: J) -> None:
    _pods(asked, given)[0]["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "none"}}]


def _unsettled_spread(asked: J, given: J) -> None:
    rule = {"topologyKey": "nobody.has/this", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    _pods(asked, given)[0]["spec"]["topologySpreadConstraints"] = [rule]


def _init(asked: J, given: J) -> None:
    _pods(asked, given)[0]["spec"]["initContainers"] = [{"name": "i", "resources": {"requests": {"cpu": "300"}}}]


def _daemon(asked: J, given: J) -> None:
    asked["objects"].append(
        {
            "kind": "DaemonSet",
            "metadata": {"name": "huge", "namespace": "default"},
            "spec": {
                "template": {
                    "spec": {
                        "tolerations": [{"operator": "Exists"}],
                        "containers": [{"name": "d", "resources": {"requests": {"memory": "4000Gi"}}}],
                    }
                }
            },
        }
    )


MUTATIONS: tuple[Callable[[J, J], None], ...] = (
    _too_big,
    _too_fat,
    _missing_resource,
    _smaller_machine,
    _taint,
    _selector,
    _affinity,
    _lonely,
    _twice,
    _stranger,
    _no_machine,
    _no_claim,
    _unsettled_spread,
    _init,
    _daemon,
)


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda m: m.__name__.strip("_"))
@pytest.mark.parametrize("which", [0, 1])
def test_a_valid_plan_made_wrong_is_refused(mutate: Callable[[J, J], None], which: int) -> None:
    rng = random.Random(which)
    for _ in range(50):
        asked, _ = problem(30_000 + rng.randrange(1000))
        given = answer(asked)
        if given["newNodes"] and not violations(asked, given):
            break
    asked, given = copy.deepcopy(asked), copy.deepcopy(given)
    mutate(asked, given)
    assert violations(asked, given)
