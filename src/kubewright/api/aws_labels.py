"""What AWS adds to the vocabulary of labels and resources. Source: spec/aws 0.1, appendix L."""

from collections.abc import Mapping

from kubewright.api import labels

GROUP = "karpenter.k8s.aws"

CAPACITY_RESERVATION_ID = "karpenter.k8s.aws/capacity-reservation-id"
CAPACITY_RESERVATION_TYPE = "karpenter.k8s.aws/capacity-reservation-type"
CAPACITY_RESERVATION_INTERRUPTIBLE = "karpenter.k8s.aws/capacity-reservation-interruptible"
INSTANCE_HYPERVISOR = "karpenter.k8s.aws/instance-hypervisor"
INSTANCE_ENCRYPTION = "karpenter.k8s.aws/instance-encryption-in-transit-supported"
INSTANCE_CATEGORY = "karpenter.k8s.aws/instance-category"
INSTANCE_CAPABILITY_FLEX = "karpenter.k8s.aws/instance-capability-flex"
INSTANCE_FAMILY = "karpenter.k8s.aws/instance-family"
INSTANCE_GENERATION = "karpenter.k8s.aws/instance-generation"
INSTANCE_SIZE = "karpenter.k8s.aws/instance-size"
INSTANCE_LOCAL_NVME = "karpenter.k8s.aws/instance-local-nvme"
INSTANCE_CPU = "karpenter.k8s.aws/instance-cpu"
INSTANCE_CPU_MANUFACTURER = "karpenter.k8s.aws/instance-cpu-manufacturer"
INSTANCE_CPU_CLOCK_MHZ = "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz"
INSTANCE_MEMORY = "karpenter.k8s.aws/instance-memory"
INSTANCE_EBS_BANDWIDTH = "karpenter.k8s.aws/instance-ebs-bandwidth"
INSTANCE_NETWORK_BANDWIDTH = "karpenter.k8s.aws/instance-network-bandwidth"
INSTANCE_GPU_NAME = "karpenter.k8s.aws/instance-gpu-name"
INSTANCE_GPU_MANUFACTURER = "karpenter.k8s.aws/instance-gpu-manufacturer"
INSTANCE_GPU_COUNT = "karpenter.k8s.aws/instance-gpu-count"
INSTANCE_GPU_MEMORY = "karpenter.k8s.aws/instance-gpu-memory"
INSTANCE_ACCELERATOR_NAME = "karpenter.k8s.aws/instance-accelerator-name"
INSTANCE_ACCELERATOR_MANUFACTURER = "karpenter.k8s.aws/instance-accelerator-manufacturer"
INSTANCE_ACCELERATOR_COUNT = "karpenter.k8s.aws/instance-accelerator-count"
INSTANCE_TENANCY = "karpenter.k8s.aws/instance-tenancy"
PLACEMENT_GROUP_ID = "karpenter.k8s.aws/placement-group-id"
PLACEMENT_GROUP_PARTITION = "karpenter.k8s.aws/placement-group-partition"
ZONE_ID = "topology.k8s.aws/zone-id"

EC2_NODE_CLASS = "karpenter.k8s.aws/ec2nodeclass"
"""On nodes, but not well-known: instance types do not answer for it."""

EC2_NODE_CLASS_HASH = "karpenter.k8s.aws/ec2nodeclass-hash"
EC2_NODE_CLASS_HASH_VERSION = "karpenter.k8s.aws/ec2nodeclass-hash-version"
TAGGED = "karpenter.k8s.aws/tagged"
INSTANCE_PROFILE_NAME = "karpenter.k8s.aws/instance-profile-name"
CLUSTER_NAME_TAGGED = "compatibility.karpenter.k8s.aws/cluster-name-tagged"
TERMINATION_FINALIZER = "karpenter.k8s.aws/termination"

WELL_KNOWN: frozenset[str] = labels.WELL_KNOWN | {
    CAPACITY_RESERVATION_ID,
    CAPACITY_RESERVATION_TYPE,
    CAPACITY_RESERVATION_INTERRUPTIBLE,
    INSTANCE_HYPERVISOR,
    INSTANCE_ENCRYPTION,
    INSTANCE_CATEGORY,
    INSTANCE_CAPABILITY_FLEX,
    INSTANCE_FAMILY,
    INSTANCE_GENERATION,
    INSTANCE_SIZE,
    INSTANCE_LOCAL_NVME,
    INSTANCE_CPU,
    INSTANCE_CPU_MANUFACTURER,
    INSTANCE_CPU_CLOCK_MHZ,
    INSTANCE_MEMORY,
    INSTANCE_EBS_BANDWIDTH,
    INSTANCE_NETWORK_BANDWIDTH,
    INSTANCE_GPU_NAME,
    INSTANCE_GPU_MANUFACTURER,
    INSTANCE_GPU_COUNT,
    INSTANCE_GPU_MEMORY,
    INSTANCE_ACCELERATOR_NAME,
    INSTANCE_ACCELERATOR_MANUFACTURER,
    INSTANCE_ACCELERATOR_COUNT,
    INSTANCE_TENANCY,
    PLACEMENT_GROUP_ID,
    PLACEMENT_GROUP_PARTITION,
    ZONE_ID,
}
WELL_KNOWN_VALUES: Mapping[str, frozenset[str]] = {
    **labels.WELL_KNOWN_VALUES,
    INSTANCE_TENANCY: frozenset({"dedicated", "default"}),
}
RESTRICTED_DOMAINS: frozenset[str] = labels.RESTRICTED_DOMAINS | {GROUP}
ALIASES: Mapping[str, str] = {**labels.ALIASES, "topology.ebs.csi.aws.com/zone": labels.ZONE}

POD_ENI = "vpc.amazonaws.com/pod-eni"
EFA = "vpc.amazonaws.com/efa"
PRIVATE_IPV4 = "vpc.amazonaws.com/PrivateIPv4Address"
NVIDIA_GPU = "nvidia.com/gpu"
AMD_GPU = "amd.com/gpu"
NEURON = "aws.amazon.com/neuron"
NEURON_CORE = "aws.amazon.com/neuroncore"
HABANA_GAUDI = "habana.ai/gaudi"
WELL_KNOWN_RESOURCES: frozenset[str] = labels.WELL_KNOWN_RESOURCES | {
    POD_ENI,
    EFA,
    PRIVATE_IPV4,
    NVIDIA_GPU,
    AMD_GPU,
    NEURON,
    NEURON_CORE,
    HABANA_GAUDI,
}

_OWN = frozenset(key for key in WELL_KNOWN if key.startswith(GROUP + "/"))
USABLE: tuple[str, ...] = tuple(sorted(_OWN | {EC2_NODE_CLASS}))
"""Keys of AWS's domain that a NodePool or NodeClaim may name."""
USABLE_IN_OVERLAYS: tuple[str, ...] = tuple(
    sorted(
        set(USABLE)
        - {
            CAPACITY_RESERVATION_ID,
            CAPACITY_RESERVATION_TYPE,
            CAPACITY_RESERVATION_INTERRUPTIBLE,
            INSTANCE_TENANCY,
            PLACEMENT_GROUP_ID,
            PLACEMENT_GROUP_PARTITION,
        }
    )
)
