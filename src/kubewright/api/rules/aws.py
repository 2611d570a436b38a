"""The rules of EC2NodeClass, and what AWS adds to NodePool and NodeClaim. Source: spec/aws 1.1, as released in 1.14.1."""

from collections.abc import Sequence

from kubewright.api import aws_labels
from kubewright.api.rules.core import not_empty, restricted_domain, restricted_domain_in_map
from kubewright.api.rules.rule import Json, Rule, get, has, items, mapping, text

LABEL_KEY = restricted_domain(aws_labels.GROUP, aws_labels.USABLE)
LABEL_MAP = restricted_domain_in_map(aws_labels.GROUP, aws_labels.USABLE)
OVERLAY_KEY = restricted_domain(aws_labels.GROUP, aws_labels.USABLE_IN_OVERLAYS)


def _quoted(names: Sequence[str], separator: str = ", ") -> str:
    return separator.join(f"'{name}'" for name in names)


def _some(term: str, fields: Sequence[str]) -> str:
    return " || ".join(f"has({term}.{field})" for field in fields)


def list_not_empty(field: str) -> Rule:
    return Rule("size(self) > 0", f"{field} cannot be empty", lambda terms, _: bool(items(terms)))


def terms_choose(fields: Sequence[str]) -> Rule:
    """Every selector term has at least one of `fields`."""
    return Rule(
        f"!self.exists(term, !({_some('term', fields)}))",
        f"expected at least one, got none, [{_quoted(fields)}]",
        lambda terms, _: all(any(has(t, f) for f in fields) for t in items(terms)),
    )


def not_all_terms_mix(field: str, others: Sequence[str], message: str) -> Rule:
    """Refuses lists in which *every* term combines `field` with one of `others`; so it refuses an empty list too.

    One good term lets the bad ones pass: the released CRD says it so, and a stricter rule would refuse what it accepts.
    """
    return Rule(
        f"self.exists(term, !(has(term.{field}) && ({_some('term', others)})))",
        message,
        lambda terms, _: any(not (has(t, field) and any(has(t, o) for o in others)) for t in items(terms)),
    )


def no_term_mixes(field: str, others: Sequence[str], message: str) -> Rule:
    """Refuses lists in which some term combines `field` with one of `others`."""
    return Rule(
        f"self.all(term, !(has(term.{field}) && ({_some('term', others)})))",
        message,
        lambda terms, _: all(not (has(t, field) and any(has(t, o) for o in others)) for t in items(terms)),
    )


TAGS_NOT_EMPTY = Rule(
    "!self.exists(key, key == '' || self[key] == '')",
    "empty tag keys or values aren't supported",
    lambda tags, _: all(key != "" and value != "" for key, value in mapping(tags).items()),
)

SUBNET_TERMS = (
    list_not_empty("subnetSelectorTerms"),
    terms_choose(("tags", "id")),
    not_all_terms_mix(
        "id", ("tags",), "'id' is mutually exclusive, cannot be set with a combination of other fields in a subnet selector term"
    ),
)
_GROUP_MIX = "{} is mutually exclusive, cannot be set with a combination of other fields in a security group selector term"
SECURITY_GROUP_TERMS = (
    list_not_empty("securityGroupSelectorTerms"),
    terms_choose(("tags", "id", "name")),
    not_all_terms_mix("id", ("tags", "name"), _GROUP_MIX.format("'id'")),
    not_all_terms_mix("name", ("tags", "id"), _GROUP_MIX.format("'name'")),
)
CAPACITY_RESERVATION_TERMS = (
    terms_choose(("tags", "id", "instanceMatchCriteria")),
    not_all_terms_mix(
        "id",
        ("tags", "ownerID", "instanceMatchCriteria"),
        "'id' is mutually exclusive, cannot be set along with other fields in a capacity reservation selector term",
    ),
)
_AMI_MIX = "{} is mutually exclusive, cannot be set with a combination of other fields in amiSelectorTerms"
AMI_TERMS = (
    terms_choose(("tags", "id", "name", "alias", "ssmParameter")),
    no_term_mixes("id", ("alias", "tags", "name", "owner"), _AMI_MIX.format("'id'")),
    no_term_mixes("alias", ("id", "tags", "name", "owner"), _AMI_MIX.format("'alias'")),
    Rule(
        "size(self) == 1 || !self.exists(term, has(term.alias))",
        "'alias' is mutually exclusive, cannot be set with a combination of other amiSelectorTerms",
        lambda terms, _: len(items(terms)) == 1 or not any(has(t, "alias") for t in items(terms)),
    ),
)

FAMILIES = {
    "al2": "AL2",
    "al2023": "AL2023",
    "bottlerocket": "Bottlerocket",
    "windows2019": "Windows2019",
    "windows2022": "Windows2022",
    "windows2025": "Windows2025",
}
"""Alias family → amiFamily."""
_WINDOWS = tuple(family for family in FAMILIES if family.startswith("windows"))


def _is_latest_windows(alias: Json, _: Json) -> bool:
    family, *rest = text(alias).split("@")
    return family not in _WINDOWS or rest[:1] == ["latest"]


ALIAS = (
    Rule(
        "self.matches('^[0-9A-Za-z]+@.+$')",
        "'alias' is improperly formatted, must match the format 'family@version'",
        lambda alias, _: _is_alias(text(alias)),
    ),
    Rule(
        f"self.matches('^({'|'.join(FAMILIES)})(@|$)')",
        f"family is not supported, must be one of the following: {_quoted(tuple(FAMILIES))}",
        lambda alias, _: text(alias).split("@")[0] in FAMILIES,
    ),
    Rule(
        f"!self.matches('^({'|'.join(_WINDOWS)})(@|$)') || self.matches('^[^@]*@latest(@|$)')",
        "windows families may only specify version 'latest'",
        _is_latest_windows,
    ),
)


def _is_alias(alias: str) -> bool:
    family, at, version = alias.partition("@")
    return family.isascii() and family.isalnum() and bool(at) and bool(version) and "\n" not in version


def _family_agrees(alias: str, family: str) -> Rule:
    def check(spec: Json, _: Json) -> bool:
        if not has(spec, "amiFamily"):
            return True
        aliases = [text(get(t, "alias")) for t in items(get(spec, "amiSelectorTerms")) if has(t, "alias")]
        return all(a.split("@")[0] != alias for a in aliases) or get(spec, "amiFamily") in ("Custom", family)

    return Rule(
        f"!has(self.amiFamily) || self.amiFamily in ['Custom', '{family}'] || "
        f"!self.amiSelectorTerms.exists(term, has(term.alias) && term.alias.matches('^{alias}(@|$)'))",
        f"if set, amiFamily must be '{family}' or 'Custom' when using {_article(family)} {family} alias",
        check,
    )


def _article(family: str) -> str:
    return "an" if family.startswith("A") else "a"


SPEC = (
    Rule(
        "has(self.role) != has(self.instanceProfile)",
        "must specify exactly one of ['role', 'instanceProfile']",
        lambda spec, _: has(spec, "role") != has(spec, "instanceProfile"),
    ),
    *(_family_agrees(alias, family) for alias, family in FAMILIES.items()),
    Rule(
        "has(self.amiFamily) || self.amiSelectorTerms.exists(term, has(term.alias))",
        "must specify amiFamily if amiSelectorTerms does not contain an alias",
        lambda spec, _: has(spec, "amiFamily") or any(has(t, "alias") for t in items(get(spec, "amiSelectorTerms"))),
    ),
)

ROLE = not_empty("role", "{} cannot be empty")
INSTANCE_PROFILE = not_empty("instanceProfile", "{} cannot be empty")


def _tag_forbidden(key: str) -> Rule:
    return Rule(f"!('{key}' in self)", f"tag contains a restricted tag matching {key}", lambda tags, _: key not in mapping(tags))


TAGS = (
    Rule("!('' in self)", "empty tag keys aren't supported", lambda tags, _: "" not in mapping(tags)),
    _tag_forbidden("eks:eks-cluster-name"),
    Rule(
        "!self.exists(key, key.startsWith('kubernetes.io/cluster'))",
        "tag contains a restricted tag matching kubernetes.io/cluster/",
        lambda tags, _: not any(key.startswith("kubernetes.io/cluster") for key in mapping(tags)),
    ),
    _tag_forbidden("karpenter.sh/nodepool"),
    _tag_forbidden("karpenter.sh/nodeclaim"),
    _tag_forbidden("karpenter.k8s.aws/ec2nodeclass"),
)

EBS = (
    Rule(
        "has(self.volumeSize) || has(self.snapshotID)",
        "snapshotID or volumeSize must be defined",
        lambda ebs, _: has(ebs, "volumeSize") or has(ebs, "snapshotID"),
    ),
    Rule(
        "!has(self.volumeInitializationRate) || (has(self.snapshotID) && size(self.snapshotID) > 0)",
        "snapshotID must be set when volumeInitializationRate is set",
        lambda ebs, _: not has(ebs, "volumeInitializationRate") or bool(has(ebs, "snapshotID") and get(ebs, "snapshotID")),
    ),
)
ONE_ROOT_VOLUME = Rule(
    "size(self.filter(disk, has(disk.rootVolume) && disk.rootVolume)) <= 1",
    "must have only one blockDeviceMappings with rootVolume",
    lambda disks, _: sum(1 for d in items(disks) if has(d, "rootVolume") and get(d, "rootVolume") is True) <= 1,
)

CONNECTION_TRACKING = Rule(
    _some("self", ("tcpEstablishedTimeout", "udpStreamTimeout", "udpTimeout")),
    "at least one of tcpEstablishedTimeout, udpStreamTimeout, or udpTimeout must be set",
    lambda timeouts, _: any(has(timeouts, f) for f in ("tcpEstablishedTimeout", "udpStreamTimeout", "udpTimeout")),
)

PLACEMENT_GROUP = (
    Rule(
        "has(self.id) || has(self.name)",
        "expected at least one, got none, ['name', 'id']",
        lambda selector, _: has(selector, "id") or has(selector, "name"),
    ),
    Rule(
        "!(has(self.id) && has(self.name))",
        "'name' and 'id' are mutually exclusive",
        lambda selector, _: not (has(selector, "id") and has(selector, "name")),
    ),
)


def _interfaces(value: Json) -> list[tuple[Json, Json, Json]]:
    return [(get(i, "networkCardIndex"), get(i, "deviceIndex"), get(i, "interfaceType")) for i in items(value)]


def _interfaces_differ(value: Json, _: Json) -> bool:
    found = _interfaces(value)
    places = [(card, device) for card, device, _ in found]
    efa = [card for card, _, kind in found if kind == "efa-only"]
    return len(set(places)) == len(places) and len(set(efa)) == len(efa)


NETWORK_INTERFACES = (
    Rule(
        "size(self) == 0 || "
        "self.exists(nic, nic.interfaceType == 'interface' && nic.networkCardIndex == 0 && nic.deviceIndex == 0)",
        "networkInterfaces must include a primary interface with interfaceType='interface'",
        lambda nics, _: not items(nics) or (0, 0, "interface") in _interfaces(nics),
    ),
    Rule(
        "!self.exists(nic, size(self.filter(other, other.deviceIndex == nic.deviceIndex && "
        "other.networkCardIndex == nic.networkCardIndex)) != 1 || (nic.interfaceType == 'efa-only' && "
        "size(self.filter(other, other.interfaceType == 'efa-only' && other.networkCardIndex == nic.networkCardIndex)) != 1))",
        "networkInterfaces must not have duplicate networkCardIndex and deviceIndex pairs, and can have at most one efa device "
        "per network card",
        _interfaces_differ,
    ),
)

EVICTION_SIGNALS = (
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
)
RESERVABLE = ("cpu", "memory", "ephemeral-storage", "pid")


def _keys_among(field: str, allowed: Sequence[str]) -> Rule:
    return Rule(
        f"!self.exists(key, !(key in [{_quoted(allowed)}]))",
        f"valid keys for {field} are [{_quoted(allowed, ',')}]",
        lambda m, _: all(key in allowed for key in mapping(m)),
    )


def eviction(field: str) -> tuple[Rule, ...]:
    return (_keys_among(field, EVICTION_SIGNALS),)


def reserved(field: str) -> tuple[Rule, ...]:
    return (
        _keys_among(field, RESERVABLE),
        Rule(
            "!self.exists(key, self[key].startsWith('-'))",
            f"{field} value cannot be a negative resource quantity",
            lambda m, _: not any(text(amount).startswith("-") for amount in mapping(m).values()),
        ),
    )


def _pairs(field: str, partner: str) -> Rule:
    def check(kubelet: Json, _: Json) -> bool:
        if not has(kubelet, field) or not mapping(get(kubelet, field)):
            return True
        return set(mapping(get(kubelet, field))) <= set(mapping(get(kubelet, partner)))

    return Rule(
        f"!has(self.{field}) || self.{field}.all(signal, signal in self.{partner})",
        f"{field} OwnerKey does not have a matching {partner}",
        check,
    )


def _collects_in_order(kubelet: Json, _: Json) -> bool:
    if not (has(kubelet, "imageGCHighThresholdPercent") and has(kubelet, "imageGCLowThresholdPercent")):
        return True
    high, low = get(kubelet, "imageGCHighThresholdPercent"), get(kubelet, "imageGCLowThresholdPercent")
    assert isinstance(high, int) and isinstance(low, int), "schema types are checked before rules are asked"  # noqa: PT018
    return high > low


KUBELET = (
    Rule(
        "!(has(self.imageGCHighThresholdPercent) && has(self.imageGCLowThresholdPercent)) || "
        "self.imageGCLowThresholdPercent < self.imageGCHighThresholdPercent",
        "imageGCHighThresholdPercent must be greater than imageGCLowThresholdPercent",
        _collects_in_order,
    ),
    _pairs("evictionSoft", "evictionSoftGracePeriod"),
    _pairs("evictionSoftGracePeriod", "evictionSoft"),
)
