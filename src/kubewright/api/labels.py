"""Label keys, annotations, finalizers and taints of the field, and which labels people may use.

Core Karpenter's words live here; a provider hands in its own well-known labels, domains and aliases (`api.aws`).
Source: spec/scheduling 2.7, 10.6.
"""

import re
from collections.abc import Collection, Mapping

from kubewright.api.core import Taint

GROUP = "karpenter.sh"

NODEPOOL = "karpenter.sh/nodepool"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
REGISTERED = "karpenter.sh/registered"
INITIALIZED = "karpenter.sh/initialized"
DO_NOT_SYNC_TAINTS = "karpenter.sh/do-not-sync-taints"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
ARCH = "kubernetes.io/arch"
OS = "kubernetes.io/os"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
WINDOWS_BUILD = "node.kubernetes.io/windows-build"
HOSTNAME = "kubernetes.io/hostname"

DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
NODEPOOL_HASH = "karpenter.sh/nodepool-hash"
NODEPOOL_HASH_VERSION = "karpenter.sh/nodepool-hash-version"
TERMINATION_TIMESTAMP = "karpenter.sh/nodeclaim-termination-timestamp"
MIN_VALUES_RELAXED = "karpenter.sh/nodeclaim-min-values-relaxed"
REQUESTED_DRA_DRIVERS = "karpenter.sh/requested-dra-drivers"
PRICE_OVERLAY_APPLIED = "karpenter.sh/price-overlay-applied"
CAPACITY_OVERLAY_APPLIED = "karpenter.sh/capacity-overlay-applied"
BUFFER_POD = "karpenter.sh/capacity-buffer-fake-pod"
BUFFER_NAME = "karpenter.sh/capacity-buffer-name"
BUFFER_NAMESPACE = "karpenter.sh/capacity-buffer-namespace"
PROVIDER_COMPATIBILITY = "compatibility.karpenter.sh/provider"

TERMINATION_FINALIZER = "karpenter.sh/termination"

DISRUPTED_TAINT = Taint(key="karpenter.sh/disrupted", effect="NoSchedule")
UNREGISTERED_TAINT = Taint(key="karpenter.sh/unregistered", effect="NoExecute")

SOON_TAINT = Taint(key="kubewright.sh/going-soon", effect="PreferNoSchedule")
"""On nodes that are next in line to be emptied: kube-scheduler puts pods elsewhere if it can, so they move once and not twice.

No decision of ours looks at it.
"""

ON_DEMAND = "on-demand"
SPOT = "spot"
RESERVED = "reserved"

WELL_KNOWN: frozenset[str] = frozenset({NODEPOOL, ZONE, REGION, INSTANCE_TYPE, ARCH, OS, CAPACITY_TYPE, WINDOWS_BUILD})
"""Labels every instance type answers for. Source: spec/scheduling 2.7."""

WELL_KNOWN_VALUES: Mapping[str, frozenset[str]] = {CAPACITY_TYPE: frozenset({ON_DEMAND, SPOT, RESERVED})}

WELL_KNOWN_RESOURCES: frozenset[str] = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})

RESTRICTED_DOMAINS: frozenset[str] = frozenset({GROUP})
RESTRICTED_LABELS: frozenset[str] = frozenset({HOSTNAME})

ALIASES: Mapping[str, str] = {
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": REGION,
    "beta.kubernetes.io/arch": ARCH,
    "beta.kubernetes.io/os": OS,
    "beta.kubernetes.io/instance-type": INSTANCE_TYPE,
}
"""Keys of older Kubernetes → the stable key."""

NAME_PATTERN = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
SUBDOMAIN_PATTERN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_NAME = re.compile(NAME_PATTERN, re.ASCII)
_SUBDOMAIN = re.compile(SUBDOMAIN_PATTERN, re.ASCII)

_NAME_SHAPE = (
    "consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{NAME_PATTERN}')"
)
_SUBDOMAIN_SHAPE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end "
    f"with an alphanumeric character (e.g. 'example.com', regex used for validation is '{SUBDOMAIN_PATTERN}')"
)


def normalize(key: str, aliases: Mapping[str, str] = ALIASES) -> str:
    """The stable key for `key`; keys without an alias are their own."""
    return aliases.get(key, key)


def is_restricted(
    key: str,
    well_known: Collection[str] = WELL_KNOWN,
    domains: Collection[str] = RESTRICTED_DOMAINS,
) -> bool:
    """Whether people may not put `key` on nodes or ask for it: hostname, or a Karpenter domain outside the well-known keys."""
    if key in well_known:
        return False
    if key in RESTRICTED_LABELS:
        return True
    domain = domain_of(key)
    return any(domain == d or domain.endswith("." + d) for d in domains)


def restricted_text(
    key: str,
    well_known: Collection[str] = WELL_KNOWN,
    domains: Collection[str] = RESTRICTED_DOMAINS,
) -> str:
    """The refusal of a restricted label, in Karpenter's words."""
    return (
        f"using label {key} is not allowed as it might interfere with the internal provisioning logic; specify a well known "
        f"label: [{' '.join(sorted(well_known))}], or a custom label that does not use a restricted domain: "
        f"[{' '.join(sorted(domains))}]"
    )


def node_class_label(group: str, kind: str) -> str:
    """The label on a node that names its NodeClass."""
    return f"{group}/{kind.lower()}"


def domain_of(key: str) -> str:
    """What stands before the slash; "" for a key without one."""
    return key.partition("/")[0] if "/" in key else ""


def qualified_name_problems(key: str) -> list[str]:
    """What the API server has against `key` as a label, taint or resource name; empty when it is fine.

    Source: k8s.io/apimachinery validation.IsQualifiedName, IsDNS1123Subdomain (texts are wire-visible).
    """
    parts = key.split("/")
    if len(parts) > 2:
        return [f"a qualified name must {_NAME_SHAPE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    problems: list[str] = []
    if len(parts) == 2:
        problems += [f"prefix part {p}" for p in subdomain_problems(parts[0])] if parts[0] else ["prefix part must be non-empty"]
    name = parts[-1]
    if not name:
        problems.append("name part must be non-empty")
    elif len(name) > 63:
        problems.append("name part must be no more than 63 bytes")
    if not _NAME.fullmatch(name):
        problems.append(f"name part must {_NAME_SHAPE}")
    return problems


def value_problems(value: str) -> list[str]:
    """What the API server has against `value` as a label value; empty when it is fine."""
    problems = ["must be no more than 63 bytes"] if len(value.encode()) > 63 else []
    if value and not _NAME.fullmatch(value):
        problems.append(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
            "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
            f"'({NAME_PATTERN})?')"
        )
    return problems


def subdomain_problems(name: str) -> list[str]:
    """What the API server has against `name` as an object name of most kinds; empty when it is fine."""
    problems = ["must be no more than 253 bytes"] if len(name.encode()) > 253 else []
    if not _SUBDOMAIN.fullmatch(name):
        problems.append(_SUBDOMAIN_SHAPE)
    return problems


def label_problems(name: str) -> list[str]:
    """What the API server has against `name` as a DNS label (namespaces, Services, container names); empty when it is fine."""
    problems = ["must be no more than 63 bytes"] if len(name.encode()) > 63 else []
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name):
        problems.append(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
            "an alphanumeric character (e.g. 'my-name',  or '123-abc', "
            "regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
        )
    return problems
