"""Whether a machine still is what its NodeClass says. Source: spec/aws 10."""

from kubewright.api import aws_labels, labels
from kubewright.api.aws import EC2NodeClass
from kubewright.api.karpenter import NodeClaim
from kubewright.catalogue.types import InstanceType
from kubewright.cloud.aws import amis, api, instances


def of_hash(claim: NodeClaim, node_class: EC2NodeClass) -> str:
    """Only hashes of one version can be compared."""
    ours, theirs = claim.metadata.annotations, node_class.metadata.annotations
    version, key = aws_labels.EC2_NODE_CLASS_HASH_VERSION, aws_labels.EC2_NODE_CLASS_HASH
    comparable = all(k in a for a in (ours, theirs) for k in (version, key)) and ours[version] == theirs[version]
    return "NodeClassDrift" if comparable and ours[key] != theirs[key] else ""


def of_image(claim: NodeClaim, node_class: EC2NodeClass, shape: InstanceType | None) -> str:
    """A type that is not sold any more cannot be judged, and is left alone (the reference raises here)."""
    ami = amis.for_type(node_class.status.amis, shape) if shape is not None else None
    return "AMIDrift" if ami is not None and claim.status.image_id and claim.status.image_id != ami.id else ""


def of_network(instance: api.Ec2Instance, node_class: EC2NodeClass) -> str:
    status = node_class.status
    groups = {g.group_id for g in instance.security_groups}
    if status.security_groups and groups != {g.id for g in status.security_groups}:
        return "SecurityGroupDrift"
    if status.subnets and instance.subnet_id not in {s.id for s in status.subnets}:
        return "SubnetDrift"
    return ""


def of_reservation(instance: api.Ec2Instance, node_class: EC2NodeClass) -> str:
    """Reserved capacity that the class does not select any more."""
    if instances.capacity_type(instance) != labels.RESERVED:
        return ""
    known = {r.id for r in node_class.status.capacity_reservations}
    return "" if instance.capacity_reservation_id in known else "CapacityReservationDrift"


def of_group(claim: NodeClaim, node_class: EC2NodeClass, group: api.PlacementGroup | None) -> str:
    """`group` is what the class resolves now; one that could not be resolved is no reason to replace anything."""
    if group is None and node_class.spec.placement_group_selector is not None:
        return ""
    launched = claim.metadata.labels.get(aws_labels.PLACEMENT_GROUP_ID, "")
    return "PlacementGroupDrift" if launched != (group.group_id if group else "") else ""
