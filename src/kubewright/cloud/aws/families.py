"""AMI families: what a machine of each starts with, and which count of pods its kubelet is sized for.

Source: spec/aws 4.1.
"""

import msgspec

from kubewright.api.aws import BlockDevice, BlockDeviceMapping


def _disk(device: str, size: str) -> BlockDeviceMapping:
    return BlockDeviceMapping(device_name=device, ebs=BlockDevice(encrypted=True, volume_type="gp3", volume_size=size))


class Family(msgspec.Struct, frozen=True):
    name: str
    block_devices: tuple[BlockDeviceMapping, ...]
    ephemeral_device: str
    """Whose disk holds pods' files; "" when the image decides."""
    eni_limited_pods: bool = True
    honours_pods_per_core: bool = True
    reserves_for_eni_pods: bool = True
    """kube-reserved memory is sized for the ENI-limited count even when maxPods is set."""
    windows_build: str = ""


FAMILIES = {
    family.name: family
    for family in (
        Family("AL2", (_disk("/dev/xvda", "20Gi"),), "/dev/xvda"),
        Family("AL2023", (_disk("/dev/xvda", "20Gi"),), "/dev/xvda"),
        Family(
            "Bottlerocket",
            (_disk("/dev/xvda", "4Gi"), _disk("/dev/xvdb", "20Gi")),
            "/dev/xvdb",
            honours_pods_per_core=False,
            reserves_for_eni_pods=False,
        ),
        Family("Custom", (), ""),
        *(
            Family(
                name,
                (_disk("/dev/sda1", "50Gi"),),
                "/dev/sda1",
                eni_limited_pods=False,
                reserves_for_eni_pods=False,
                windows_build=build,
            )
            for name, build in (
                ("Windows2019", "10.0.17763"),
                ("Windows2022", "10.0.20348"),
                ("Windows2025", "10.0.26100"),
            )
        ),
    )
}
