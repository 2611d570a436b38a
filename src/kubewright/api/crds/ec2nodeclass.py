"""The CRD of EC2NodeClass as released in 1.14.1. Source: spec/aws 1.1, 1.3."""

from typing import Any

from kubewright.api.crds import parts
from kubewright.api.crds.parts import Node, array, boolean, choice, integer, moment, record, string, string_map, with_rules
from kubewright.api.rules import aws

_ON_OFF = ("enabled", "disabled")
_EVICTION_VALUE = (
    r"^((\d{1,2}(\.\d{1,2})?|100(\.0{1,2})?)%||(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?)$"
)
_VOLUME_SIZE = (
    "^((?:[1-9][0-9]{0,3}|[1-4][0-9]{4}|[5][0-8][0-9]{3}|59000)Gi|(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|[6][0-3][0-9]{3}|64000)G"
    "|([1-9]||[1-5][0-7]|58)Ti|([1-9]||[1-5][0-9]|6[0-3]|64)T)$"
)


def _tags() -> Node:
    node = string_map("Tags that must all be there; `*` as a value takes any.", maxProperties=20)
    return with_rules(node, [aws.TAGS_NOT_EMPTY])


def _terms(description: str, fields: dict[str, Node], rules: tuple[Any, ...], **more: Any) -> Node:
    item = record("Everything in one term must hold; the terms add up.", fields)
    return with_rules(array(description, item, maxItems=30, **more), rules)


_SELECTORS = {
    "amiSelectorTerms": _terms(
        "Which machine images to use.",
        {
            "alias": with_rules(
                string("A family of published images and its version, such as al2023@latest.", maxLength=30), aws.ALIAS
            ),
            "id": string("Id of the image.", pattern="ami-[0-9a-z]+"),
            "name": string("Name of the image."),
            "owner": string("Account that owns the image."),
            "ssmParameter": string("Systems Manager parameter that holds the image's id."),
            "tags": _tags(),
        },
        aws.AMI_TERMS,
        minItems=1,
    ),
    "capacityReservationSelectorTerms": _terms(
        "Which capacity reservations to use.",
        {
            "id": string("Id of the reservation.", pattern="^cr-[0-9a-z]+$"),
            "instanceMatchCriteria": choice("How instances get into the reservation.", ("open", "targeted")),
            "ownerID": string("Account that owns the reservation.", pattern="^[0-9]{12}$"),
            "tags": _tags(),
        },
        aws.CAPACITY_RESERVATION_TERMS,
    ),
    "securityGroupSelectorTerms": _terms(
        "Which security groups the machines get.",
        {
            "id": string("Id of the group.", pattern="sg-[0-9a-z]+"),
            "name": string("Name of the group; not a Name tag."),
            "tags": _tags(),
        },
        aws.SECURITY_GROUP_TERMS,
    ),
    "subnetSelectorTerms": _terms(
        "Which subnets machines may start in.",
        {"id": string("Id of the subnet.", pattern="subnet-[0-9a-z]+"), "tags": _tags()},
        aws.SUBNET_TERMS,
    ),
}

_EBS = with_rules(
    record(
        "Volume that is made for the device.",
        {
            "deleteOnTermination": boolean("Whether the volume goes with the machine."),
            "encrypted": boolean("Whether the volume is encrypted."),
            "iops": integer("I/O operations per second.", "int64"),
            "kmsKeyID": string("Key that the volume is encrypted with."),
            "snapshotID": string("Snapshot that the volume starts from."),
            "throughput": integer("MiB per second.", "int64"),
            "volumeInitializationRate": integer("MiB per second at which the snapshot is read in.", "int32", low=100, high=300),
            "volumeSize": string("Size of the volume.", pattern=_VOLUME_SIZE),
            "volumeType": choice("Kind of volume.", ("standard", "io1", "io2", "gp2", "sc1", "st1", "gp3")),
        },
    ),
    aws.EBS,
)


def _reserved(field: str, description: str) -> Node:
    return with_rules(string_map(description, {"type": "string", "pattern": parts.QUANTITY}), aws.reserved(field))


def _eviction(field: str, description: str) -> Node:
    return with_rules(string_map(description, {"type": "string", "pattern": _EVICTION_VALUE}), aws.eviction(field))


_KUBELET = with_rules(
    record(
        "Settings of the kubelet that also change how much room a machine has.",
        {
            "clusterDNS": array("Addresses of the cluster's DNS servers.", {"type": "string"}),
            "cpuCFSQuota": boolean("Whether CPU limits are enforced."),
            "evictionHard": _eviction("evictionHard", "Signals and the amounts at which pods are evicted at once."),
            "evictionMaxPodGracePeriod": integer("Longest grace in seconds for pods of a soft eviction.", "int32"),
            "evictionSoft": _eviction("evictionSoft", "Signals and the amounts at which pods are evicted after a grace period."),
            "evictionSoftGracePeriod": with_rules(
                string_map("Signals and how long each must last."), aws.eviction("evictionSoftGracePeriod")
            ),
            "imageGCHighThresholdPercent": integer("Disk use above which images are always collected.", "int32", 0, 100),
            "imageGCLowThresholdPercent": integer("Disk use below which images are never collected.", "int32", 0, 100),
            "kubeReserved": _reserved("kubeReserved", "Kept free for Kubernetes' own processes."),
            "maxPods": integer("Most pods on a node.", "int32", low=0),
            "podsPerCore": integer("Most pods for each core; 0 does not limit.", "int32", low=0),
            "systemReserved": _reserved("systemReserved", "Kept free for the system's processes."),
        },
    ),
    aws.KUBELET,
)

_METADATA_OPTIONS = record(
    "How processes on the machine reach the instance metadata service.",
    {
        "httpEndpoint": choice("Whether it is served.", _ON_OFF, default="enabled"),
        "httpProtocolIPv6": choice("Whether it is served over IPv6.", _ON_OFF, default="disabled"),
        "httpPutResponseHopLimit": integer("How far an answer may travel.", "int64", 1, 64, default=1),
        "httpTokens": choice("Whether callers need a session token.", ("required", "optional"), default="required"),
    },
    default={"httpEndpoint": "enabled", "httpProtocolIPv6": "disabled", "httpPutResponseHopLimit": 1, "httpTokens": "required"},
)

_CONNECTION_TRACKING = with_rules(
    record(
        "How long, in seconds, security groups remember idle connections.",
        {
            "tcpEstablishedTimeout": integer("Established TCP.", "int32", 60, 432000),
            "udpStreamTimeout": integer("UDP streams.", "int32", 60, 180),
            "udpTimeout": integer("UDP seen in one direction.", "int32", 30, 60),
        },
    ),
    [aws.CONNECTION_TRACKING],
)

_NETWORK_INTERFACES = with_rules(
    array(
        "Network interfaces of the machines, instead of the usual ones.",
        record(
            "One interface.",
            {
                "deviceIndex": integer("Place on the card.", "int32", low=0),
                "interfaceType": choice("Kind of interface.", ("interface", "efa-only")),
                "networkCardIndex": integer("Network card.", "int32", low=0),
            },
            ("deviceIndex", "interfaceType", "networkCardIndex"),
        ),
        maxItems=150,
    ),
    aws.NETWORK_INTERFACES,
)

_SPEC = record(
    "How machines are bought and set up.",
    {
        **_SELECTORS,
        "amiFamily": choice(
            "Which way of setting up a machine its image expects.",
            ("AL2", "AL2023", "Bottlerocket", "Custom", "Windows2019", "Windows2022", "Windows2025"),
        ),
        "associatePublicIPAddress": boolean("Whether machines get a public address."),
        "blockDeviceMappings": with_rules(
            array(
                "Disks of the machines.",
                record(
                    "One disk.",
                    {
                        "deviceName": string("Name of the device."),
                        "ebs": _EBS,
                        "rootVolume": boolean("Whether this is the disk that the system and pods live on."),
                    },
                ),
                maxItems=50,
            ),
            [aws.ONE_ROOT_VOLUME],
        ),
        "connectionTracking": _CONNECTION_TRACKING,
        "context": string("Reserved word of the launch call."),
        "cpuOptions": record(
            "Options of the processor.", {"nestedVirtualization": choice("Whether machines may run virtual machines.", _ON_OFF)}
        ),
        "detailedMonitoring": boolean("Whether metrics come each minute."),
        "instanceProfile": with_rules(string("Instance profile of the machines; instead of role."), [aws.INSTANCE_PROFILE]),
        "instanceStorePolicy": choice("What to do with local disks.", ("RAID0",)),
        "ipPrefixCount": integer("Address prefixes of the first interface.", "int32", low=0),
        "kubelet": _KUBELET,
        "metadataOptions": _METADATA_OPTIONS,
        "networkInterfaces": _NETWORK_INTERFACES,
        "placementGroupSelector": with_rules(
            record(
                "Which placement group machines start in.",
                {"id": string("Id of the group.", pattern="^pg-[0-9a-z]+$"), "name": string("Name of the group.", minLength=1)},
            ),
            aws.PLACEMENT_GROUP,
        ),
        "role": with_rules(string("Role of the machines; an instance profile is made for it."), [aws.ROLE]),
        "tags": with_rules(string_map("Tags for what is bought."), aws.TAGS),
        "userData": string("Start-up data that is merged with what the family needs."),
    },
    ("amiSelectorTerms", "securityGroupSelectorTerms", "subnetSelectorTerms"),
)

_STATUS = record(
    "What the selectors found.",
    {
        "amis": array(
            "Images in use.",
            record(
                "One image.",
                {
                    "deprecated": boolean("Whether its owner has deprecated it."),
                    "id": string("Id of the image."),
                    "name": string("Name of the image."),
                    "requirements": array(
                        "Which instance types it suits.",
                        record(
                            "One condition on a label of the machine.",
                            {
                                "key": string("Label that is asked for."),
                                "operator": string("How the label's value relates to the listed values."),
                                "values": parts.atomic("Values the operator needs.", {"type": "string"}),
                            },
                            ("key", "operator"),
                        ),
                    ),
                },
                ("id", "requirements"),
            ),
        ),
        "capacityReservations": array(
            "Capacity reservations in use.",
            record(
                "One reservation.",
                {
                    "availabilityZone": string("Zone of the reservation."),
                    "endTime": moment("When it ends; it may have no end."),
                    "id": string("Id of the reservation.", pattern="^cr-[0-9a-z]+$"),
                    "instanceMatchCriteria": choice("How instances get into it.", ("open", "targeted")),
                    "instanceType": string("Instance type that is reserved."),
                    "interruptible": boolean("Whether it may be taken back."),
                    "ownerID": string("Account that owns it.", pattern="^[0-9]{12}$"),
                    "reservationType": choice("Kind of reservation.", ("default", "capacity-block"), default="default"),
                    "state": choice("Whether it is about to end.", ("active", "expiring"), default="active"),
                },
                ("availabilityZone", "id", "instanceMatchCriteria", "instanceType", "ownerID"),
            ),
        ),
        "conditions": parts.conditions(keyed=False),
        "instanceProfile": string("Instance profile in use."),
        "securityGroups": array(
            "Security groups in use.",
            record("One group.", {"id": string("Id of the group."), "name": string("Name of the group.")}, ("id",)),
        ),
        "subnets": array(
            "Subnets in use.",
            record(
                "One subnet.",
                {"id": string("Id of the subnet."), "zone": string("Its zone."), "zoneID": string("Its zone's id.")},
                ("id", "zone"),
            ),
        ),
    },
)

EC2_NODE_CLASS = parts.crd(
    "karpenter.k8s.aws",
    "EC2NodeClass",
    "ec2nodeclasses",
    short_names=("ec2nc", "ec2ncs"),
    description="How machines are bought from EC2 and set up.",
    columns=[parts.READY, parts.AGE, parts.column("Role", ".spec.role", wide=True)],
    spec=with_rules(_SPEC, aws.SPEC),
    status=_STATUS,
    required=(),
)
