"""KWOKNodeClass, as Karpenter's kwok provider defines it, with the fields that are read here."""

from typing import ClassVar

from kubewright.api.meta import Condition, Object, Resource, Wire


class KwokNodeClassSpec(Wire, frozen=True, kw_only=True):
    node_registration_delay: str | None = None
    """How long a machine takes to join, as a duration."""


class KwokNodeClassStatus(Wire, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] = ()


class KwokNodeClass(Object, frozen=True, kw_only=True):
    RESOURCE: ClassVar[Resource] = Resource("karpenter.kwok.sh", "v1alpha1", "KWOKNodeClass", "kwoknodeclasses")
    spec: KwokNodeClassSpec = KwokNodeClassSpec()
    status: KwokNodeClassStatus = KwokNodeClassStatus()
