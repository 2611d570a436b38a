"""Manifests written for older versions: each old thing is named, told where it belongs now, and mended.

`mend` returns the object as it must be written today, so that the rest of the checks can go on with it. Nothing is dropped
silently: what has no place any more is a finding too.
Source: the field moves between karpenter.sh v1alpha5, v1beta1 and v1, and karpenter.k8s.aws v1alpha1, v1beta1 and v1.
"""

import copy
from typing import Any

from kubewright.api import labels
from kubewright.api.findings import Finding, nest, quoted
from kubewright.api.rules.aws import FAMILIES

Obj = dict[str, Any]

CORE = "karpenter.sh/v1"
AWS = "karpenter.k8s.aws/v1"
AL2_ENDED = "AL2 has no images from Kubernetes 1.33 on"

_DEFAULT_CLASS = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
_OLD_LABELS = {"karpenter.sh/provisioner-name": labels.NODEPOOL, "karpenter.sh/machine-name": "karpenter.sh/nodeclaim"}
_OLD_ANNOTATIONS = {
    "karpenter.sh/do-not-evict": labels.DO_NOT_DISRUPT,
    "karpenter.sh/do-not-consolidate": labels.DO_NOT_DISRUPT,
}


def mend(obj: Obj) -> tuple[Obj, list[Finding]]:
    """The object in today's form, and what was old about it; the same object and nothing if nothing was."""
    group, _, version = str(obj.get("apiVersion", "")).partition("/")
    kind = obj.get("kind")
    new = copy.deepcopy(obj)
    old = _Mending(new)
    if kind == "Provisioner" and group == "karpenter.sh":
        _provisioner(old)
    elif kind == "AWSNodeTemplate" and group == "karpenter.k8s.aws":
        _node_template(old)
    elif kind == "Machine" and group == "karpenter.sh":
        _machine(old)
    elif kind in ("NodePool", "NodeClaim") and group == "karpenter.sh":
        _version(old, CORE, version)
        _node_pool(old) if kind == "NodePool" else _node_claim(old)
    elif kind == "EC2NodeClass" and group == "karpenter.k8s.aws":
        _version(old, AWS, version)
        _node_class(old)
    if not old.findings:
        return obj, []
    return new, old.finished()


class _Mending:
    """An object on its way to today's form."""

    def __init__(self, obj: Obj) -> None:
        self.obj = obj
        self.findings: list[Finding] = []
        self._whole = ""

    def take(self, path: str) -> Any:
        """Remove and return what stands at `path`; None if nothing does."""
        *way, last = path.split(".")
        at: Any = self.obj
        for step in way:
            at = at.get(step) if isinstance(at, dict) else None
        return at.pop(last, None) if isinstance(at, dict) else None

    def get(self, path: str) -> Any:
        at: Any = self.obj
        for step in path.split("."):
            at = at.get(step) if isinstance(at, dict) else None
        return at

    def put(self, path: str, value: Any) -> None:
        """Write `value` at `path` unless something stands there already."""
        *way, last = path.split(".")
        at = self.obj
        for step in way:
            held = at.setdefault(step, {})
            if not isinstance(held, dict):
                return
            at = held
        at.setdefault(last, value)

    def say(self, field: str, says: str, mended: Any = None) -> None:
        self.findings.append(Finding(field, says, mended))

    def moved(self, path: str, to: str, value: Any, says: str) -> None:
        """`path` was taken away; `value` is what it is now, at `to`."""
        self.put(to, value)
        self.say(path, f"{says}; it belongs at {to}", nest(to, value))

    def whole(self, says: str) -> None:
        """The kind or version itself is old: the whole mended object will be shown."""
        self._whole = says

    def finished(self) -> list[Finding]:
        if self._whole:
            return [Finding("apiVersion", self._whole, self.obj), *self.findings]
        return self.findings


def _version(old: _Mending, current: str, version: str) -> None:
    if version in ("", "v1"):
        return
    found = old.obj["apiVersion"]
    old.obj["apiVersion"] = current
    old.say("apiVersion", f"found {found}, which is no longer served; it is {current} now", {"apiVersion": current})


def _provisioner(old: _Mending) -> None:
    old.whole("a Provisioner of v1alpha5 is a NodePool of karpenter.sh/v1 now")
    old.obj["apiVersion"], old.obj["kind"] = CORE, "NodePool"
    old.say("kind", "found Provisioner; it is NodePool now", {"apiVersion": CORE, "kind": "NodePool"})
    _node_pool(old, provisioner=True)


def _node_pool(old: _Mending, *, provisioner: bool = False) -> None:
    for name in ("requirements", "taints", "startupTaints"):
        _move(old, f"spec.{name}", f"spec.template.spec.{name}")
    for name in ("labels", "annotations"):
        _move(old, f"spec.{name}", f"spec.template.metadata.{name}")
    resources = old.get("spec.limits.resources")
    if isinstance(resources, dict):
        old.take("spec.limits")
        for name, amount in resources.items():
            old.put(f"spec.limits.{name}", amount)
        old.say(
            "spec.limits.resources", "found limits under resources; they belong at spec.limits", nest("spec.limits", resources)
        )
    _class_reference(old, provisioner=provisioner)
    _kubelet(old, "spec.kubeletConfiguration")
    _kubelet(old, "spec.template.spec.kubelet")
    _end_of_life(old, provisioner=provisioner)
    requests = old.take("spec.template.spec.resources")
    if requests is not None:
        old.say("spec.template.spec.resources", f"found {quoted(requests)}, which nobody reads; take it out, pods decide")
    _labels_in(old, "spec.template.spec.requirements")
    if provisioner:
        # it could do without; the whole mended object shows it
        old.put("spec.template.spec.requirements", [])


def _end_of_life(old: _Mending, *, provisioner: bool) -> None:
    after_empty = old.take("spec.ttlSecondsAfterEmpty")
    if after_empty is not None:
        mended = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": _seconds(after_empty)}
        for name, value in mended.items():
            old.put(f"spec.disruption.{name}", value)
        says = f"found {after_empty}; removal of empty nodes belongs at spec.disruption"
        old.say("spec.ttlSecondsAfterEmpty", says, nest("spec.disruption", mended))
    consolidation = old.take("spec.consolidation")
    if consolidation is not None:
        enabled = isinstance(consolidation, dict) and consolidation.get("enabled") is True
        mended = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s" if enabled else "Never"}
        for name, value in mended.items():
            old.put(f"spec.disruption.{name}", value)
        says = f"found enabled: {str(enabled).lower()}; consolidation belongs at spec.disruption"
        old.say("spec.consolidation", says, nest("spec.disruption", mended))
    until_expired = old.take("spec.ttlSecondsUntilExpired")
    if until_expired is not None:
        old.moved(
            "spec.ttlSecondsUntilExpired", "spec.template.spec.expireAfter", _seconds(until_expired), f"found {until_expired}"
        )
    expiry = old.take("spec.disruption.expireAfter")
    if expiry is not None:
        says = f'found "{expiry}", its place in v1beta1'
        old.moved("spec.disruption.expireAfter", "spec.template.spec.expireAfter", expiry, says)
    if old.get("spec.disruption.consolidationPolicy") == "WhenUnderutilized":
        old.obj["spec"]["disruption"]["consolidationPolicy"] = "WhenEmptyOrUnderutilized"
        path = "spec.disruption.consolidationPolicy"
        old.say(path, 'found "WhenUnderutilized", its name in v1beta1', nest(path, "WhenEmptyOrUnderutilized"))
    if provisioner:
        # a Provisioner that said nothing never expired its nodes and never removed empty ones; the new defaults would
        old.put("spec.template.spec.expireAfter", "Never")
        old.put("spec.disruption", {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"})
    elif old.findings and isinstance(old.get("spec.disruption"), dict):
        if not old.obj["spec"]["disruption"]:
            old.take("spec.disruption")
        elif old.get("spec.disruption.consolidateAfter") is None:
            path = "spec.disruption.consolidateAfter"
            old.say(path, "found nothing; since v1 it is required", nest(path, "0s"))
            old.put(path, "0s")


def _class_reference(old: _Mending, *, provisioner: bool) -> None:
    to = "spec.template.spec.nodeClassRef"
    provider_ref = old.take("spec.providerRef")
    if provider_ref is not None:
        name = provider_ref.get("name", "default") if isinstance(provider_ref, dict) else "default"
        old.moved("spec.providerRef", to, _DEFAULT_CLASS | {"name": name}, f"found {quoted(provider_ref)}")
    provider = old.take("spec.provider")
    if provider is not None:
        old.say(
            "spec.provider",
            f"found {quoted(provider)}; what it says belongs in an EC2NodeClass that spec.template.spec.nodeClassRef names",
            nest(to, _DEFAULT_CLASS),
        )
        old.put(to, dict(_DEFAULT_CLASS))
    _reference(old, to)
    if provisioner:
        old.put(to, dict(_DEFAULT_CLASS))


def _reference(old: _Mending, path: str) -> None:
    reference = old.get(path)
    if not isinstance(reference, dict):
        return
    written = reference.pop("apiVersion", None)
    if written is not None or ("group" not in reference and reference.get("kind") in (None, "EC2NodeClass")):
        kind = reference.get("kind") or "EC2NodeClass"
        group = str(written).partition("/")[0] if written is not None else _DEFAULT_CLASS["group"]
        mended = {"group": group, "kind": kind, "name": reference.get("name", "default")}
        if "group" in reference:
            mended["group"] = reference["group"]
        says = f'found apiVersion "{written}"' if written is not None else "found no group"
        field = f"{path}.apiVersion" if written is not None else path
        reference.clear()
        reference.update(mended)
        old.say(field, f"{says}; since v1 a reference has group, kind and name", nest(path, mended))


def _kubelet(old: _Mending, path: str) -> None:
    kubelet = old.take(path)
    if kubelet is not None:
        mended = {"kind": "EC2NodeClass"} | nest("spec.kubelet", kubelet)
        old.say(path, "found kubelet settings; they belong in the EC2NodeClass, at spec.kubelet", mended)


def _node_claim(old: _Mending) -> None:
    _reference(old, "spec.nodeClassRef")
    _kubelet(old, "spec.kubelet")
    _labels_in(old, "spec.requirements")


def _machine(old: _Mending) -> None:
    old.whole("a Machine of v1alpha5 is a NodeClaim of karpenter.sh/v1 now (NodePools make them; none need be written)")
    old.obj["apiVersion"], old.obj["kind"] = CORE, "NodeClaim"
    old.say("kind", "found Machine; it is NodeClaim now", {"apiVersion": CORE, "kind": "NodeClaim"})
    template = old.take("spec.machineTemplateRef")
    name = template.get("name", "default") if isinstance(template, dict) else "default"
    if template is not None:
        old.moved("spec.machineTemplateRef", "spec.nodeClassRef", _DEFAULT_CLASS | {"name": name}, f"found {quoted(template)}")
    old.put("spec.nodeClassRef", _DEFAULT_CLASS | {"name": name})
    old.put("spec.requirements", [])
    _node_claim(old)


def _node_template(old: _Mending) -> None:
    old.whole("an AWSNodeTemplate of v1alpha1 is an EC2NodeClass of karpenter.k8s.aws/v1 now")
    old.obj["apiVersion"], old.obj["kind"] = AWS, "EC2NodeClass"
    old.say("kind", "found AWSNodeTemplate; it is EC2NodeClass now", {"apiVersion": AWS, "kind": "EC2NodeClass"})
    for name, to in (
        ("subnetSelector", "subnetSelectorTerms"),
        ("securityGroupSelector", "securityGroupSelectorTerms"),
        ("amiSelector", "amiSelectorTerms"),
    ):
        selector = old.take(f"spec.{name}")
        if isinstance(selector, dict):
            old.moved(f"spec.{name}", f"spec.{to}", _terms(selector), f"found {quoted(selector)}")
    for name in ("launchTemplate", "launchTemplateName"):
        template = old.take(f"spec.{name}")
        if template is not None:
            says = f"found {quoted(template)}; launch templates of one's own are no longer taken; write what it says as fields"
            old.say(f"spec.{name}", says, nest("spec", {"role": "KarpenterNodeRole-my-cluster", "userData": "..."}))
    if old.get("spec.role") is None and old.get("spec.instanceProfile") is None:
        says = "found neither role nor instanceProfile, and there is no default any more"
        old.say("spec.role", says, nest("spec.role", "KarpenterNodeRole-my-cluster"))
        old.put("spec.role", "KarpenterNodeRole-my-cluster")
    _node_class(old)


def _terms(selector: dict[str, Any]) -> list[dict[str, Any]]:
    """Selector terms that mean what an old selector meant; ids were a list in one text."""
    tags: dict[str, Any] = {}
    ids: list[str] = []
    rest: dict[str, Any] = {}
    for key, value in selector.items():
        if key in ("aws-ids", "aws::ids"):
            ids += [part.strip() for part in str(value).split(",")]
        elif key == "aws::name":
            rest["name"] = value
        elif key == "aws::owners":
            rest["owner"] = str(value).split(",", maxsplit=1)[0].strip()
        else:
            tags[key] = value
    terms: list[dict[str, Any]] = [{"id": one} for one in ids]
    if tags or rest:
        terms.append(({"tags": tags} if tags else {}) | rest)
    return terms


def _node_class(old: _Mending) -> None:
    spec = old.get("spec")
    if not isinstance(spec, dict):
        return
    family = spec.get("amiFamily")
    if family == "AL2":
        spec["amiFamily"] = "AL2023"
        old.say("spec.amiFamily", f'found "AL2"; {AL2_ENDED}, use AL2023', nest("spec.amiFamily", "AL2023"))
    if family == "Ubuntu":
        spec["amiFamily"] = "AL2023"
        says = 'found "Ubuntu", which is no family any more; use AL2023, or Custom with an image of your own'
        old.say("spec.amiFamily", says, nest("spec.amiFamily", "AL2023"))
    terms = spec.get("amiSelectorTerms")
    for index, term in enumerate(terms if isinstance(terms, list) else ()):
        alias = term.get("alias") if isinstance(term, dict) else None
        if isinstance(alias, str) and alias.partition("@")[0] == "al2":
            term["alias"] = "al2023@latest"
            path = f"spec.amiSelectorTerms[{index}].alias"
            old.say(path, f'found "{alias}"; {AL2_ENDED}, use AL2023', nest(path, "al2023@latest"))
    if terms is None:
        mended = _ami_terms(spec.get("amiFamily"))
        spec["amiSelectorTerms"] = mended
        says = "found none; since v1 the images have to be chosen"
        old.say("spec.amiSelectorTerms", says, nest("spec.amiSelectorTerms", mended))


def _ami_terms(family: Any) -> list[dict[str, Any]]:
    alias = next((alias for alias, name in FAMILIES.items() if name == family), None)
    if family == "Custom":
        return [{"tags": {"Name": "my-image"}}]
    return [{"alias": f"{alias or 'al2023'}@latest"}]


def _move(old: _Mending, path: str, to: str) -> None:
    value = old.take(path)
    if value is not None:
        old.moved(path, to, value, "found at its place in v1alpha5")


def _labels_in(old: _Mending, path: str) -> None:
    written = old.get(path)
    for index, requirement in enumerate(written if isinstance(written, list) else ()):
        key = requirement.get("key") if isinstance(requirement, dict) else None
        if isinstance(key, str) and key in _OLD_LABELS:
            requirement["key"] = _OLD_LABELS[key]
            at = f"{path}[{index}].key"
            old.say(at, f'found "{key}", a name of v1alpha5', nest(at, _OLD_LABELS[key]))


def pod_findings(metadata: Any, spec: Any, meta_path: str, spec_path: str) -> list[Finding]:
    """Old labels and annotations in a pod or a pod template."""
    found: list[Finding] = []
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    for key in annotations if isinstance(annotations, dict) else ():
        if key in _OLD_ANNOTATIONS:
            mended = nest(f"{meta_path}.annotations", {_OLD_ANNOTATIONS[key]: "true"})
            found.append(Finding(f"{meta_path}.annotations.{key}", f'found "{key}", an annotation of v1alpha5', mended))
    selector = spec.get("nodeSelector") if isinstance(spec, dict) else None
    for key, value in selector.items() if isinstance(selector, dict) else ():
        if key in _OLD_LABELS:
            mended = nest(f"{spec_path}.nodeSelector", {_OLD_LABELS[key]: value})
            found.append(Finding(f"{spec_path}.nodeSelector.{key}", f'found "{key}", a label of v1alpha5', mended))
    return found


def _seconds(written: Any) -> str:
    """Seconds as a duration that people read: 2592000 is 720h."""
    if not isinstance(written, int) or isinstance(written, bool):
        return f"{written}s"
    for unit, size in (("h", 3600), ("m", 60)):
        if written and written % size == 0:
            return f"{written // size}{unit}"
    return f"{written}s"
