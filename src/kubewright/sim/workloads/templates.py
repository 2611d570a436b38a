"""Pods made from templates, and the short hashes by which controllers tell one template from another."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kubewright.api import selectors
from kubewright.api.meta import LabelSelector
from kubewright.errors import KubeError
from kubewright.sim.objects import Item, Key, controller_of, controller_reference, is_controlled_by, is_terminating, key_of
from kubewright.sim.runtime import Runtime

_SAFE = "bcdfghjklmnpqrstvwxz2456789"
"""Source: k8s.io/apimachinery pkg/util/rand SafeEncodeString."""

_FNV_OFFSET, _FNV_PRIME = 2166136261, 16777619


def template_hash(template: Mapping[str, Any], collisions: int = 0) -> str:
    """A short name for a pod template; only its form, not its value, agrees with a real controller's."""
    state = _FNV_OFFSET
    for byte in msgspec.json.encode((template, collisions), order="deterministic"):
        state = ((state ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return "".join(_SAFE[int(digit) % len(_SAFE)] for digit in str(state))


def pod_from(owner: Item, template: Mapping[str, Any]) -> Item:
    """An unnamed pod of `owner`, with the template's metadata and spec as its own."""
    meta = template.get("metadata") or {}
    own: Item = {
        "namespace": owner["metadata"]["namespace"],
        "labels": dict(meta.get("labels") or {}),
        "annotations": dict(meta.get("annotations") or {}),
        "finalizers": list(meta.get("finalizers") or ()),
        "ownerReferences": [controller_reference(owner)],
    }
    spec = dict(template.get("spec") or {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {k: v for k, v in own.items() if v}, "spec": spec}


def create_pod(runtime: Runtime, owner: Item, pod: Item, component: str, text: str = "") -> Item:
    """Create `pod`, and tell of it on the owner, by `text` or as usual; a refusal is told too, and raised."""
    try:
        made = runtime.store.create(pod)
    except KubeError as error:
        runtime.events.tell(owner, "Warning", "FailedCreate", f"Error creating: {error}", component)
        raise
    runtime.events.tell(owner, "Normal", "SuccessfulCreate", text or f"Created pod: {made['metadata']['name']}", component)
    return made


def delete_pod(runtime: Runtime, owner: Item, pod: Item, component: str, text: str = "") -> None:
    name = pod["metadata"]["name"]
    runtime.store.delete("v1", "Pod", *key_of(pod), uid=pod["metadata"]["uid"])
    runtime.events.tell(owner, "Normal", "SuccessfulDelete", text or f"Deleted pod: {name}", component)


def selector_of(owner: Item) -> LabelSelector:
    return msgspec.convert(owner["spec"].get("selector") or {}, LabelSelector)


def claim_objects(runtime: Runtime, owner: Item, kind: str, api_version: str = "v1") -> list[Item]:
    """The objects of `kind` that `owner` manages: strays that its selector picks are adopted, those it no longer picks let go.

    Source: k8s.io/kubernetes pkg/controller/controller_ref_manager.go.
    """
    selector = selector_of(owner)
    mine = [obj for obj in runtime.view.owned(owner["metadata"]["uid"], kind) if is_controlled_by(obj, owner)]
    kept: list[Item] = []
    for obj in mine:
        if selectors.matches(selector, obj["metadata"].get("labels") or {}):
            kept.append(obj)
        elif not is_terminating(owner) and not is_terminating(obj):
            references = [r for r in obj["metadata"]["ownerReferences"] if r["uid"] != owner["metadata"]["uid"]]
            runtime.store.patch(api_version, kind, *key_of(obj), {"metadata": {"ownerReferences": references or None}})
    if not is_terminating(owner):
        kept += [
            _adopt(runtime, owner, api_version, kind, stray)
            for stray in runtime.view.strays(kind, owner["metadata"]["namespace"])
            if selectors.matches(selector, stray["metadata"].get("labels") or {})
        ]
    return kept


def _adopt(runtime: Runtime, owner: Item, api_version: str, kind: str, stray: Item) -> Item:
    references = [*(stray["metadata"].get("ownerReferences") or ()), controller_reference(owner)]
    return runtime.store.patch(api_version, kind, *key_of(stray), {"metadata": {"ownerReferences": references}})


def owner_key(obj: Item, kind: str) -> Key | None:
    """The key of the controller of `obj`, if it is of `kind`."""
    reference = controller_of(obj)
    if reference is None or reference["kind"] != kind:
        return None
    return key_of(obj)[0], reference["name"]
