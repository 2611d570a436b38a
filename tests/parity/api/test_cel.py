"""Each rule of our CRDs in two tongues: what its CEL says, evaluated by a library, must be what its Python says."""

from collections.abc import Iterator
from typing import Any

import celpy
import msgspec
import pytest
from celpy.adapter import json_to_cel

from kubewright.api import crds, schema
from kubewright.api.rules import core
from kubewright.api.rules.aws import FAMILIES
from kubewright.api.rules.rule import EvaluationError, Rule
from tests.parity.api.mutants import ATOMS, EC2_NODE_CLASS, NODE_CLAIM, NODE_POOL, mutants

KINDS = {
    "NodePool": "nodepools.karpenter.sh",
    "NodeClaim": "nodeclaims.karpenter.sh",
    "EC2NodeClass": "ec2nodeclasses.karpenter.k8s.aws",
    "NodeOverlay": "nodeoverlays.karpenter.sh",
    "CapacityBuffer": "capacitybuffers.autoscaling.x-k8s.io",
}
CAPACITY_BUFFER: dict[str, Any] = {
    "apiVersion": "autoscaling.x-k8s.io/v1beta1",
    "kind": "CapacityBuffer",
    "metadata": {"name": "base", "namespace": "default"},
    "spec": {"podTemplateRef": {"name": "shape"}, "replicas": 1, "limits": {"cpu": "1"}, "provisioningStrategy": "x"},
}
NODE_OVERLAY: dict[str, Any] = {
    "apiVersion": "karpenter.sh/v1alpha1",
    "kind": "NodeOverlay",
    "metadata": {"name": "base"},
    "spec": {
        "requirements": NODE_CLAIM["spec"]["requirements"],
        "price": "1",
        "priceAdjustment": "+5%",
        "capacity": {"cpu": "1", "example.com/x": "1"},
    },
}
CORE = {"nodeClassRef": {"group": "a", "kind": "b", "name": "c"}, "requirements": []}
STATIC = {"template": {"spec": CORE}, "replicas": 1}
ALIASES = [f"{family}@latest" for family in FAMILIES]
SPECS: dict[str, list[dict[str, Any]]] = {
    "NodePool": [
        STATIC,
        STATIC | {"weight": 1},
        STATIC | {"limits": {}},
        STATIC | {"limits": {"nodes": 1}},
        STATIC | {"limits": {"cpu": 1}},
        STATIC | {"limits": {"nodes": 1, "cpu": 1}},
    ],
    "NodeOverlay": [
        {"requirements": [{"key": "a", "operator": operator} | values]}
        for operator in ("In", "NotIn", "Gt", "Exists")
        for values in ({}, {"values": []}, {"values": ["1"]}, {"values": ["1", "2"]})
    ],
    "CapacityBuffer": [
        template | workload | size
        for template in ({}, {"podTemplateRef": {"name": "shape"}})
        for workload in ({}, {"scalableRef": {"kind": "Deployment", "name": "web"}})
        for size in ({}, {"replicas": 1}, {"limits": {"cpu": "1"}}, {"percentage": 5})
    ],
    "EC2NodeClass": [
        EC2_NODE_CLASS["spec"] | {"placementGroupSelector": selector}
        for selector in ({}, {"id": "pg-1"}, {"id": "pg-1", "name": "x"})
    ]
    + [
        EC2_NODE_CLASS["spec"] | {"amiFamily": family, "amiSelectorTerms": [{"alias": alias}]}
        for family in (*FAMILIES.values(), "Custom")
        for alias in ALIASES
    ]
    + [
        {k: v for k, v in EC2_NODE_CLASS["spec"].items() if k != "amiFamily"} | {"amiSelectorTerms": [{"id": "ami-1"}]},
        {k: v for k, v in EC2_NODE_CLASS["spec"].items() if k != "amiFamily"},
        {k: v for k, v in EC2_NODE_CLASS["spec"].items() if k != "role"},
        EC2_NODE_CLASS["spec"] | {"instanceProfile": "x"},
    ],
}
"""Whole specs that the rules on specs tell apart."""

MOST = 40
"""Values tried for each rule; the library takes a millisecond or two for one."""

Case = tuple[Any, Any]


def nodes(value: Any, old: Any, node: schema.Schema, path: str) -> Iterator[tuple[schema.Schema, Any, Any]]:
    yield node, value, old
    if isinstance(value, list) and "items" in node:
        for item in value:
            yield from nodes(item, None, node["items"], path)
    elif isinstance(value, dict):
        for name, held in value.items():
            child = node.get("properties", {}).get(name, node.get("additionalProperties"))
            if isinstance(child, dict):
                yield from nodes(held, old.get(name) if isinstance(old, dict) else None, child, path)


def collect() -> dict[tuple[str, str], list[Case]]:
    """Values of the right types for every rule, taken from mutants, each once."""
    found: dict[tuple[str, str], dict[bytes, Case]] = {key: {} for key in crds.RULES}
    for base, seed in ((NODE_POOL, 1), (NODE_CLAIM, 2), (EC2_NODE_CLASS, 3), (NODE_OVERLAY, 4), (CAPACITY_BUFFER, 5)):
        root = crds.schema_of(KINDS[base["kind"]])
        special = [base | {"spec": spec} for spec in SPECS.get(base["kind"], [])]
        for new in [*special, *(mutant.new for mutant in mutants(base, 600, seed))]:
            full = schema.default_and_prune(new, root)
            if any(p.blocking for p in schema.validate(full, None, root)):
                continue
            for node, value, old in nodes(full, schema.default_and_prune(base, root), root, ""):
                for rule in node.get("x-kubernetes-validations", ()):
                    cases = found[rule["rule"], rule["message"]]
                    if len(cases) < MOST or new in special:
                        cases.setdefault(msgspec.json.encode([value, old]), (value, old))
    for name in crds.CRDS:
        for field, node in fields(crds.schema_of(name), ""):
            for value in ATOMS.get(field, []):
                full = schema.default_and_prune({"field": value}, {"properties": {"field": node}})
                if full and not any(p.blocking for p in schema.validate(full, None, {"properties": {"field": node}})):
                    for rule in node["x-kubernetes-validations"]:
                        cases = found[rule["rule"], rule["message"]]
                        cases.setdefault(msgspec.json.encode([full["field"], None]), (full["field"], None))
    return {key: list(cases.values()) for key, cases in found.items()}


def fields(node: schema.Schema, name: str) -> Iterator[tuple[str, schema.Schema]]:
    """(name, schema) of every field that has rules."""
    if "x-kubernetes-validations" in node:
        yield name, node
    for field, child in node.get("properties", {}).items():
        yield from fields(child, field)
    for inner in (node.get("items"), node.get("additionalProperties")):
        if isinstance(inner, dict):
            yield from fields(inner, name)


CASES = collect()


@pytest.mark.parametrize("rule", list(crds.RULES.values()), ids=lambda rule: rule.message[:60])
def test_cel_and_python_agree(rule: Rule) -> None:
    environment = celpy.Environment()
    program = environment.program(environment.compile(rule.cel))
    cases = CASES[rule.cel, rule.message]
    assert len(cases) > 1, "no value was tried"
    for value, old in cases:
        if rule.is_transition and old is None:
            continue
        activation = {"self": json_to_cel(value)} | ({"oldSelf": json_to_cel(old)} if rule.is_transition else {})
        if rule is core.SPEC_IS_IMMUTABLE or not LENIENT & words(value):
            assert ask(rule, value, old) == evaluate(rule, program, activation), value


def test_both_answers_are_tried_of_nearly_every_rule() -> None:
    answers = {
        key: {ask(crds.RULES[key], v, o) for v, o in cases if o is not None or not crds.RULES[key].is_transition}
        for key, cases in CASES.items()
    }
    one_sided = [message for (_, message), found in answers.items() if found <= {"holds"}]
    assert one_sided == []


def ask(rule: Rule, value: Any, old: Any) -> str:
    try:
        return "holds" if rule.check(value, old) else "broken"
    except EvaluationError:
        return "error"


LENIENT = {" 1", "1_0", "9" * 19}
"""Texts that the library's int() reads as Python does; the real server refuses them, as we do (test_real_server)."""


def words(value: Any) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(words, value))
    if isinstance(value, dict):
        return set().union(*map(words, value.values()))
    return {value} if isinstance(value, str) else set()


def evaluate(rule: Rule, program: Any, activation: dict[str, Any]) -> str:
    try:
        return "holds" if program.evaluate(activation) else "broken"
    except celpy.CELEvalError:
        # the library cannot compare 1 with "1"; CEL says that they differ
        return "broken" if rule is core.SPEC_IS_IMMUTABLE else "error"
