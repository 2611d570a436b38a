"""AMIs that a NodeClass selects, and which of them a type starts from. Source: spec/aws 2.2."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache

from kubewright.api import aws_labels, labels
from kubewright.api.aws import Ami, AmiSelectorTerm, EC2NodeClass
from kubewright.api.karpenter import NodeSelectorRequirement
from kubewright.catalogue.types import InstanceType
from kubewright.cloud.aws import api, retry, selectors
from kubewright.cloud.aws.errors import AwsError, is_not_found
from kubewright.cloud.aws.families import FAMILIES
from kubewright.cloud.aws.shapes import ARCHITECTURES
from kubewright.errors import CloudError
from kubewright.scheduling import requirements
from kubewright.scheduling.requirement import DOES_NOT_EXIST, EXISTS, IN, Requirement

GPU, ACCELERATOR = aws_labels.INSTANCE_GPU_COUNT, aws_labels.INSTANCE_ACCELERATOR_COUNT
VARIANTS: Mapping[str, Mapping[str, str]] = {
    "standard": {GPU: DOES_NOT_EXIST, ACCELERATOR: DOES_NOT_EXIST},
    "nvidia": {GPU: EXISTS},
    "neuron": {ACCELERATOR: EXISTS},
}

_AL2023 = (
    ("x86_64", "standard"),
    ("x86_64", "nvidia"),
    ("x86_64", "neuron"),
    ("arm64", "standard"),
    ("arm64", "nvidia"),
)
PINNED_FOR, MUTABLE_FOR, CUSTOM_FOR = timedelta(hours=24), timedelta(minutes=30), timedelta(minutes=5)
"""How long parameters are remembered: of one release, of the latest, of the user's own. Source: spec/aws 2.2."""
AL2_ENDS_WITH = 33
WINDOWS_2025_BEGINS_WITH = 35
"""Minor versions of Kubernetes. Source: spec/aws 2.2."""
WINDOWS = {name.lower(): family.windows_build for name, family in FAMILIES.items() if family.windows_build}
"""Alias family → build."""


class AliasUnsupported(CloudError):
    """The alias cannot be served on this cluster; the text has the mend."""


def parameters(alias: str, version: str) -> list[tuple[str, str]]:
    """(SSM parameter, variant) of every image that an alias stands for.

    Raises:
        AliasUnsupported: no images for this family, or none any more.
    """
    family, _, wanted = alias.partition("@")
    family = family.lower()
    if not version:
        raise AliasUnsupported(f"alias {alias}: EKS does not tell the cluster's version; select images by id, name or tags")
    found = []
    if family == "al2023":
        for arch, variant in _AL2023:
            release = "recommended" if wanted == "latest" else f"amazon-eks-node-al2023-{arch}-{variant}-{version}-{wanted}"
            root = f"/aws/service/eks/optimized-ami/{version}/amazon-linux-2023"
            found.append((f"{root}/{arch}/{variant}/{release}/image_id", variant))
        return found
    if family == "bottlerocket":
        release = wanted.removeprefix("v")
        for arch, suffix, variants in (
            ("x86_64", "", ("standard", "neuron")),
            ("x86_64", "-nvidia", ("nvidia",)),
            ("arm64", "", ("standard",)),
            ("arm64", "-nvidia", ("nvidia",)),
        ):
            name = f"/aws/service/bottlerocket/aws-k8s-{version}{suffix}/{arch}/{release}/image_id"
            found += [(name, variant) for variant in variants]
        return found
    minor = int(version.partition(".")[2] or 0)
    if family == "al2":
        if minor >= AL2_ENDS_WITH:
            raise AliasUnsupported(f"alias {alias}: AL2 has no images from Kubernetes 1.{AL2_ENDS_WITH} on; use al2023@latest")
        for suffix, part, variants in (
            ("", "node", ("standard",)),
            ("-arm64", "arm64-node", ("standard",)),
            ("-gpu", "gpu-node", ("nvidia", "neuron")),
        ):
            release = "recommended" if wanted == "latest" else f"amazon-eks-{part}-{version}-{wanted}"
            name = f"/aws/service/eks/optimized-ami/{version}/amazon-linux-2{suffix}/{release}/image_id"
            found += [(name, variant) for variant in variants]
        return found
    if family in WINDOWS:
        if family == "windows2025" and minor < WINDOWS_2025_BEGINS_WITH:
            text = f"alias {alias}: there are images from Kubernetes 1.{WINDOWS_2025_BEGINS_WITH} on; use windows2022@latest"
            raise AliasUnsupported(text)
        year = family.removeprefix("windows")
        name = f"/aws/service/ami-windows-latest/Windows_Server-{year}-English-Core-EKS_Optimized-{version}/image_id"
        return [(name, family)]
    raise AliasUnsupported(f"alias {alias}: no such family; use al2023@latest, bottlerocket@latest or windows2022@latest")


class Parameters:
    """SSM parameters, remembered as long as they may be: names of a release never change, those of the latest seldom."""

    def __init__(self, ec2: api.Ec2Api) -> None:
        self._ec2 = ec2
        self._known: dict[str, tuple[datetime, str]] = {}

    async def value(self, name: str, now: datetime, keep: timedelta) -> str:
        """The value, "" if there is no such parameter. Raises AwsError: nobody knows."""
        known = self._known.get(name)
        if known is not None and known[0] > now:
            return known[1]
        try:
            found = (await retry.call(self._ec2.get_parameter, api.GetParameter(name=name))).parameter.value
        except AwsError as error:
            if not is_not_found(error):
                raise
            found = ""
        self._known[name] = (now + keep, found)
        return found


async def resolve(ec2: api.Ec2Api, known: Parameters, node_class: EC2NodeClass, version: str, now: datetime) -> tuple[Ami, ...]:
    """Newest first, at most one for each set of requirements.

    Raises:
        AliasUnsupported: see `parameters`.
        AwsError: a look-up failed for another reason than that something is not there.
    """
    variants: dict[str, list[str]] = {}
    images: dict[str, api.Image] = {}
    terms = node_class.spec.ami_selector_terms
    for term in terms:
        if term.alias:
            for name, variant in parameters(term.alias, version):
                found = await known.value(name, now, MUTABLE_FOR if _is_mutable(term.alias) else PINNED_FOR)
                if found:
                    variants.setdefault(found, []).append(variant)
    named = [await known.value(t.ssm_parameter, now, CUSTOM_FOR) for t in terms if t.ssm_parameter]
    ids = [*variants, *(t.id for t in terms if t.id), *(i for i in named if i.startswith("ami-"))]
    for filters, owners in _queries(terms, ids):
        request = api.DescribeImages(
            filters=(*filters, api.Filter(name="state", values=("available",))),
            owners=owners,
            include_deprecated=True,
            max_results=1000,
        )
        async for page in retry.pages(ec2.describe_images, request):
            images.update((i.image_id, i) for i in page.images)
    return _best(images.values(), variants, now)


def _queries(terms: Sequence[AmiSelectorTerm], ids: Sequence[str]) -> list[tuple[tuple[api.Filter, ...], tuple[str, ...]]]:
    """(filters, owners): ids from any owner, names by default only from ourselves and Amazon, tags from any."""
    found: list[tuple[tuple[api.Filter, ...], tuple[str, ...]]] = []
    if ids:
        found.append(((api.Filter(name="image-id", values=tuple(sorted(set(ids)))),), ()))
    for t in terms:
        if t.alias or t.id or t.ssm_parameter:
            continue
        filters = selectors.tag_filters(t.tags)
        if t.name:
            filters = (api.Filter(name="name", values=(t.name,)), *filters)
        default = ("self", "amazon") if t.name else ()
        found.append((filters, (t.owner,) if t.owner else default))
    return found


def _best(images: Iterable[api.Image], variants: Mapping[str, Sequence[str]], now: datetime) -> tuple[Ami, ...]:
    ranked: dict[tuple[NodeSelectorRequirement, ...], tuple[tuple[bool, str, str], Ami, str]] = {}
    for image in images:
        arch = ARCHITECTURES.get(image.architecture)
        if arch is None:
            continue
        deprecated = bool(image.deprecation_time) and image.deprecation_time <= f"{now:%Y-%m-%dT%H:%M:%S}"
        rank = (not deprecated, image.creation_date, image.name)
        for variant in variants.get(image.image_id, ("",)):
            wanted = _requirements(arch, variant)
            if wanted not in ranked or rank > ranked[wanted][0]:
                ami = Ami(id=image.image_id, name=image.name, deprecated=deprecated, requirements=wanted)
                ranked[wanted] = (rank, ami, image.creation_date)
    ordered = sorted(ranked.values(), key=lambda r: (r[1].id, str(r[1].requirements)))
    return tuple(r[1] for r in sorted(ordered, key=lambda r: r[2], reverse=True))


def _requirements(arch: str, variant: str) -> tuple[NodeSelectorRequirement, ...]:
    found = [NodeSelectorRequirement(key=labels.ARCH, operator=IN, values=(arch,))]
    if variant in WINDOWS:
        found.append(NodeSelectorRequirement(key=labels.OS, operator=IN, values=("windows",)))
        found.append(NodeSelectorRequirement(key=labels.WINDOWS_BUILD, operator=IN, values=(WINDOWS[variant],)))
    found += [NodeSelectorRequirement(key=key, operator=operator) for key, operator in VARIANTS.get(variant, {}).items()]
    return tuple(sorted(found, key=lambda r: (len(r.key), r.key)))


def _is_mutable(alias: str) -> bool:
    return alias.endswith("@latest")


def for_type(amis: Sequence[Ami], instance_type: InstanceType) -> Ami | None:
    """The first that runs on the type."""
    return for_requirements(amis, instance_type.requirements)


def for_requirements(amis: Sequence[Ami], asked: Mapping[str, Requirement]) -> Ami | None:
    """The first that runs on a type with these labels."""
    return next((ami for ami in amis if requirements.conflict(asked, _asked(ami)) is None), None)


@lru_cache(maxsize=1024)
def _asked(ami: Ami) -> Mapping[str, Requirement]:
    return requirements.of_expressions(ami.requirements)
