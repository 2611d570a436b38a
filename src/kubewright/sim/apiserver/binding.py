"""The binding subresource: a scheduler gives a pod its node.

Source: k8s.io/kubernetes v1.36 pkg/registry/core/pod/storage/storage.go.
"""

from typing import TYPE_CHECKING

from kubewright.sim.apiserver import admission, answers, checks
from kubewright.sim.apiserver.table import thaw

if TYPE_CHECKING:
    from kubewright.sim.apiserver.store import Store


def bind(store: "Store", namespace: str, name: str, node: str, *, uid: str = "") -> None:
    """Raises NotFound, Conflict (it has a node, is being deleted, or is not the pod with that `uid`)."""
    pods = store.kind("v1", "Pod")
    old = store.peek(pods, namespace, name)
    if uid and uid != old["metadata"]["uid"]:
        raise answers.other_uid(pods, old, uid)
    checks.check_binding(old)
    new = thaw(old)
    new["spec"]["nodeName"] = node
    admission.copy_topology(store, new, node)
    conditions = [c for c in new["status"].get("conditions", []) if c["type"] != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
    new["status"]["conditions"] = [*conditions, {**scheduled, "lastTransitionTime": store.stamp()}]
    store.write("bind", pods, (namespace, name), new)
