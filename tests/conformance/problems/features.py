"""The features of scheduling that problems are made of, and who can judge each."""

FEATURES: dict[str, str] = {
    "node-selector": "",
    "node-affinity": "several terms are OR-ed",
    "numbers": "Gt and Lt on a numeric label",
    "preference": "preferred node affinity",
    "ignore-preferences": "the policy that ignores preferences",
    "taint": "NoSchedule and NoExecute",
    "prefer-no-schedule": "",
    "startup-taint": "must not be tolerated by anybody",
    "zone-spread": "",
    "host-spread": "",
    "label-spread": "over a custom label with several values a pool (capacity spread)",
    "soft-spread": "ScheduleAnyway",
    "min-domains": "",
    "match-label-keys": "",
    "node-affinity-policy": "Ignore",
    "node-taints-policy": "Honor",
    "default-spread": "of the cluster, for pods that write none",
    "affinity": "",
    "anti-affinity": "",
    "inverse-anti-affinity": "of pods that run already",
    "preferred-pods": "preferred pod affinity and anti-affinity",
    "namespaces": "a list",
    "namespace-selector": "",
    "host-port": "with addresses and protocols",
    "bound-volume": "lies in a zone",
    "late-volume": "WaitForFirstConsumer within allowedTopologies",
    "ephemeral-volume": "",
    "attach-limit": "of existing nodes",
    "attach-limit-new": "of instance types",
    "daemon": "overhead by instance type",
    "daemon-company": "pods that must be beside a DaemonSet's pod, or must not, and the other way about",
    "init-container": "",
    "sidecar": "restartable init containers",
    "pod-level": "resources of the whole pod",
    "resize": "in place, of pods that run",
    "overhead": "of a runtime class",
    "extended-resource": "",
    "hugepages": "",
    "priority": "",
    "min-values": "Strict",
    "min-values-relaxed": "BestEffort",
    "limits": "",
    "node-limits": "how many nodes",
    "weights": "",
    "reserved": "reserved capacity",
    "dry-offering": "not for sale at present",
    "existing": "",
    "unmanaged": "an existing node that nobody of us bought",
    "in-flight": "a NodeClaim without a Node",
    "starting": "a Node that is not initialized yet",
    "leaving": "pods of a node that is going away",
    "static": "a NodePool with replicas",
    "bystander": "pods that are none of our business: gated, nominated, a daemon's, a mirror's, finished",
    "real-catalogue": "types of the embedded catalogue of AWS",
}
"""Feature → a word about it."""

UNKNOWN_TO_THE_REFERENCE = {
    "attach-limit-new": "its input has no attach limits of instance types; the validator judges ours, and ours without them it",
    "default-spread": "1.14.1 has no scheduler-config; its input has the constraints written out on every pod",
}
"""Feature → how it is judged all the same."""

NOT_ON_A_PLANE = frozenset(
    {"bystander", "in-flight", "leaving", "min-values-relaxed", "resize", "starting", "static", "unmanaged", "attach-limit-new"}
)
"""Features that say nothing to kube-scheduler, or that a plane without our operator cannot be put into."""
