"""What every flag of `kubewright run` does, in a line; names, forms and defaults are `operator.options`'."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

KARPENTERS: Mapping[str, str] = {
    "cluster-name": "the cluster's name at the cloud; AWS needs it",
    "vm-memory-overhead-percent": "share of a machine's memory that the hypervisor keeps",
    "batch-max-duration": "a batch of pods is closed this long after its first",
    "batch-idle-duration": "or when no more came for so long",
    "preference-policy": "Respect or Ignore what pods merely prefer",
    "min-values-policy": "Strict, or BestEffort: buy with fewer values than minValues asks for, rather than not",
    "ignore-dra-requests": "pods with resourceClaims are planned as if they had none",
    "feature-gates": "of alpha features",
    "metrics-port": "for /metrics",
    "health-probe-port": "for /healthz and /readyz",
    "kube-client-qps": "calls a second to the API server",
    "kube-client-burst": "and at once",
    "disable-leader-election": "run without a lease: only where nobody else runs",
    "leader-election-name": "name of the lease",
    "leader-election-namespace": "and its namespace; the pod's own when left out",
    "disable-cluster-state-observability": "no metrics of every pod and node",
    "log-level": "debug, info or error",
    "log-output-paths": "files, stdout or stderr, with commas between",
    "log-error-output-paths": "the same, for mistakes in logging itself",
    "kubeconfig": "path; KUBECONFIG, ~/.kube/config or the pod's account when left out",
    "context": "of the kubeconfig; its current one when left out",
}
OURS: Mapping[str, str] = {
    "scheduler-config": "kube-scheduler's configuration, for spread that pods do not write themselves",
    "price-file": "YAML, JSON or CSV with prices and commitments of your own, see docs/prices.md",
    "packing": "first-fit, or improve: look for a cheaper plan",
    "packing-budget": "time to look for one, for a small batch",
    "packing-budget-most": "what that grows to with the batch",
    "packing-node-cost": "dollars an hour that a node costs beyond its price: licences, agents",
    "packing-node-cpu": "largest machine, in vCPU, for pods that a smaller one takes; 0 for any",
    "packing-workload-share": "largest share of a workload's pods on one new node, where that is not dearer; 1 for any",
    "packing-nodes": "among plans of like cost: cheapest, fewest or most nodes",
    "packing-nodes-within": "share by which such a plan may be dearer",
    "packing-slack": "share of a new node that is left free",
    "launch-price-share": "share by which a type of the list may break the plan's price",
    "launch-least-pools": "spot pools that the list keeps open all the same",
    "freeze": "no voluntary disruption in the whole cluster",
    "consolidation-balance": "a move must gain this fraction (1/n) of what it disturbs, in pools that are Balanced",
    "settled-after": "younger nodes, and pods that just moved, cost more to move",
    "drift-surge": "nodes beyond a pool's limits while drifted ones are replaced",
    "drift-failed-joins": "so many machines in a row that do not join stop the drift of their pool",
    "unused-after": "a node that no pod came to for so long was bought in vain; its workload is not bought for in a loop",
    "spend-cap": "dollars an hour that all machines together may cost; 0 for no cap",
    "purchases-per-hour": "machines that may be bought within an hour; 0 for no cap",
    "take-over": "go on although a Karpenter runs here",
    "shadow": "decide and say, buy and end nothing",
    "record": "directory for a record of every scheduling pass, for `kubewright replay`",
    "record-files": "records that are kept",
    "record-bytes": "of them together",
}
AWS: Mapping[str, str] = {
    "cluster-endpoint": "URL of the API server that machines join; asked of EKS when left out",
    "cluster-ca-bundle": "its certificate authority, base64; asked of EKS when left out",
    "interruption-queue": "name of the SQS queue with interruption notices; none when left out",
    "reserved-enis": "network interfaces that pods cannot use [0]",
    "isolated-vpc": "nothing outside the VPC is called: no price list, no EKS [false]",
    "disable-dry-run": "NodeClasses are not tried by dry runs of a launch [false]",
    "enable-zonal-shift": "nothing is launched in zones that ARC shifts the cluster away from [false]",
    "zonal-shift-evacuation": "nodes of a shifted zone to replace at a time [0, they stay]",
    "replace-on-rebalance": "replace a spot node when EC2 recommends it, not only when EC2 takes it [false]",
    "ami-refresh-interval": "how often AMIs are looked up [1m]",
    "subnet-refresh-interval": "how often subnets are [1m]",
}


def default(field: str) -> str:
    """The value a flag has when nobody sets it, as one would write it."""
    from kubewright.api import duration, quantity  # noqa: PLC0415 (so that other commands are quick)
    from kubewright.operator.options import STEPS_PER_S, Options  # noqa: PLC0415

    value: Any = Options()
    for name in field.split("."):
        value = getattr(value, name)
    match field, value:
        case "leader_election" | "observability", bool():
            return str(not value).lower()
        case "settings.packing_steps" | "settings.packing_steps_most", int():
            return duration.show(timedelta(seconds=value / STEPS_PER_S))
        case "record_bytes", int():
            return quantity.show(value * quantity.ONE, binary=True)
        case "settings.prices", _:
            return "none"
        case "settings.feature_gates", _:
            gates = msgspec.structs.asdict(value)
            return ", ".join(f"{''.join(w.title() for w in k.split('_'))}={str(v).lower()}" for k, v in gates.items())
        case _, bool():
            return str(value).lower()
        case _, timedelta():
            return duration.show(value)
        case _, float():
            return f"{value:g}"
        case _:
            return str(value) or "none"


def told(name: str, field: str) -> tuple[str, str]:
    """A line of help."""
    return f"--{name}", f"{KARPENTERS.get(name) or OURS[name]} [{default(field)}]"
