"""Whether manifests and scenario can be carried out, asked before anything of them is."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kubewright.api import manifests as files
from kubewright.api.manifests import Manifest
from kubewright.errors import KubeError
from kubewright.sim.apiserver.store import Store
from kubewright.sim.scenario import Delete, Interrupt, Scale, Step

Name = tuple[str, str, str]
"""Kind, namespace, name."""

_SCALED = ("Deployment", "ReplicaSet", "StatefulSet")
_MADE = ("Node", "NodeClaim", "Pod", "ReplicaSet", "Event", "ControllerRevision", "Lease")
"""Kinds that controllers write: nobody can say beforehand which will be there."""


def problems(store: Store, manifests: Sequence[Manifest], steps: Sequence[Step] = ()) -> list[str]:
    """Everything that stands in the way, as whole lines; nothing is changed."""
    namespaces = {m.object["metadata"]["name"] for m in manifests if m.object["kind"] == "Namespace"}
    found = [p for m in manifests for p in _refusals(store, m.object, f"{m.file}:{m.line}", namespaces)]
    there = {_name(store, m.object) for m in manifests}
    for step in steps:
        match step.action:
            case Scale() as wanted:
                found += _scale(wanted, f"{step.where}.scale", there)
            case Delete() as wanted:
                found += _delete(store, wanted, f"{step.where}.delete", there)
            case Interrupt() as wanted:
                pools = sorted(name for kind, _, name in there if kind == "NodePool")
                if wanted.node_pool and wanted.node_pool not in pools:
                    found.append(f"{step.where}.interrupt.nodePool: found {wanted.node_pool!r}; {_choice(pools, 'NodePool')}")
            case obj:
                found += _apply(store, obj, f"{step.where}.apply", namespaces, there)
    return found


def _apply(store: Store, obj: dict[str, Any], where: str, namespaces: set[str], there: set[Name]) -> Iterator[str]:
    findings = files.check(obj)
    if findings:
        meta = obj.get("metadata")
        subject = f'{obj.get("kind", "object")} "{meta.get("name", "") if isinstance(meta, Mapping) else ""}"'
        yield from (f.render(where, subject) for f in findings)
        return
    yield from _refusals(store, obj, where, namespaces)
    there.add(_name(store, obj))
    if obj["kind"] == "Namespace":
        namespaces.add(obj["metadata"]["name"])


def _scale(wanted: Scale, where: str, there: set[Name]) -> Iterator[str]:
    if wanted.kind not in _SCALED:
        yield f"{where}.kind: found {wanted.kind!r}; write one of {', '.join(_SCALED)}"
    elif (wanted.kind, wanted.namespace, wanted.name) not in there:
        yield _absent(wanted.kind, wanted.namespace, wanted.name, where, there)


def _delete(store: Store, wanted: Delete, where: str, there: set[Name]) -> Iterator[str]:
    kind = next((k for k in store.kinds if k.kind == wanted.kind), None)
    if kind is None:
        near = difflib.get_close_matches(wanted.kind, [k.kind for k in store.kinds], 1)
        yield f"{where}.kind: found {wanted.kind!r}, which is not served here; write for example {(near or ['Deployment'])[0]}"
        return
    name = (wanted.kind, wanted.namespace if kind.namespaced else "", wanted.name)
    if name in there:
        there.discard(name)
    elif wanted.kind not in _MADE:
        yield _absent(*name, where, there)


def _absent(kind: str, namespace: str, name: str, where: str, there: set[Name]) -> str:
    names = sorted("/".join(filter(None, (space, n))) for k, space, n in there if k == kind)
    found = "/".join(filter(None, (namespace, name)))
    return f"{where}: found {found!r}, which neither a manifest nor an earlier step makes; {_choice(names, kind)}"


def _choice(names: Sequence[str], kind: str) -> str:
    return f"write one of {', '.join(names)}" if names else f"add a {kind} to the manifests"


def _name(store: Store, obj: Mapping[str, Any]) -> Name:
    namespaced = store.kind(obj["apiVersion"], obj["kind"]).namespaced
    space = (obj["metadata"].get("namespace") or "default") if namespaced else ""
    return obj["kind"], space, obj["metadata"].get("name", "")


def _refusals(store: Store, obj: Mapping[str, Any], where: str, namespaces: set[str]) -> Iterator[str]:
    """What the API server would say to the object; a namespace that comes with the same manifests counts as there."""
    where = f'{where}: {obj["kind"]} "{obj["metadata"].get("name", "")}"'
    kind = store.kind(obj["apiVersion"], obj["kind"])
    space = (obj["metadata"].get("namespace") or "default") if kind.namespaced else ""
    if kind.namespaced:
        if space not in namespaces and store.table(store.kind("v1", "Namespace")).get(("", space)) is None:
            mend = f"    apiVersion: v1\n    kind: Namespace\n    metadata:\n      name: {space}"
            yield f"{where}: metadata.namespace: found {space!r}, which does not exist; write also\n{mend}"
            return
        obj = {**obj, "metadata": {**obj["metadata"], "namespace": "default" if space in namespaces else space}}
    try:
        store.create(obj, strict=True, dry_run=True)
    except KubeError as refused:
        if refused.reason != "AlreadyExists":
            yield f"{where}: {refused.message}"
