"""Tells what happens in the pretend cluster, as it happens, one line a thing; changes of the same second are told together.

It only reads: everything it says stands in objects that anybody can see with kubectl.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from kubewright.api import labels
from kubewright.sim.apiserver.store import Store
from kubewright.sim.view import View

Item = dict[str, Any]
TOLD_WARNINGS = {
    "FailedScheduling",
    "InsufficientCapacityError",
    "FailedDraining",
    "SpotInterrupted",
    "NoCompatibleInstanceTypes",
}


class Narrator:
    """Follows a store and hands finished lines to `say`.

    `prices` gives USD per hour by providerID, for the lines that name a machine.
    """

    def __init__(self, store: Store, start: datetime, say: Callable[[str], None], prices: Callable[[str], float]) -> None:
        self._start = start
        self._say = say
        self._prices = prices
        self._view = View(store)
        self._view.on_all(self._note)
        self._lines: list[str] = []
        self._pending: Counter[str] = Counter()
        self._running: Counter[str] = Counter()
        self._ended: Counter[str] = Counter()
        self._leaving: Counter[str] = Counter()
        self._told: set[tuple[str, str]] = set()
        self._claim_of: dict[str, str] = {}
        self.ran: dict[str, dict[str, int]] = {}
        """NodeClaim (or node) → workload → pods that ran there."""
        self.changed_at = start
        """When something worth telling last happened."""

    def tell(self, now: datetime, remark: str = "") -> None:
        """Say everything that happened since the last call, under the time of `now`."""
        self._view.catch_up()
        for one, many, counts in (
            ("pends", "pend", self._pending),
            ("runs", "run", self._running),
            ("ended", "ended", self._ended),
        ):
            if counts:
                self._lines.append(f"{_pods(counts)} {one if counts.total() == 1 else many}: {_by_name(counts)}")
                counts.clear()
        lines = [f"— {remark}", *self._lines] if remark else self._lines
        self._lines = []
        if not lines:
            return
        self.changed_at = now
        for line in lines:
            self._say(f"{clock_face(now - self._start)}  {line}")

    def _note(self, before: Item | None, after: Item | None) -> None:
        obj = after or before
        assert obj is not None
        match obj["kind"]:
            case "Pod":
                self._pod(before, after)
            case "NodeClaim":
                self._claim(before, after)
            case "Node":
                self._node(before, after)
            case "Event" if after is not None and before is None:
                self._event(after)
            case _:
                pass

    def _pod(self, before: Item | None, after: Item | None) -> None:
        if after is None:
            return
        name = workload(after)
        was, is_now = _phase(before), _phase(after)
        if _unschedulable(after) and not (before and _unschedulable(before)):
            self._pending[name] += 1
        if is_now == "Running" and was != "Running":
            self._running[name] += 1
            node = after["spec"].get("nodeName", "")
            here = self.ran.setdefault(self._claim_of.get(node, node), {})
            here[name] = here.get(name, 0) + 1
        leaving = _leaving(after)
        if is_now in ("Succeeded", "Failed") and was != is_now and not leaving:
            self._ended[name] += 1
        if leaving and was == "Running" and not (before and _leaving(before)):
            self._leaving[name] += 1

    def _claim(self, before: Item | None, after: Item | None) -> None:
        if after is None:
            assert before is not None
            self._lines.append(f"{before['metadata']['name']} is gone")
            return
        name = after["metadata"]["name"]
        if before is None:
            requests = after["spec"].get("resources", {}).get("requests", {})
            types = next(
                (r.get("values", ()) for r in after["spec"].get("requirements", ()) if r["key"] == labels.INSTANCE_TYPE), ()
            )
            asked = ", ".join(f"{requests[r]} {r}" for r in ("cpu", "memory", "pods") if r in requests)
            of = f"any of {len(types)} types" if types else "any that suits its pool"
            self._lines.append(f"buying {name}{f' for {asked}' if asked else ''}: {of}")
            return
        if after.get("status", {}).get("providerID") and not before.get("status", {}).get("providerID"):
            self._lines.append(f"{name} is {self._machine(after)}")
        if after["metadata"].get("deletionTimestamp") and not before["metadata"].get("deletionTimestamp"):
            self._lines.append(f"{name} is being removed{_reason(after)}")

    def _node(self, before: Item | None, after: Item | None) -> None:
        if after is None:
            return
        known = after["metadata"].get("labels", {})
        for owner in after["metadata"].get("ownerReferences", ()):
            if owner["kind"] == "NodeClaim":
                self._claim_of[after["metadata"]["name"]] = owner["name"]
        if known.get(labels.INITIALIZED) == "true" and (
            before is None or before["metadata"].get("labels", {}).get(labels.INITIALIZED) != "true"
        ):
            node = after["metadata"]["name"]
            claim = self._claim_of.get(node, "")
            self._lines.append(f"{claim} is ready for pods" if claim else f"node {node} is ready for pods")

    def _event(self, event: Item) -> None:
        reason, about = event.get("reason", ""), event.get("involvedObject", {})
        if (
            event.get("type") != "Warning"
            or reason not in TOLD_WARNINGS
            or event.get("source", {}).get("component") == "default-scheduler"
        ):
            return
        mark = (reason, event.get("message", ""))
        if mark not in self._told:
            self._told.add(mark)
            self._lines.append(f"{reason}: {about.get('kind', '').lower()} {about.get('name', '')}: {event.get('message', '')}")

    def _machine(self, claim: Item) -> str:
        known: Mapping[str, str] = claim["metadata"].get("labels", {})
        price = self._prices(claim["status"]["providerID"])
        return (
            f"{known.get(labels.INSTANCE_TYPE, '?')} in {known.get(labels.ZONE, '?')}, "
            f"{known.get(labels.CAPACITY_TYPE, '?')}, ${price:.4f}/h"
        )


def workload(pod: Mapping[str, Any]) -> str:
    """The name people know a pod by: its namespace and the Deployment, Job, … that made it."""
    owners = pod["metadata"].get("ownerReferences") or ()
    name = owners[0]["name"] if owners else pod["metadata"]["name"]
    if owners and owners[0]["kind"] == "ReplicaSet":
        name = name.rpartition("-")[0] or name
    return f"{pod['metadata'].get('namespace', '')}/{name}"


def clock_face(elapsed: timedelta) -> str:
    """Simulated time since the start, as `[h:]mm:ss`."""
    seconds = int(elapsed.total_seconds())
    hours, rest = divmod(seconds, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60:5}:{rest % 60:02}"


def _unschedulable(pod: Mapping[str, Any]) -> bool:
    return any(
        c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable" for c in pod.get("status", {}).get("conditions", ())
    )


def _phase(pod: Mapping[str, Any] | None) -> str:
    return str(pod.get("status", {}).get("phase", "")) if pod else ""


def _leaving(pod: Mapping[str, Any]) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _reason(claim: Mapping[str, Any]) -> str:
    reason = next(
        (c.get("reason", "") for c in claim.get("status", {}).get("conditions", ()) if c["type"] == "DisruptionReason"), ""
    )
    return f" ({reason})" if reason else ""


def _pods(counts: Counter[str]) -> str:
    total = counts.total()
    return f"{total} pod{'s' if total != 1 else ''}"


def _by_name(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
