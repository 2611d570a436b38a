"""NodePools, NodeClaims and EC2NodeClasses with one to three things changed: the same ones every time for a seed.

Some changes are harmless, most are not, and some only matter against the object that was stored before.
"""

import copy
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

Obj = dict[str, Any]

REFERENCE = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
REQUIREMENTS = [
    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]},
    {"key": "karpenter.k8s.aws/instance-cpu", "operator": "Gt", "values": ["3"]},
    {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a", "b"], "minValues": 2},
    {"key": "example.com/team", "operator": "Exists"},
]
TAINTS = [{"key": "example.com/dedicated", "value": "batch", "effect": "NoSchedule"}]

NODE_POOL: Obj = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "base"},
    "spec": {
        "weight": 10,
        "limits": {"cpu": "1000", "memory": "1000Gi"},
        "disruption": {
            "consolidationPolicy": "WhenEmpty",
            "consolidateAfter": "30s",
            "budgets": [
                {"nodes": "10%", "reasons": ["Empty", "Drifted"]},
                {"nodes": "0", "schedule": "0 9 * * *", "duration": "8h"},
            ],
        },
        "template": {
            "metadata": {"labels": {"team": "a"}, "annotations": {"owner": "me"}},
            "spec": {
                "nodeClassRef": REFERENCE,
                "requirements": REQUIREMENTS,
                "taints": TAINTS,
                "startupTaints": TAINTS,
                "expireAfter": "720h",
                "terminationGracePeriod": "1h30m",
            },
        },
    },
}
NODE_CLAIM: Obj = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodeClaim",
    "metadata": {"name": "base"},
    "spec": {
        "nodeClassRef": REFERENCE,
        "requirements": [*REQUIREMENTS, {"key": "karpenter.sh/nodepool", "operator": "In", "values": ["base"]}],
        "resources": {"requests": {"cpu": "1", "memory": "2Gi"}},
        "taints": TAINTS,
        "startupTaints": TAINTS,
        "expireAfter": "Never",
        "terminationGracePeriod": "10m",
    },
}
EC2_NODE_CLASS: Obj = {
    "apiVersion": "karpenter.k8s.aws/v1",
    "kind": "EC2NodeClass",
    "metadata": {"name": "base"},
    "spec": {
        "role": "nodes",
        "amiFamily": "AL2023",
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": [{"tags": {"discovery": "x"}}, {"id": "subnet-1"}],
        "securityGroupSelectorTerms": [{"tags": {"discovery": "x"}}, {"name": "nodes"}],
        "capacityReservationSelectorTerms": [{"id": "cr-1"}, {"ownerID": "123456789012", "instanceMatchCriteria": "open"}],
        "placementGroupSelector": {"name": "pg"},
        "tags": {"team": "a"},
        "metadataOptions": {"httpTokens": "optional"},
        "connectionTracking": {"udpTimeout": 45},
        "networkInterfaces": [
            {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
            {"networkCardIndex": 1, "deviceIndex": 1, "interfaceType": "efa-only"},
        ],
        "blockDeviceMappings": [
            {"deviceName": "/dev/xvda", "rootVolume": True, "ebs": {"volumeSize": "100Gi", "volumeType": "gp3", "iops": 3000}},
            {"deviceName": "/dev/xvdb", "ebs": {"snapshotID": "snap-1", "volumeInitializationRate": 100}},
        ],
        "kubelet": {
            "maxPods": 50,
            "kubeReserved": {"cpu": "100m"},
            "evictionSoft": {"memory.available": "5%"},
            "evictionSoftGracePeriod": {"memory.available": "1m"},
            "imageGCHighThresholdPercent": 80,
            "imageGCLowThresholdPercent": 60,
        },
    },
}

ANY: list[Any] = [None, "", "x", 0, -1, 1, 2, 51, 101, 1.5, True, [], {}, ["x"], {"x": "y"}, "Never", "5", "-5", "1h"]
ATOMS: dict[str, list[Any]] = {
    "key": [
        "karpenter.sh/nodepool",
        "karpenter.sh/other",
        "sub.karpenter.sh/x",
        "karpenter.sh",
        "kubernetes.io/hostname",
        "karpenter.k8s.aws/ec2nodeclass",
        "karpenter.k8s.aws/other",
        "x.karpenter.k8s.aws/y",
        "a b",
        "a/b/c",
        "-a",
        "x" * 316,
        "x" * 317,
        "node.kubernetes.io/instance-type",
    ],
    "operator": ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte", "in", "Eq"],
    "values": [["1"], ["0"], ["-1"], ["+1"], ["1", "2"], ["x"], [" 1"], ["1_0"], [""], [], ["9" * 19], ["é"], [1]],
    "minValues": [1, 2, 3, 50, 51, 0],
    "effect": ["NoSchedule", "PreferNoSchedule", "NoExecute", "", "noschedule"],
    "value": ["", "a b", "x/y", "a/b/c", "v"],
    "expireAfter": ["1h30m", "90s", "1d", "1.5h", "never", "h"],
    "consolidateAfter": ["1h30m", "Never", "-1s", "0s", "1d"],
    "terminationGracePeriod": ["Never", "1h", "0s", "10"],
    "consolidationPolicy": ["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced", "WhenUnderutilized"],
    "nodes": ["0", "100%", "101%", "-1", "5%%", "1000"],
    "schedule": ["@daily", "@dailyx", "* * * * *", "* * * *", "@every 5m", "a b c d e"],
    "duration": ["8h", "90m", "1h30m", "1h30m0s", "30s", "1d"],
    "reasons": [["Empty"], ["Empty", "Empty"], ["Expired"], [], ["Underutilized", "Drifted"]],
    "weight": [1, 100, 101, 0, "10"],
    "replicas": [0, 1, "1"],
    "limits": [{"nodes": 10}, {"cpu": "x"}, {"cpu": -1}, {"cpu": "1e3"}, {"cpu": "1Gib"}, {"nodes": 1, "cpu": 1}],
    "labels": [
        {"karpenter.sh/nodepool": "x"},
        {"karpenter.sh/capacity-type": "spot"},
        {"karpenter.sh/other": "x"},
        {"kubernetes.io/hostname": "x"},
        {"karpenter.k8s.aws/instance-family": "m5"},
        {"karpenter.k8s.aws/other": "x"},
        {"a": "x" * 63},
        {"a": "x" * 64},
        {"a": "-"},
        {"": "x"},
        {f"k{n}": "" for n in range(101)},
    ],
    "group": ["karpenter.k8s.aws", "a/b", "", "karpenter.kwok.sh"],
    "kind": ["EC2NodeClass", "", "KWOKNodeClass"],
    "name": ["default", "", "other"],
    "timeAdded": ["2024-01-01T00:00:00Z", "yesterday"],
    "alias": [
        "al2@v1",
        "al2023@latest",
        "bottlerocket@1",
        "windows2022@latest",
        "windows2022@1",
        "windows2019",
        "ubuntu@1",
        "@x",
        "al2023",
        "x" * 31,
    ],
    "amiFamily": ["AL2", "AL2023", "Bottlerocket", "Custom", "Windows2022", "Ubuntu"],
    "id": ["subnet-1", "x-subnet-1", "sg-1", "ami-1", "cr-1", "pg-1", "x", ""],
    "tags": [
        {"": "x"},
        {"a": ""},
        {"karpenter.sh/nodepool": "x"},
        {"karpenter.sh/nodeclaim": "x"},
        {"karpenter.k8s.aws/ec2nodeclass": "x"},
        {"eks:eks-cluster-name": "x"},
        {"kubernetes.io/cluster/a": "owned"},
        {f"t{n}": "x" for n in range(21)},
    ],
    "amiSelectorTerms": [
        [],
        [{}],
        [{"id": "ami-1"}],
        [{"id": "ami-1", "owner": "self"}, {"name": "x"}],
        [{"alias": "al2023@latest", "tags": {"a": "b"}}],
        [{"alias": "al2023@latest"}, {"id": "ami-1"}],
        [{"owner": "self"}],
        [{"ssmParameter": "x", "id": "ami-1"}],
    ],
    "subnetSelectorTerms": [
        [],
        [{}],
        [{"id": "subnet-1", "tags": {"a": "b"}}],
        [{"id": "subnet-1", "tags": {"a": "b"}}, {"id": "subnet-2"}],
    ],
    "securityGroupSelectorTerms": [
        [],
        [{"id": "sg-1", "name": "x"}],
        [{"name": "x", "tags": {"a": "b"}}],
        [{"id": "sg-1"}, {"name": "x"}],
    ],
    "capacityReservationSelectorTerms": [
        [],
        [{"id": "cr-1", "ownerID": "123456789012"}],
        [{"ownerID": "123456789012"}],
        [{"tags": {"a": "b"}}],
    ],
    "systemReserved": [{"cpu": "-1"}, {"gpu": "1"}, {"memory": "1Gi"}],
    "ownerID": ["123456789012", "1"],
    "volumeSize": ["59000Gi", "59001Gi", "64Ti", "64T", "65T", "0Gi", "Ti", "1.5Gi"],
    "volumeType": ["gp3", "io3"],
    "volumeInitializationRate": [99, 100, 300, 301],
    "snapshotID": ["", "snap-1"],
    "httpPutResponseHopLimit": [0, 1, 64, 65],
    "httpTokens": ["required", "none"],
    "udpTimeout": [29, 30, 60, 61],
    "interfaceType": ["interface", "efa-only", "efa"],
    "networkCardIndex": [0, 1, -1],
    "deviceIndex": [0, 1, -1],
    "kubeReserved": [{"cpu": "-1"}, {"gpu": "1"}, {"cpu": "x"}, {"pid": "100"}],
    "evictionHard": [{"memory.available": "5%"}, {"memory.available": "101%"}, {"x": "5%"}, {"nodefs.available": "10Gi"}],
    "evictionSoft": [{"nodefs.available": "5%"}, {}, {"memory.available": "5%", "x": "1"}],
    "evictionSoftGracePeriod": [{"nodefs.available": "1m"}, {}, {"x": "1m"}],
    "imageGCHighThresholdPercent": [60, 50, 100, 101],
    "maxPods": [-1, 0, "50"],
    "role": ["", "x"],
    "instanceProfile": ["", "x"],
}
"""Field → values that are just right or just wrong for it."""


class Mutant(NamedTuple):
    """`old` is what is stored before, for an update; None for a create."""

    name: str
    old: Obj | None
    new: Obj


def mutants(base: Obj, count: int, seed: int) -> Iterator[Mutant]:
    """`count` different mutants; every fourth one is an update of the base."""
    chance = random.Random(seed)
    seen: list[Obj] = [base]
    while len(seen) <= count:
        new = copy.deepcopy(base)
        done = [_change(new, chance) for _ in range(chance.choice([1, 1, 1, 2, 3]))]
        if new not in seen:
            seen.append(new)
            number = len(seen) - 1
            yield Mutant(f"{base['kind']}-{number}: {', '.join(done)}", base if number % 4 == 0 else None, new)


def _change(obj: Obj, chance: random.Random) -> str:
    places = list(_places(obj["spec"], "spec", None))
    path, holder, key = chance.choice(places)
    field = key if isinstance(key, str) else path.rsplit(".", 1)[-1].partition("[")[0]
    how = chance.choice(["atom", "atom", "atom", "atom", "any", "drop", "add", "unknown", "twice"])
    if how == "drop":
        del holder[key]
    elif how == "add":
        # a known field where it may or may not belong
        mapping = holder if isinstance(holder, dict) else obj["spec"]
        field = chance.choice(sorted(ATOMS))
        mapping[field] = copy.deepcopy(chance.choice(ATOMS[field]))
        path = f"{path}+{field}"
    elif how == "unknown":
        (holder if isinstance(holder, dict) else obj["spec"])["unheard"] = 1
    elif how == "twice" and isinstance(holder[key], list) and holder[key]:
        holder[key].append(copy.deepcopy(holder[key][0]))
    else:
        pool = ATOMS.get(field, ANY) if how == "atom" else ANY
        holder[key] = copy.deepcopy(chance.choice(pool))
    return f"{how} {path}"


def _places(value: Any, path: str, _: Any) -> Iterator[tuple[str, Any, Any]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, held in inner:
        here = f"{path}.{key}" if isinstance(key, str) else f"{path}[{key}]"
        yield here, value, key
        yield from _places(held, here, None)


def all_mutants() -> list[Mutant]:
    """100 NodePools, 100 NodeClaims and 100 EC2NodeClasses."""
    return [
        *mutants(NODE_POOL, 100, 1),
        *mutants(NODE_CLAIM, 100, 2),
        *mutants(EC2_NODE_CLASS, 100, 3),
    ]
