"""Checking any manifest ends in findings, never in a crash; and what is bad for the server is bad for us."""

import copy
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kubewright.api import crds, manifests, schema
from kubewright.errors import ManifestError
from tests.parity.api.mutants import all_mutants

BROKEN = Path(__file__).parents[2] / "unit/api/broken"
GOOD: list[dict[str, Any]] = [
    document
    for path in sorted((Path(manifests.__file__).parents[1] / "sim/example").glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    if document["kind"] != "Scenario"
]
OLD = [
    document for path in sorted(BROKEN.glob("old-*.yaml")) for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
]
JUNK: list[Any] = [None, "", "x", 0, -1, 1.5, True, [], {}, ["x"], [None], {"x": "y"}, {"x": None}, [[]], [{}], "5", "2026-01-01"]


def places(value: Any) -> list[tuple[Any, Any]]:
    inner = list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    return [(value, key) for key, _ in inner] + [place for _, held in inner for place in places(held)]


@given(st.sampled_from([*GOOD, *OLD]), st.integers(0, 2**32), st.integers(1, 3))
def test_checking_never_crashes(document: dict[str, Any], seed: int, changes: int) -> None:
    chance = random.Random(seed)
    broken = copy.deepcopy(document)
    for _ in range(changes):
        found = places(broken)
        if found:
            holder, key = chance.choice(found)
            if chance.random() < 0.2 and isinstance(holder, dict):
                del holder[key]
            else:
                holder[key] = copy.deepcopy(chance.choice(JUNK))
    for finding in manifests.check(broken):
        assert finding.render("file:1", "object")


@pytest.mark.parametrize("document", GOOD, ids=lambda d: f"{d['kind']}-{d['metadata']['name']}")
def test_the_bundled_example_is_good(document: dict[str, Any]) -> None:
    assert manifests.check(document) == []


def test_what_the_server_would_refuse_is_refused_here() -> None:
    """And what it would drop, an unknown field, too; so a manifest that loads is applied as it was written."""
    plurals = {"NodePool": "nodepools.karpenter.sh", "NodeClaim": "nodeclaims.karpenter.sh"}
    for mutant in all_mutants():
        root = crds.schema_of(plurals.get(mutant.new["kind"], "ec2nodeclasses.karpenter.k8s.aws"))
        refused = schema.validate(schema.default_and_prune(mutant.new, root), None, root)
        if refused or schema.unknown_fields(mutant.new, root):
            assert manifests.check(mutant.new), mutant.name


@given(st.text(max_size=200))
def test_any_text_is_answered(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("any") / "a.yaml"
    path.write_text(text, encoding="utf-8", errors="replace")
    problems: tuple[str, ...] = ()
    try:
        manifests.load([path])
    except ManifestError as error:
        problems = error.problems
    assert all(p.startswith(f"{path}:") for p in problems)
