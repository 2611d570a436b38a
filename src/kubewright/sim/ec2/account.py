"""What an account holds that does not run: subnets, security groups, images, launch templates, profiles, a cluster."""

import base64
import fnmatch
import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime

from msgspec.structs import replace

from kubewright.cloud.aws import api, errors
from kubewright.cloud.aws.catalogue import Region
from kubewright.cloud.aws.errors import AwsError
from kubewright.cloud.aws.userdata import LIMIT_BYTES

OWNER, AMAZON = "111122223333", "602401143452"
AL2_ENDS_WITH = 33
"""The first minor version of Kubernetes without AL2 images."""
VPC = "vpc-0sandbox000000000"
RELEASE = "v20261101"
BOTTLEROCKET = "1.54.0"
MOST_TAGS = 50
MOST_VALUES = 200
"""Of one filter."""
MADE = "2026-11-01T00:00:00.000Z"
_PROFILES_IN_A_PAGE = 100
_EKS_IMAGES = (
    ("x86_64", "standard"),
    ("x86_64", "nvidia"),
    ("x86_64", "neuron"),
    ("arm64", "standard"),
    ("arm64", "nvidia"),
)
_BOTTLEROCKET_IMAGES = (("x86_64", ""), ("x86_64", "-nvidia"), ("arm64", ""), ("arm64", "-nvidia"))


WOULD_HAVE_WORKED = ("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)


def check_tags(operation: str, specifications: Iterable[api.TagSpecification]) -> None:
    """Raises AwsError: more than EC2 takes, or one that is too long."""
    for s in specifications:
        keys = [t.key for t in s.tags]
        if len(keys) > MOST_TAGS:
            raise AwsError(operation, "TagLimitExceeded", f"The maximum number of tags is {MOST_TAGS}, found {len(keys)}")
        if len(set(keys)) < len(keys):
            raise AwsError(operation, "InvalidParameterValue", "Duplicate tag keys found.")
        for t in s.tags:
            if not 1 <= len(t.key) <= 128 or len(t.value) > 256 or t.key.startswith("aws:"):
                raise AwsError(operation, "InvalidParameterValue", f"Tag {t.key!r} with {len(t.value)} characters is not valid")


def name_id(prefix: str, *about: str) -> str:
    """An id as EC2 makes them, the same for the same thing."""
    return f"{prefix}-0{hashlib.sha256('/'.join(about).encode()).hexdigest()[:16]}"


def matches(filters: Iterable[api.Filter], found: Mapping[str, str], tags: Mapping[str, str], operation: str) -> bool:
    """EC2's filters: values ORed, filters ANDed, wildcards inside values. Raises AwsError for a filter EC2 does not know."""
    for f in filters:
        if len(f.values) > MOST_VALUES:
            text = f"The maximum number of filter values specified on a single call is {MOST_VALUES}"
            raise AwsError(operation, "FilterLimitExceeded", text)
        if f.name == "tag-key":
            if not any(fnmatch.fnmatchcase(key, v) for key in tags for v in f.values):
                return False
            continue
        if f.name.startswith("tag:"):
            value = tags.get(f.name[4:])
        elif f.name in found:
            value = found[f.name]
        else:
            raise AwsError(operation, "InvalidParameterValue", f"The filter '{f.name}' is invalid")
        if value is None or not any(fnmatch.fnmatchcase(value, v) for v in f.values):
            return False
    return True


class Account:
    """Static things by id, mutable ones by name."""

    def __init__(self, region: str, cluster: str, offered: Region, zones: int, version: str, addresses: int) -> None:
        self.region = region
        discovery = (api.Tag(key="karpenter.sh/discovery", value=cluster),)
        pairs = list(zip(offered.zones, offered.zone_ids, strict=True))[:zones]
        self.subnets = {
            s.subnet_id: s
            for s in (
                api.Subnet(
                    subnet_id=name_id("subnet", cluster, zone),
                    availability_zone=zone,
                    availability_zone_id=zone_id,
                    available_ip_address_count=addresses,
                    vpc_id=VPC,
                    tags=discovery,
                )
                for zone, zone_id in pairs
            )
        }
        group = name_id("sg", cluster)
        self.groups = {group: api.SecurityGroup(group_id=group, group_name=f"{cluster}-node", vpc_id=VPC, tags=discovery)}
        self.images: dict[str, api.Image] = {}
        self.parameters: dict[str, str] = {}
        self._publish_images(version)
        self.templates: dict[str, tuple[api.LaunchTemplate, api.LaunchTemplateData]] = {}
        self.profiles: dict[str, api.InstanceProfileInfo] = {}
        self.roles: set[str] | None = None
        """IAM roles; None: every name is one."""
        self.reservations: dict[str, api.CapacityReservation] = {}
        self.groups_of_placement: dict[str, api.PlacementGroup] = {}
        self.shifts: list[api.ZonalShift] = []
        """Of the cluster."""
        self.cluster = api.EksCluster(
            name=cluster,
            arn=f"arn:aws:eks:{region}:{OWNER}:cluster/{cluster}",
            endpoint=f"https://{name_id('eks', cluster)}.{region}.eks.example.com",
            version=version,
            certificate_authority=api.CertificateAuthority(data=base64.b64encode(b"sandbox CA").decode()),
            kubernetes_network_config=api.KubernetesNetworkConfig(service_ipv4_cidr="10.100.0.0/16"),
        )

    def add_image(self, image: api.Image, *parameters: str) -> None:
        self.images[image.image_id] = image
        self.parameters.update(dict.fromkeys(parameters, image.image_id))

    def _publish_images(self, version: str) -> None:
        root = f"/aws/service/eks/optimized-ami/{version}/amazon-linux-2023"
        for arch, variant in _EKS_IMAGES:
            name = f"amazon-eks-node-al2023-{arch}-{variant}-{version}-{RELEASE}"
            path = f"{root}/{arch}/{variant}"
            self.add_image(_image(name, arch), f"{path}/recommended/image_id", f"{path}/{name}/image_id")
        for year, build in (("2019", "17763"), ("2022", "20348"), ("2025", "26100")):
            name = f"Windows_Server-{year}-English-Core-EKS_Optimized-{version}-10.0.{build}"
            path = f"/aws/service/ami-windows-latest/Windows_Server-{year}-English-Core-EKS_Optimized-{version}"
            self.add_image(_image(name, "x86_64"), f"{path}/image_id")
        if int(version.partition(".")[2]) < AL2_ENDS_WITH:
            root = f"/aws/service/eks/optimized-ami/{version}"
            for suffix, part, arch in (("", "node", "x86_64"), ("-arm64", "arm64-node", "arm64"), ("-gpu", "gpu-node", "x86_64")):
                name = f"amazon-eks-{part}-{version}-{RELEASE}"
                path = f"{root}/amazon-linux-2{suffix}"
                self.add_image(_image(name, arch), f"{path}/recommended/image_id", f"{path}/{name}/image_id")
        for arch, suffix in _BOTTLEROCKET_IMAGES:
            name = f"bottlerocket-aws-k8s-{version}{suffix}-{arch.replace('arm64', 'aarch64')}-v{BOTTLEROCKET}"
            path = f"/aws/service/bottlerocket/aws-k8s-{version}{suffix}/{arch}"
            self.add_image(_image(name, arch), f"{path}/latest/image_id", f"{path}/{BOTTLEROCKET}/image_id")

    def take_address(self, subnet_id: str, count: int = 1) -> None:
        """A negative count gives addresses back."""
        subnet = self.subnets[subnet_id]
        self.subnets[subnet_id] = replace(subnet, available_ip_address_count=subnet.available_ip_address_count - count)

    def reserve(
        self,
        instance_type: str,
        zone: str,
        count: int,
        *,
        kind: str = "default",
        interruptible: bool = False,
        ends: datetime | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> str:
        """A capacity reservation; its id."""
        name = name_id("cr", instance_type, zone, kind, str(len(self.reservations)))
        self.reservations[name] = api.CapacityReservation(
            capacity_reservation_id=name,
            owner_id=OWNER,
            instance_type=instance_type,
            availability_zone=zone,
            total_instance_count=count,
            available_instance_count=count,
            state="active",
            end_date=ends,
            instance_match_criteria="targeted",
            reservation_type=kind,
            interruptible=interruptible,
            tags=tuple(api.Tag(key=k, value=v) for k, v in sorted((tags or {}).items())),
        )
        return name

    def hold(self, reservation_id: str, count: int = 1) -> None:
        """A negative count gives places back."""
        found = self.reservations[reservation_id]
        left = min(found.total_instance_count, found.available_instance_count - count)
        self.reservations[reservation_id] = replace(found, available_instance_count=left)

    def add_placement_group(self, name: str, strategy: str, partitions: int = 0) -> str:
        """Its id."""
        group = name_id("pg", name)
        self.groups_of_placement[group] = api.PlacementGroup(
            group_id=group, group_name=name, state="available", strategy=strategy, partition_count=partitions
        )
        return group

    def shift_away(self, zone: str, until: datetime) -> None:
        """ARC moves traffic away from a zone (by name) for a while."""
        zone_id = next(s.availability_zone_id for s in self.subnets.values() if s.availability_zone == zone)
        shift = api.ZonalShift(applied_status="APPLIED", away_from=zone_id, expiry_time=until, shift_type="ZONAL_SHIFT")
        self.shifts.append(shift)

    # --- calls ------------------------------------------------------------------------------------------------------

    def describe_subnets(self, request: api.DescribeSubnets) -> api.SubnetsPage:
        found = [
            s
            for s in self.subnets.values()
            if matches(
                request.filters,
                {"subnet-id": s.subnet_id, "vpc-id": s.vpc_id, "availability-zone": s.availability_zone},
                api.tags_of(s.tags),
                "DescribeSubnets",
            )
        ]
        return api.SubnetsPage(subnets=tuple(found))

    def describe_security_groups(self, request: api.DescribeSecurityGroups) -> api.SecurityGroupsPage:
        found = [
            g
            for g in self.groups.values()
            if matches(
                request.filters,
                {"group-id": g.group_id, "group-name": g.group_name, "vpc-id": g.vpc_id},
                api.tags_of(g.tags),
                "DescribeSecurityGroups",
            )
        ]
        return api.SecurityGroupsPage(security_groups=tuple(found))

    def describe_images(self, request: api.DescribeImages) -> api.ImagesPage:
        owners = {"self": OWNER, "amazon": AMAZON}
        wanted = {owners.get(o, o) for o in request.owners}
        found = [
            i
            for i in self.images.values()
            if (not wanted or i.owner_id in wanted)
            and matches(
                request.filters,
                {"image-id": i.image_id, "name": i.name, "state": i.state, "architecture": i.architecture},
                api.tags_of(i.tags),
                "DescribeImages",
            )
        ]
        return api.ImagesPage(images=tuple(found))

    def get_parameter(self, request: api.GetParameter) -> api.ParameterAnswer:
        found = self.parameters.get(request.name)
        if found is None:
            raise AwsError("GetParameter", "ParameterNotFound", f"{request.name} was not found")
        return api.ParameterAnswer(parameter=api.Parameter(value=found))

    def create_launch_template(self, request: api.CreateLaunchTemplate, now: datetime) -> api.LaunchTemplateAnswer:
        name = request.launch_template_name
        if request.dry_run:
            raise AwsError("CreateLaunchTemplate", *WOULD_HAVE_WORKED)
        check_tags("CreateLaunchTemplate", request.tag_specifications)
        there = self.templates.get(name)
        if there is not None:
            if there[1] == request.launch_template_data and request.client_token:
                return api.LaunchTemplateAnswer(launch_template=there[0])
            raise AwsError("CreateLaunchTemplate", errors.TEMPLATE_EXISTS, f"Launch template name already in use: {name}")
        size = len(base64.b64decode(request.launch_template_data.user_data))
        if size > LIMIT_BYTES:
            text = f"User data is limited to {LIMIT_BYTES} bytes"
            raise AwsError("CreateLaunchTemplate", "InvalidUserData.Malformed", text)
        found = tuple(t for s in request.tag_specifications if s.resource_type == "launch-template" for t in s.tags)
        made = api.LaunchTemplate(launch_template_id=name_id("lt", name), launch_template_name=name, create_time=now, tags=found)
        self.templates[name] = (made, request.launch_template_data)
        return api.LaunchTemplateAnswer(launch_template=made)

    def describe_launch_templates(self, request: api.DescribeLaunchTemplates) -> api.LaunchTemplatesPage:
        for name in request.launch_template_names:
            if name not in self.templates:
                text = "At least one of the launch templates specified in the request does not exist."
                raise AwsError("DescribeLaunchTemplates", errors.TEMPLATE_GONE, text)
        found = [
            t
            for name, (t, _) in self.templates.items()
            if (not request.launch_template_names or name in request.launch_template_names)
            and matches(request.filters, {"launch-template-name": name}, api.tags_of(t.tags), "DescribeLaunchTemplates")
        ]
        return api.LaunchTemplatesPage(launch_templates=tuple(found))

    def delete_launch_template(self, request: api.DeleteLaunchTemplate) -> api.Done:
        if request.dry_run:
            raise AwsError("DeleteLaunchTemplate", *WOULD_HAVE_WORKED)
        if self.templates.pop(request.launch_template_name, None) is None:
            text = f"The specified launch template, with template name {request.launch_template_name}, does not exist."
            raise AwsError("DeleteLaunchTemplate", errors.TEMPLATE_GONE, text)
        return api.Done()

    def describe_capacity_reservations(self, request: api.DescribeCapacityReservations) -> api.CapacityReservationsPage:
        operation = "DescribeCapacityReservations"
        for name in request.capacity_reservation_ids:
            if name not in self.reservations:
                text = f"The capacity reservation '{name}' does not exist"
                raise AwsError(operation, "InvalidCapacityReservationId.NotFound", text)
        if request.capacity_reservation_ids and request.max_results:
            text = "The parameter capacityReservationIds cannot be used with the parameter maxResults"
            raise AwsError(operation, "InvalidParameterCombination", text)
        found = [
            r
            for name, r in self.reservations.items()
            if (not request.capacity_reservation_ids or name in request.capacity_reservation_ids)
            and matches(
                request.filters,
                {
                    "state": r.state,
                    "owner-id": r.owner_id,
                    "instance-match-criteria": r.instance_match_criteria,
                    "instance-type": r.instance_type,
                },
                api.tags_of(r.tags),
                operation,
            )
        ]
        return api.CapacityReservationsPage(capacity_reservations=tuple(found))

    def describe_placement_groups(self, request: api.DescribePlacementGroups) -> api.PlacementGroupsAnswer:
        groups = self.groups_of_placement
        names = {g.group_name for g in groups.values()}
        missing = [g for g in request.group_ids if g not in groups] + [n for n in request.group_names if n not in names]
        if missing:
            text = f"The Placement Group '{missing[0]}' is unknown."
            raise AwsError("DescribePlacementGroups", "InvalidPlacementGroup.Unknown", text)
        found = [
            g
            for g in groups.values()
            if (not request.group_ids or g.group_id in request.group_ids)
            and (not request.group_names or g.group_name in request.group_names)
            and matches(request.filters, {"state": g.state, "strategy": g.strategy}, {}, "DescribePlacementGroups")
        ]
        return api.PlacementGroupsAnswer(placement_groups=tuple(found))

    def get_managed_resource(self, request: api.GetManagedResource, now: datetime) -> api.ManagedResourceAnswer:
        if request.resource_identifier != self.cluster.arn:
            text = f"The resource {request.resource_identifier} is not managed"
            raise AwsError("GetManagedResource", "ResourceNotFoundException", text, 404)
        self.shifts = [s for s in self.shifts if s.expiry_time is None or s.expiry_time > now]
        return api.ManagedResourceAnswer(arn=self.cluster.arn, zonal_shifts=tuple(self.shifts))

    def describe_cluster(self, request: api.DescribeCluster) -> api.ClusterAnswer:
        if request.name != self.cluster.name:
            raise AwsError("DescribeCluster", "ResourceNotFoundException", f"No cluster found for name: {request.name}.", 404)
        return api.ClusterAnswer(cluster=self.cluster)

    def get_instance_profile(self, request: api.GetInstanceProfile) -> api.InstanceProfileAnswer:
        return api.InstanceProfileAnswer(instance_profile=self._profile("GetInstanceProfile", request.instance_profile_name))

    def list_instance_profiles(self, request: api.ListInstanceProfiles) -> api.InstanceProfilesPage:
        found = [p for _, p in sorted(self.profiles.items()) if p.path.startswith(request.path_prefix or "/")]
        start = int(request.marker or 0)
        more = len(found) > start + _PROFILES_IN_A_PAGE
        return api.InstanceProfilesPage(
            instance_profiles=tuple(found[start : start + _PROFILES_IN_A_PAGE]),
            is_truncated=more,
            marker=str(start + _PROFILES_IN_A_PAGE) if more else "",
        )

    def create_instance_profile(self, request: api.CreateInstanceProfile, now: datetime) -> api.InstanceProfileAnswer:
        name = request.instance_profile_name
        if name in self.profiles:
            text = f"Instance Profile {name} already exists."
            raise AwsError("CreateInstanceProfile", "EntityAlreadyExists", text, 409)
        self.profiles[name] = api.InstanceProfileInfo(
            instance_profile_name=name, path=request.path, tags=request.tags, create_date=now
        )
        return api.InstanceProfileAnswer(instance_profile=self.profiles[name])

    def add_role(self, request: api.ProfileRole) -> api.Done:
        profile = self._profile("AddRoleToInstanceProfile", request.instance_profile_name)
        if self.roles is not None and request.role_name not in self.roles:
            text = f"The role with name {request.role_name} cannot be found."
            raise AwsError("AddRoleToInstanceProfile", "NoSuchEntity", text, 404)
        if profile.roles:
            text = "Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1"
            raise AwsError("AddRoleToInstanceProfile", "LimitExceeded", text, 409)
        self.profiles[profile.instance_profile_name] = replace(profile, roles=(api.Role(role_name=request.role_name),))
        return api.Done()

    def remove_role(self, request: api.ProfileRole) -> api.Done:
        profile = self._profile("RemoveRoleFromInstanceProfile", request.instance_profile_name)
        self.profiles[profile.instance_profile_name] = replace(profile, roles=())
        return api.Done()

    def delete_instance_profile(self, request: api.DeleteInstanceProfile) -> api.Done:
        profile = self._profile("DeleteInstanceProfile", request.instance_profile_name)
        if profile.roles:
            text = "Cannot delete entity, must remove roles from instance profile first."
            raise AwsError("DeleteInstanceProfile", "DeleteConflict", text, 409)
        del self.profiles[profile.instance_profile_name]
        return api.Done()

    def _profile(self, operation: str, name: str) -> api.InstanceProfileInfo:
        if name not in self.profiles:
            raise AwsError(operation, "NoSuchEntity", f"Instance Profile {name} cannot be found.", 404)
        return self.profiles[name]


def _image(name: str, arch: str) -> api.Image:
    return api.Image(
        image_id=name_id("ami", name),
        name=name,
        architecture=arch,
        creation_date=MADE,
        state="available",
        owner_id=AMAZON,
    )
