"""Which fields of a pod and of a NodePool the solver takes into account: a closed table, so that nothing is ignored in silence.

`HANDLED` fields are obeyed; `REFUSED` fields make the pod unplaceable with a reason; `IRRELEVANT` fields cannot change where
kube-scheduler puts a pod, and say why not.
"""

from collections.abc import Mapping

from kubewright.api.core import PodSpec
from kubewright.scheduling.refusal import Because, Refusal

HANDLED = "handled"
REFUSED = "refused"

POD_SPEC: Mapping[str, str] = {
    "affinity": HANDLED,
    "containers": HANDLED,
    "initContainers": HANDLED,
    "nodeName": HANDLED,
    "nodeSelector": HANDLED,
    "overhead": HANDLED,
    "priority": HANDLED,
    "resourceClaims": REFUSED,
    "resources": HANDLED,
    "schedulingGates": HANDLED,
    "schedulingGroup": REFUSED,
    "workloadRef": REFUSED,
    "tolerations": HANDLED,
    "topologySpreadConstraints": HANDLED,
    "volumes": HANDLED,
    "activeDeadlineSeconds": "a limit on run time",
    "automountServiceAccountToken": "inside the pod",
    "dnsConfig": "inside the pod",
    "dnsPolicy": "inside the pod",
    "enableServiceLinks": "inside the pod",
    "evictionResponders": "about the end of the pod",
    "ephemeralContainers": "added to pods that run, may not ask for resources",
    "hostAliases": "inside the pod",
    "hostIPC": "a matter of admission",
    "hostNetwork": "the API server gives every port of such a pod a hostPort, and those are handled",
    "hostPID": "a matter of admission",
    "hostUsers": "kubelet decides",
    "hostname": "the pod's own name",
    "hostnameOverride": "the pod's own name",
    "imagePullSecrets": "kubelet pulls",
    "os": "kube-scheduler does not read it; kubelet compares it with its own",
    "preemptionPolicy": "whether it may push others off, which never needs a new node",
    "priorityClassName": "admission turns it into priority, which is handled",
    "readinessGates": "about being ready, after being placed",
    "restartPolicy": "after being placed",
    "runtimeClassName": "admission turns it into overhead, nodeSelector and tolerations, which are handled",
    "schedulerName": "the scheduler that marked the pod unschedulable has decided (spec/scheduling 1.1)",
    "securityContext": "inside the pod",
    "serviceAccount": "identity",
    "serviceAccountName": "identity",
    "setHostnameAsFQDN": "the pod's own name",
    "shareProcessNamespace": "inside the pod",
    "subdomain": "the pod's own name",
    "terminationGracePeriodSeconds": "about the end of the pod",
}
"""Every field of PodSpec as the API server has it → handled, refused, or why it does not matter."""

NODE_POOL_SPEC: Mapping[str, str] = {
    "template.metadata.labels": HANDLED,
    "template.metadata.annotations": HANDLED,
    "template.spec.expireAfter": HANDLED,
    "template.spec.nodeClassRef": HANDLED,
    "template.spec.requirements": HANDLED,
    "template.spec.startupTaints": HANDLED,
    "template.spec.taints": HANDLED,
    "template.spec.terminationGracePeriod": HANDLED,
    "disruption": "decides what goes, not what is bought",
    "limits": HANDLED,
    "replicas": HANDLED,
    "weight": HANDLED,
}

_GROUPED = "pods that must be placed all together or not at all are not supported yet"


def unsupported(spec: PodSpec) -> Refusal | None:
    """A refusal naming the field for a pod that asks for something the solver cannot take into account."""
    for field, value in (("spec.workloadRef", spec.workload_ref), ("spec.schedulingGroup", spec.scheduling_group)):
        if value is not None:
            return Refusal(Because.UNSUPPORTED, "", field, _GROUPED, {"field": field}, curable=False)
    return None
