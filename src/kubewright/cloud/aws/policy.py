"""The IAM policy that the operator needs, and nothing beyond it. Source: spec/aws 13.

Whatever is written is scoped by tags: with it nobody can make, change or end machines, templates or profiles of another cluster.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

CREATED = ("fleet", "instance", "volume", "network-interface", "launch-template", "spot-instances-request")
"""What launches make."""
_FREE = ("security-group", "subnet", "capacity-reservation", "placement-group")
"""What launches use, and nobody can mark as a cluster's."""
READS = (
    "DescribeCapacityReservations",
    "DescribeImages",
    "DescribeInstances",
    "DescribeInstanceStatus",
    "DescribeInstanceTypeOfferings",
    "DescribeInstanceTypes",
    "DescribeLaunchTemplates",
    "DescribePlacementGroups",
    "DescribeSecurityGroups",
    "DescribeSpotPriceHistory",
    "DescribeSubnets",
)


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Whose policy it is."""

    cluster: str
    region: str
    account: str
    partition: str = "aws"
    node_role: str = ""
    """Name of the nodes' role; "" for every role of the account."""
    queue: str = ""
    """Name of the interruption queue; "" for none."""
    zonal_shift: bool = False

    def ec2(self, kind: str, account: str = "*") -> str:
        return f"arn:{self.partition}:ec2:{self.region}:{account}:{kind}/*"


def document(scope: Scope) -> dict[str, Any]:
    """The policy, ready for `aws iam create-policy`."""
    return {"Version": "2012-10-17", "Statement": [*_launching(scope), *_reading(scope), *_profiles(scope)]}


def _launching(s: Scope) -> list[dict[str, Any]]:
    requested = _equals("RequestTag", {_owned(s): "owned", "eks:eks-cluster-name": s.cluster}) | _like(
        "RequestTag", "karpenter.sh/nodepool"
    )
    ours = _equals("ResourceTag", {_owned(s): "owned"}) | _like("ResourceTag", "karpenter.sh/nodepool")
    launch = ["ec2:RunInstances", "ec2:CreateFleet"]
    free = [s.ec2("image", ""), s.ec2("snapshot", ""), *(s.ec2(kind) for kind in _FREE)]
    made = [s.ec2(kind) for kind in CREATED]
    by_launch = {"ec2:CreateAction": ["RunInstances", "CreateFleet", "CreateLaunchTemplate"]}
    later = {
        **ours,
        "StringEqualsIfExists": {"aws:RequestTag/eks:eks-cluster-name": s.cluster},
        "ForAllValues:StringEquals": {"aws:TagKeys": ["eks:eks-cluster-name", "karpenter.sh/nodeclaim", "Name"]},
    }
    tagging = {**requested, "StringEquals": {**requested["StringEquals"], **by_launch}}
    return [
        _allow("UseWhatLaunchesNeed", launch, free),
        _allow("UseOwnLaunchTemplates", launch, [s.ec2("launch-template")], ours),
        _allow("LaunchWithOwnTags", [*launch, "ec2:CreateLaunchTemplate"], made, requested),
        _allow("TagWhatIsLaunched", ["ec2:CreateTags"], made, tagging),
        _allow("NameOwnInstances", ["ec2:CreateTags"], [s.ec2("instance")], later),
        _allow(
            "EndOwnInstancesAndTemplates",
            ["ec2:TerminateInstances", "ec2:DeleteLaunchTemplate"],
            [s.ec2("instance"), s.ec2("launch-template")],
            ours,
        ),
    ]


def _reading(s: Scope) -> list[dict[str, Any]]:
    here = {"StringEquals": {"aws:RequestedRegion": s.region}}
    cluster = f"arn:{s.partition}:eks:{s.region}:{s.account}:cluster/{s.cluster}"
    found = [
        _allow("ReadEC2OfTheRegion", [f"ec2:{name}" for name in READS], ["*"], here),
        _allow("ReadImagesParameters", ["ssm:GetParameter"], [f"arn:{s.partition}:ssm:{s.region}::parameter/aws/service/*"]),
        _allow("ReadPrices", ["pricing:GetProducts"], ["*"]),
        _allow("ReadTheCluster", ["eks:DescribeCluster"], [cluster]),
    ]
    if s.queue:
        queue = f"arn:{s.partition}:sqs:{s.region}:{s.account}:{s.queue}"
        found.append(_allow("ReadInterruptions", ["sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage"], [queue]))
    if s.zonal_shift:
        found.append(_allow("ReadZonalShifts", ["arc-zonal-shift:GetManagedResource"], [cluster]))
    return found


def _profiles(s: Scope) -> list[dict[str, Any]]:
    everywhere = f"arn:{s.partition}:iam::{s.account}:instance-profile/*"
    marks = {_owned(s): "owned", "topology.kubernetes.io/region": s.region}
    asked = {**marks, "eks:eks-cluster-name": s.cluster}
    requested = _equals("RequestTag", asked) | _like("RequestTag", "karpenter.k8s.aws/ec2nodeclass")
    ours = _equals("ResourceTag", marks) | _like("ResourceTag", "karpenter.k8s.aws/ec2nodeclass")
    both = {
        "StringEquals": {**ours["StringEquals"], **requested["StringEquals"]},
        "StringLike": {**ours["StringLike"], **requested["StringLike"]},
    }
    services = ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"]
    role = f"arn:{s.partition}:iam::{s.account}:role/{s.node_role or '*'}"
    change = ["iam:AddRoleToInstanceProfile", "iam:DeleteInstanceProfile", "iam:RemoveRoleFromInstanceProfile"]
    return [
        _allow("GiveNodesTheirRole", ["iam:PassRole"], [role], {"StringEquals": {"iam:PassedToService": services}}),
        _allow("MakeOwnProfiles", ["iam:CreateInstanceProfile"], [everywhere], requested),
        _allow("TagOwnProfiles", ["iam:TagInstanceProfile"], [everywhere], both),
        _allow("ChangeOwnProfiles", change, [everywhere], ours),
        _allow("ReadProfiles", ["iam:GetInstanceProfile"], [everywhere]),
        _allow("ListProfiles", ["iam:ListInstanceProfiles"], ["*"]),
    ]


def _owned(s: Scope) -> str:
    return f"kubernetes.io/cluster/{s.cluster}"


def _equals(where: str, tags: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    return {"StringEquals": {f"aws:{where}/{key}": value for key, value in tags.items()}}


def _like(where: str, key: str) -> dict[str, dict[str, Any]]:
    return {"StringLike": {f"aws:{where}/{key}": "*"}}


def _allow(name: str, actions: list[str], resources: list[str], condition: Mapping[str, Any] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"Sid": name, "Effect": "Allow", "Action": actions, "Resource": resources}
    return {**found, "Condition": dict(condition)} if condition else found
