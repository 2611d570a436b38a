"""What the server serves: the core kinds as lightkube lists them, and whatever CRDs add."""

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

_MODULES = (
    "core_v1",
    "apps_v1",
    "autoscaling_v2",
    "batch_v1",
    "coordination_v1",
    "apiextensions_v1",
    "discovery_v1",
    "networking_v1",
    "node_v1",
    "policy_v1",
    "rbac_authorization_v1",
    "scheduling_v1",
    "storage_v1",
)

_NOT_SERVED = {
    # a call or a view, not something kept
    "Binding",
    "ComponentStatus",
    # admission that this server does not do, so it does not pretend to: "the server could not find the requested resource"
    "LimitRange",
    "ResourceQuota",
    # nothing here reads them
    "CSIStorageCapacity",
    "IPAddress",
    "ReplicationController",
    "ServiceCIDR",
    "VolumeAttributesClass",
}

_SUBRESOURCES_NOT_SERVED = {"log", "ephemeralcontainers", "resize", "token", "attach", "exec", "portforward", "proxy"}

_SHORT_NAMES: Mapping[str, tuple[str, ...]] = {
    "ConfigMap": ("cm",),
    "Endpoints": ("ep",),
    "Event": ("ev",),
    "Namespace": ("ns",),
    "Node": ("no",),
    "PersistentVolumeClaim": ("pvc",),
    "PersistentVolume": ("pv",),
    "Pod": ("po",),
    "ServiceAccount": ("sa",),
    "Service": ("svc",),
    "CustomResourceDefinition": ("crd", "crds"),
    "DaemonSet": ("ds",),
    "Deployment": ("deploy",),
    "ReplicaSet": ("rs",),
    "StatefulSet": ("sts",),
    "HorizontalPodAutoscaler": ("hpa",),
    "CronJob": ("cj",),
    "Ingress": ("ing",),
    "NetworkPolicy": ("netpol",),
    "PodDisruptionBudget": ("pdb",),
    "PriorityClass": ("pc",),
    "StorageClass": ("sc",),
}

_IN_ALL = {
    "Pod",
    "Service",
    "DaemonSet",
    "Deployment",
    "ReplicaSet",
    "StatefulSet",
    "HorizontalPodAutoscaler",
    "CronJob",
    "Job",
}
"""What `kubectl get all` means."""

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class Kind(msgspec.Struct, frozen=True):
    """One served kind in one version."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()
    model: Any = None
    """lightkube's struct of a core kind, which knows the fields; None for custom kinds."""
    schema: Mapping[str, Any] | None = None
    """The openAPIV3Schema of a custom kind."""
    columns: tuple[Mapping[str, Any], ...] = ()
    """additionalPrinterColumns of a custom kind."""
    selectable_fields: tuple[str, ...] = ()
    """What a custom kind offers to field selectors beside its name."""
    scale_paths: Mapping[str, str] | None = None
    storage: bool = True
    """Whether objects are kept in this version; another version of a custom kind is only another name for it."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """As error texts name it: `pods`, `deployments.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def custom(self) -> bool:
        return self.schema is not None


class Kinds:
    """The served kinds, by what they are called and by where they are served."""

    def __init__(self) -> None:
        self._by_kind: dict[tuple[str, str], Kind] = {}
        self._by_path: dict[tuple[str, str, str], Kind] = {}
        for kind in core_kinds():
            self.add(kind)

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._by_kind.values())

    def add(self, kind: Kind) -> None:
        self._by_kind[kind.api_version, kind.kind] = kind
        self._by_path[kind.group, kind.version, kind.plural] = kind

    def remove(self, group: str, plural: str) -> None:
        for kind in [k for k in self if k.group == group and k.plural == plural]:
            del self._by_kind[kind.api_version, kind.kind]
            del self._by_path[kind.group, kind.version, kind.plural]

    def by_kind(self, api_version: str, kind: str) -> Kind | None:
        return self._by_kind.get((api_version, kind))

    def by_path(self, group: str, version: str, plural: str) -> Kind | None:
        return self._by_path.get((group, version, plural))

    def groups(self) -> Mapping[str, list[str]]:
        """Group → its served versions, preferred first; in the order in which groups were added."""
        found: dict[str, list[str]] = {}
        for kind in self:
            versions = found.setdefault(kind.group, [])
            if kind.version not in versions:
                versions.append(kind.version)
        return found


def core_kinds() -> list[Kind]:
    """Every built-in kind that is served, in discovery's order."""
    found: dict[tuple[str, str], Kind] = {}
    subresources: dict[tuple[str, str], set[str]] = {}
    for module in _MODULES:
        served = importlib.import_module(f"lightkube.resources.{module}")
        for holder in vars(served).values():
            info = getattr(holder, "_api_info", None)
            if info is None:
                continue
            if info.parent is not None:
                if info.action not in _SUBRESOURCES_NOT_SERVED:
                    subresources.setdefault((info.parent.group, info.parent.kind), set()).add(info.action)
                continue
            name = info.resource.kind
            if name in _NOT_SERVED:
                continue
            found[info.resource.group, name] = Kind(
                group=info.resource.group,
                version=info.resource.version,
                kind=name,
                plural=info.plural,
                namespaced="global_list" in info.verbs,
                singular=name.lower(),
                short_names=_SHORT_NAMES.get(name, ()),
                categories=("all",) if name in _IN_ALL else (),
                model=next(base for base in holder.__mro__ if base.__module__.startswith("lightkube.models.")),
            )
    return [msgspec.structs.replace(kind, subresources=frozenset(subresources.get(key, ()))) for key, kind in found.items()]


def custom_kinds(crd: Mapping[str, Any]) -> list[Kind]:
    """The kinds that a CustomResourceDefinition (as stored) adds, its storage version first."""
    spec = crd["spec"]
    names = spec["names"]
    found = []
    for version in sorted(spec["versions"], key=lambda v: not v.get("storage", False)):
        if not version.get("served", True):
            continue
        found.append(
            Kind(
                group=spec["group"],
                version=version["name"],
                kind=names["kind"],
                plural=names["plural"],
                namespaced=spec["scope"] == "Namespaced",
                singular=names.get("singular") or names["kind"].lower(),
                short_names=tuple(names.get("shortNames", ())),
                categories=tuple(names.get("categories", ())),
                subresources=frozenset(version.get("subresources", {})),
                schema=version.get("schema", {}).get("openAPIV3Schema", {}),
                columns=tuple(version.get("additionalPrinterColumns", ())),
                selectable_fields=tuple(f["jsonPath"].lstrip(".") for f in version.get("selectableFields", ())),
                scale_paths=version.get("subresources", {}).get("scale"),
                storage=bool(version.get("storage", False)),
            )
        )
    return found
