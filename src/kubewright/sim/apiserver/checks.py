"""What the server refuses of core kinds: names, labels, quantities, required and immutable fields.

Source: k8s.io/kubernetes v1.36 pkg/apis/*/validation; texts compared with a real kube-apiserver by tests/api.
"""

from typing import Any

from kubewright.sim.apiserver import answers
from kubewright.sim.apiserver.answers import Cause
from kubewright.sim.apiserver.kinds import Kind
from kubewright.sim.apiserver.table import Key

Item = dict[str, Any]


def check_create(kind: Kind, obj: Item) -> None:
    """Raises Invalid."""
    meta = obj["metadata"]
    causes: list[Cause] = []
    if not meta.get("name"):
        causes.append(answers.required("metadata.name", "name or generateName is required"))
    _refuse(kind, obj, causes)


def check_identity(new: Item, key: Key) -> None:
    """Raises KubeError (400): the body names another object than the call."""
    if new["metadata"].get("name", "") != key[1]:
        raise answers.bad_request(
            f"the name of the object ({new['metadata'].get('name', '')}) does not match the name on the URL ({key[1]})"
        )


def check_update(kind: Kind, new: Item) -> None:
    """Raises Invalid."""
    causes: list[Cause] = []
    _refuse(kind, new, causes)


def check_binding(kind: Kind, pod: Item) -> None:
    """Raises Conflict."""
    name = pod["metadata"]["name"]
    if "deletionTimestamp" in pod["metadata"]:
        raise answers.conflict(kind, name, f"pod {name} is being deleted, cannot be assigned to a host")
    if pod["spec"].get("nodeName"):
        raise answers.conflict(kind, name, f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"')
    gates = pod["spec"].get("schedulingGates")
    if gates:
        raise answers.conflict(kind, name, f"pod {name} has non-empty .spec.schedulingGates")


def _refuse(kind: Kind, obj: Item, causes: list[Cause]) -> None:
    if causes:
        raise answers.invalid(kind, str(obj["metadata"].get("name", "")), causes)
