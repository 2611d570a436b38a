"""Our CRDs: written as Python in our own words, served as plain dicts, printed as YAML.

A real API server that runs them accepts and refuses what it would with Karpenter 1.14's own.
Source: spec/scheduling 9.1, 10; spec/aws 1.
"""

from collections.abc import Mapping
from typing import Any

import yaml

from kubewright.api.crds.capacitybuffer import CAPACITY_BUFFER
from kubewright.api.crds.ec2nodeclass import EC2_NODE_CLASS
from kubewright.api.crds.nodeclaim import NODE_CLAIM
from kubewright.api.crds.nodeoverlay import NODE_OVERLAY
from kubewright.api.crds.nodepool import NODE_POOL
from kubewright.api.rules.rule import Rule


def _wire(node: Any, found: dict[tuple[str, str], Rule]) -> Any:
    """`node` with rules as the wire has them; each is put into `found` by its texts."""
    if isinstance(node, Rule):
        found[node.cel, node.message] = node
        return node.wire
    if isinstance(node, dict):
        return {key: _wire(value, found) for key, value in node.items()}
    if isinstance(node, list):
        return [_wire(value, found) for value in node]
    return node


_found: dict[tuple[str, str], Rule] = {}

CRDS: Mapping[str, dict[str, Any]] = {
    crd["metadata"]["name"]: _wire(crd, _found) for crd in (CAPACITY_BUFFER, EC2_NODE_CLASS, NODE_CLAIM, NODE_OVERLAY, NODE_POOL)
}
"""`plural.group` → CustomResourceDefinition as the API server takes it. Shared; do not change."""

RULES: Mapping[tuple[str, str], Rule] = _found
"""(CEL text, message) → the rule, with its Python side."""


def schema_of(name: str) -> dict[str, Any]:
    """The structural schema of the only version of the CRD `plural.group`."""
    versions = CRDS[name]["spec"]["versions"]
    schema: dict[str, Any] = versions[0]["schema"]["openAPIV3Schema"]
    return schema


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is PyYAML's
        return True


def render() -> str:
    """All CRDs as one YAML stream, the same bytes every time."""
    return "".join("---\n" + yaml.dump(CRDS[name], Dumper=_Plain, sort_keys=True, width=120) for name in sorted(CRDS))
