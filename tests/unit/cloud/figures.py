"""Published figures, never from our own formulas."""

import csv
from pathlib import Path

PODS_SOURCE = "awslabs/amazon-eks-ami files/eni-max-pods.txt, generated 2023-01-25"
PODS = {
    "a1.medium": 8,
    "c3.8xlarge": 234,
    "c4.large": 29,
    "c5.18xlarge": 737,
    "c5.9xlarge": 234,
    "c6g.medium": 8,
    "d3.2xlarge": 18,
    "d3en.12xlarge": 89,
    "g4dn.16xlarge": 58,
    "g4dn.xlarge": 29,
    "g5.48xlarge": 345,
    "hpc6a.48xlarge": 100,
    "hpc6id.32xlarge": 51,
    "i3.large": 29,
    "i4i.32xlarge": 737,
    "inf1.24xlarge": 321,
    "inf1.xlarge": 38,
    "is4gen.medium": 8,
    "m1.small": 8,
    "m2.2xlarge": 118,
    "m4.large": 20,
    "m5.large": 29,
    "m5.metal": 737,
    "m6i.xlarge": 58,
    "p4d.24xlarge": 737,
    "r5.2xlarge": 58,
    "t2.xlarge": 44,
    "t3.large": 35,
    "t3.medium": 17,
    "t3.micro": 4,
    "t3.small": 11,
    "t3a.small": 8,
    "t4g.nano": 4,
    "trn1.2xlarge": 58,
    "vt1.3xlarge": 58,
    "x1e.xlarge": 29,
    "x2iezn.4xlarge": 234,
    "z1d.3xlarge": 234,
}

PUBLISHED = tuple(csv.DictReader((Path(__file__).parent / "published.csv").read_text().splitlines()))
"""Allocatable cpu and memory, pods, and pod ENIs of AL2023 with its defaults; "" where a source does not name the figure.

Memory there is less the 7.5 % that Karpenter assumes of the hypervisor by default. Left out: i8ge.48xlarge, where eni-max-pods
counts interfaces of both network cards, and Karpenter those of the first.
"""

LABELS = {
    "a1.medium": {"instance-ebs-bandwidth": "3500", "instance-network-bandwidth": "500", "instance-hypervisor": "nitro"},
    "a1.metal": {"instance-hypervisor": "", "instance-cpu-manufacturer": "aws", "instance-memory": "32768"},
    "c1.medium": {"instance-cpu-sustained-clock-speed-mhz": "0", "instance-hypervisor": "xen", "instance-generation": "1"},
    "c3.8xlarge": {"instance-network-bandwidth": "10000", "instance-cpu-sustained-clock-speed-mhz": "2800"},
    "c4.8xlarge": {"instance-cpu": "36", "instance-ebs-bandwidth": "4000", "instance-network-bandwidth": "10000"},
    "c5.large": {"instance-category": "c", "instance-generation": "5", "instance-size": "large", "instance-cpu": "2"},
}
"""From the same page, under karpenter.k8s.aws/."""
