"""The pretend kubelets, all of them: nodes boot, pods start, end and stop, and a machine that died does nothing any more.

There are no heartbeats to be written: `is_alive` is what the node lifecycle controller asks instead.
What a pod does is told by annotations: see `kubewright.sim.objects` (`kubewright.sh/sim-duration`, `…/sim-exit-code`,
`…/sim-stop-duration`).
"""

import msgspec

from kubewright.errors import Conflict, NotFound
from kubewright.sim.objects import (
    SIM_DURATION,
    SIM_EXIT_CODE,
    SIM_STOP,
    Item,
    Key,
    is_terminal,
    is_terminating,
    is_true,
    key_of,
    seconds,
    stamp,
    with_condition,
)
from kubewright.sim.runtime import Reconciler, Runtime

NAME = "kubelet"


class KubeletDelays(msgspec.Struct, frozen=True):
    """Seconds; the real ones vary with image sizes and machines."""

    boot_s: float = 10.0
    """From a Node object to its Ready condition."""
    start_s: float = 2.0
    """From a bound pod to ready containers: image pull and start."""
    run_s: float = 30.0
    """How long a pod that ends by itself runs, unless `kubewright.sh/sim-duration` says otherwise."""
    stop_s: float = 1.0
    """How long containers take to stop, unless `kubewright.sh/sim-stop-duration` says otherwise."""


class Kubelets(Reconciler):
    """Pods on live nodes."""

    def __init__(self, runtime: Runtime, delays: KubeletDelays) -> None:
        self._delays = delays
        self._dead: set[str] = set()
        self._since: dict[tuple[str, str], float] = {}
        """(pod's or node's uid, what) → loop time at which it was first seen so."""
        self._pod_count = 0
        self.boots = _Boots(runtime, self, delays.boot_s)
        super().__init__(runtime)

    def start(self) -> None:
        self.view.on("Pod", self._pod_changed)

    def is_alive(self, node: str) -> bool:
        return node not in self._dead

    def stop_node(self, node: str) -> None:
        """The machine is gone: nothing on it moves any more, whatever its Node object says."""
        self._dead.add(node)

    def forget_node(self, node: str) -> None:
        """The Node object is gone; a new one of that name is another machine."""
        self._dead.discard(node)

    def restart(self, node: str) -> None:
        """The machine came back: its pods go on."""
        self._dead.discard(node)
        for pod in self.view.pods_on(node):
            self.enqueue(key_of(pod))
        self.boots.enqueue(("", node))

    def _pod_changed(self, before: Item | None, after: Item | None) -> None:
        if after is None:
            assert before is not None
            for what in ("bound", "started", "stopping"):
                self._since.pop((before["metadata"]["uid"], what), None)
        elif after["spec"].get("nodeName"):
            self.enqueue(key_of(after))

    def reconcile(self, key: Key) -> None:
        pod = self.view.get("v1", "Pod", key)
        if pod is None or not (node := pod["spec"].get("nodeName")) or not self.is_alive(node):
            return
        machine = self.view.get("v1", "Node", ("", node))
        if machine is None:
            return
        if is_terminating(pod):
            self._stop(pod)
        elif is_terminal(pod):
            return
        elif not self.boots.has_booted(machine):
            return  # the boot enqueues the node's pods
        elif not is_true(pod, "ContainersReady"):
            if self._is_over(pod, "bound", self._delays.start_s):
                self._run(pod, machine)
        elif not is_true(pod, "Ready"):
            self._ready_again(pod)
        else:
            self._maybe_end(pod)

    def _is_over(self, pod: Item, what: str, delay_s: float) -> bool:
        """Whether the pod has been so for `delay_s`; if not, it is looked at again then."""
        since = self._since.setdefault((pod["metadata"]["uid"], what), self.runtime.now_s())
        left_s = since + delay_s - self.runtime.now_s()
        if left_s > 1e-9:
            self.after(left_s, key_of(pod))
            return False
        return True

    def _run(self, pod: Item, node: Item) -> None:
        now = self.runtime.now()
        conditions = pod["status"].get("conditions") or []
        for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"):
            conditions = with_condition(conditions, kind, "True", now)
        running = {"running": {"startedAt": stamp(now)}}
        spec = pod["spec"]
        status: Item = {
            "phase": "Running",
            "conditions": conditions,
            "hostIP": _address(node),
            "podIP": _address(node) if spec.get("hostNetwork") else self._next_address(),
            "startTime": stamp(now),
            "containerStatuses": [_container(c, running, ready=True) for c in spec["containers"]],
        }
        status["podIPs"] = [{"ip": status["podIP"]}]
        if spec.get("initContainers"):
            done = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": stamp(now), "finishedAt": stamp(now)}}
            status["initContainerStatuses"] = [
                _container(c, running if c.get("restartPolicy") == "Always" else done, ready=True) for c in spec["initContainers"]
            ]
        self._write(pod, status)

    def _ready_again(self, pod: Item) -> None:
        conditions = with_condition(pod["status"]["conditions"], "Ready", "True", self.runtime.now())
        self._write(pod, {"conditions": conditions})

    def _maybe_end(self, pod: Item) -> None:
        policy = pod["spec"].get("restartPolicy", "Always")
        if policy == "Always" or not self._is_over(pod, "started", seconds(pod, SIM_DURATION, self._delays.run_s)):
            return
        code = int((pod["metadata"].get("annotations") or {}).get(SIM_EXIT_CODE, "0"))
        if code and policy == "OnFailure":
            self._since.pop((pod["metadata"]["uid"], "started"), None)
            statuses = [{**s, "restartCount": s["restartCount"] + 1} for s in pod["status"]["containerStatuses"]]
            self._write(pod, {"containerStatuses": statuses})
            return
        self._end(pod, code, "Error" if code else "Completed")

    def _end(self, pod: Item, code: int, reason: str) -> None:
        now = self.runtime.now()
        started = pod["status"].get("startTime", stamp(now))
        ended = {"terminated": {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": stamp(now)}}
        why = "PodFailed" if code else "PodCompleted"
        conditions = pod["status"].get("conditions") or []
        for kind in ("Ready", "ContainersReady"):
            conditions = with_condition(conditions, kind, "False", now, reason=why)
        statuses = [{**_container(c, ended, ready=False)} for c in pod["spec"]["containers"]]
        self._write(pod, {"phase": "Failed" if code else "Succeeded", "conditions": conditions, "containerStatuses": statuses})

    def _stop(self, pod: Item) -> None:
        grace_s = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        if not self._is_over(pod, "stopping", min(grace_s, seconds(pod, SIM_STOP, self._delays.stop_s))):
            return
        if pod["metadata"].get("finalizers") and not is_terminal(pod):
            self._end(pod, 143, "Error")  # whoever holds the finalizer wants to see how it ended
        try:
            self.store.delete("v1", "Pod", *key_of(pod), uid=pod["metadata"]["uid"], grace_period_s=0)
        except (NotFound, Conflict):
            return  # somebody forced it

    def _write(self, pod: Item, status: Item) -> None:
        self.store.patch("v1", "Pod", *key_of(pod), {"status": status}, "status")

    def _next_address(self) -> str:
        self._pod_count += 1
        number = self._pod_count
        return f"10.{64 + (number >> 16) % 64}.{(number >> 8) & 255}.{number & 255}"


class _Boots(Reconciler):
    """Nodes become Ready some time after they came."""

    def __init__(self, runtime: Runtime, kubelets: Kubelets, boot_s: float) -> None:
        self._kubelets = kubelets
        self._boot_s = boot_s
        self._since: dict[str, float] = {}
        super().__init__(runtime)

    def start(self) -> None:
        self.view.on("Node", self._node_changed)

    def has_booted(self, node: Item) -> bool:
        return node["metadata"]["uid"] not in self._since

    def _node_changed(self, before: Item | None, after: Item | None) -> None:
        if after is None:
            assert before is not None
            self._since.pop(before["metadata"]["uid"], None)
            self._kubelets.forget_node(before["metadata"]["name"])
        elif before is None:
            self._kubelets.forget_node(after["metadata"]["name"])
            if is_true(after, "Ready"):
                return
            self._since[after["metadata"]["uid"]] = self.runtime.now_s()
            self.enqueue(key_of(after))

    def reconcile(self, key: Key) -> None:
        node = self.view.get("v1", "Node", key)
        if node is None or not self._kubelets.is_alive(key[1]):
            return
        since = self._since.get(node["metadata"]["uid"])
        if since is not None and (left_s := since + self._boot_s - self.runtime.now_s()) > 1e-9:
            self.after(left_s, key)
            return
        if not is_true(node, "Ready"):
            self._make_ready(node)
        self._since.pop(node["metadata"]["uid"], None)
        for pod in self.view.pods_on(key[1]):
            self._kubelets.enqueue(key_of(pod))

    def _make_ready(self, node: Item) -> None:
        now = self.runtime.now()
        conditions = node.get("status", {}).get("conditions") or []
        for kind, reason in (
            ("MemoryPressure", "KubeletHasSufficientMemory"),
            ("DiskPressure", "KubeletHasNoDiskPressure"),
            ("PIDPressure", "KubeletHasSufficientPID"),
        ):
            conditions = with_condition(conditions, kind, "False", now, reason=reason, lastHeartbeatTime=stamp(now))
        ready = {"reason": "KubeletReady", "message": "kubelet is posting ready status", "lastHeartbeatTime": stamp(now)}
        conditions = with_condition(conditions, "Ready", "True", now, **ready)
        self.store.patch("v1", "Node", "", node["metadata"]["name"], {"status": {"conditions": conditions}}, "status")
        self.runtime.events.tell(node, "Normal", "NodeReady", f"Node {node['metadata']['name']} status is now: NodeReady", NAME)


def _container(container: Item, state: Item, *, ready: bool) -> Item:
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "ready": ready,
        "started": ready,
        "restartCount": 0,
        "state": state,
        "lastState": {},
    }


def _address(node: Item) -> str:
    addresses = node.get("status", {}).get("addresses") or ()
    return str(next((a["address"] for a in addresses if a["type"] == "InternalIP"), "10.0.0.1"))
