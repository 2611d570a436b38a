"""Deployments: a ReplicaSet a template, and a rollout from one to the next."""

from datetime import datetime

from kubewright.errors import AlreadyExists
from kubewright.sim.objects import (
    Item,
    Key,
    condition,
    controller_reference,
    is_terminating,
    key_of,
    moment,
    stamp,
    with_condition,
)
from kubewright.sim.runtime import Reconciler
from kubewright.sim.workloads import rollout, templates

NAME = "deployment-controller"
HASH = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
DESIRED = "deployment.kubernetes.io/desired-replicas"
MAXIMUM = "deployment.kubernetes.io/max-replicas"
_NOT_COPIED = {REVISION, DESIRED, MAXIMUM, "kubectl.kubernetes.io/last-applied-configuration"}


class Deployments(Reconciler):
    def start(self) -> None:
        self.view.on("Deployment", self.enqueue_object)
        self.view.on("ReplicaSet", self.enqueue_owner("Deployment"))

    def reconcile(self, key: Key) -> None:
        owner = self.view.get("apps/v1", "Deployment", key)
        if owner is None:
            return
        sets = templates.claim_objects(self.runtime, owner, "ReplicaSet", "apps/v1")
        sets.sort(key=lambda s: (moment(s["metadata"]["creationTimestamp"]), _revision(s), s["metadata"]["name"]))
        new = self._find_new(owner, sets)
        if is_terminating(owner):
            self._status(owner, new, sets)
            return
        held = _recreates(owner) and new is None and any(_replicas(s) or self._has_pods(s) for s in sets)
        if not owner["spec"].get("paused") and not held:
            new = self._new_set(owner, new, sets)
        old = [s for s in sets if new is None or s["metadata"]["uid"] != new["metadata"]["uid"]]
        every = [*old, *([new] if new is not None else [])]
        if owner["spec"].get("paused") or self._was_scaled(owner, every):
            every = self._scale_all(owner, new, old)
        elif _recreates(owner):
            every = self._recreate(owner, new, old)
        elif new is not None:
            every = self._roll(owner, new, old)
        new = next((s for s in every if new is not None and s["metadata"]["uid"] == new["metadata"]["uid"]), None)
        self._status(owner, new, every)
        self._clean(owner, new, every)

    # the new ReplicaSet

    @staticmethod
    def _find_new(owner: Item, sets: list[Item]) -> Item | None:
        wanted = owner["spec"]["template"]
        return next((s for s in sets if _without_hash(s["spec"]["template"]) == wanted), None)

    def _new_set(self, owner: Item, new: Item | None, sets: list[Item]) -> Item | None:
        old = [s for s in sets if s is not new]
        revision = str(max((_revision(s) for s in old), default=0) + 1)
        if new is None:
            new = self._create_set(owner, old, revision)
        elif (new["metadata"].get("annotations") or {}).get(REVISION) != revision:
            new = self._annotate(new, {REVISION: revision})
        if (owner["metadata"].get("annotations") or {}).get(REVISION) != revision:
            body = {"metadata": {"annotations": {REVISION: revision}}}
            self.store.patch("apps/v1", "Deployment", *key_of(owner), body)
        return new

    def _create_set(self, owner: Item, old: list[Item], revision: str) -> Item:
        spec = owner["spec"]
        collisions = (owner.get("status") or {}).get("collisionCount", 0)
        digest = templates.template_hash(spec["template"], collisions)
        if _recreates(owner):
            replicas = _wanted(owner)  # the old ones are gone by now
        else:
            limit = _limits(owner)
            replicas = rollout.new_replicas(limit, rollout.Shares("", 0, 0, 0), [_shares(s) for s in old])
        template = {**spec["template"]}
        meta = dict(template.get("metadata") or {})
        meta["labels"] = {**(meta.get("labels") or {}), HASH: digest}
        template["metadata"] = meta
        selector = {**spec["selector"]}
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH: digest}
        copied = {k: v for k, v in (owner["metadata"].get("annotations") or {}).items() if k not in _NOT_COPIED}
        wanted: Item = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": f"{owner['metadata']['name']}-{digest}",
                "namespace": owner["metadata"]["namespace"],
                "labels": meta["labels"],
                "annotations": {**copied, REVISION: revision, **_sizes(owner)},
                "ownerReferences": [controller_reference(owner)],
            },
            "spec": {"replicas": replicas, "selector": selector, "template": template},
        }
        if spec.get("minReadySeconds"):
            wanted["spec"]["minReadySeconds"] = spec["minReadySeconds"]
        try:
            made = self.store.create(wanted)
        except AlreadyExists:
            # another template has the same hash: count the collision and come back with another hash
            self.store.patch("apps/v1", "Deployment", *key_of(owner), {"status": {"collisionCount": collisions + 1}}, "status")
            raise
        if replicas:
            self._tell_scaled(owner, made["metadata"]["name"], 0, replicas)
        return made

    # scaling

    def _was_scaled(self, owner: Item, sets: list[Item]) -> bool:
        """Whether the Deployment's replicas changed since its ReplicaSets were last looked at."""
        for one in sets:
            desired = (one["metadata"].get("annotations") or {}).get(DESIRED)
            if _replicas(one) > 0 and desired is not None and int(desired) != _wanted(owner):
                return True
        return False

    def _scale_all(self, owner: Item, new: Item | None, old: list[Item]) -> list[Item]:
        every = [*old, *([new] if new is not None else [])]
        active = [s for s in every if _replicas(s) > 0]
        wanted = {s["metadata"]["name"]: _replicas(s) for s in every}
        if len(active) <= 1:
            target = active[0] if active else new
            if target is not None:
                wanted[target["metadata"]["name"]] = _wanted(owner)
        elif new is not None and _is_saturated(owner, new):
            wanted |= {s["metadata"]["name"]: 0 for s in old}
        elif not _recreates(owner):
            newest_first = [_shares(s) for s in reversed(every)]
            wanted = rollout.proportional(_limits(owner), newest_first)
        return [self._scale(owner, s, wanted[s["metadata"]["name"]]) for s in every]

    def _roll(self, owner: Item, new: Item, old: list[Item]) -> list[Item]:
        limit = _limits(owner)
        grown = rollout.new_replicas(limit, _shares(new), [_shares(s) for s in old])
        if grown != _replicas(new):
            return [*old, self._scale(owner, new, grown)]
        new = self._scale(owner, new, grown)
        fewer = rollout.old_replicas(limit, _shares(new), [_shares(s) for s in old])
        return [*(self._scale(owner, s, fewer[s["metadata"]["name"]]) for s in old), new]

    def _recreate(self, owner: Item, new: Item | None, old: list[Item]) -> list[Item]:
        if any(_replicas(s) for s in old):
            old = [self._scale(owner, s, 0) for s in old]
        elif new is not None and not any(self._has_pods(s) for s in old):
            new = self._scale(owner, new, _wanted(owner))
        return [*old, *([new] if new is not None else [])]

    def _has_pods(self, one: Item) -> bool:
        return any(
            p["status"].get("phase") not in ("Succeeded", "Failed") for p in self.view.owned(one["metadata"]["uid"], "Pod")
        )

    def _scale(self, owner: Item, one: Item, replicas: int) -> Item:
        current = _replicas(one)
        sizes = _sizes(owner)
        annotations = one["metadata"].get("annotations") or {}
        stale = any(annotations.get(k) != v for k, v in sizes.items())
        if current == replicas and not (stale and current):
            return one
        body: Item = {"metadata": {"annotations": sizes}, "spec": {"replicas": replicas}}
        written = self.store.patch("apps/v1", "ReplicaSet", *key_of(one), body)
        if current != replicas:
            self._tell_scaled(owner, one["metadata"]["name"], current, replicas)
        return written

    def _annotate(self, one: Item, annotations: dict[str, str]) -> Item:
        return self.store.patch("apps/v1", "ReplicaSet", *key_of(one), {"metadata": {"annotations": annotations}})

    def _tell_scaled(self, owner: Item, name: str, before: int, after: int) -> None:
        way = "up" if after > before else "down"
        text = f"Scaled {way} replica set {name} from {before} to {after}"
        self.runtime.events.tell(owner, "Normal", "ScalingReplicaSet", text, NAME)

    # what people see

    def _status(self, owner: Item, new: Item | None, sets: list[Item]) -> None:
        now = self.runtime.now()
        total = {field: sum((s.get("status") or {}).get(field, 0) for s in sets) for field in _COUNTS}
        updated = (new.get("status") or {}).get("replicas", 0) if new is not None else 0
        wanted = _wanted(owner)
        old_conditions = (owner.get("status") or {}).get("conditions") or []
        enough = total["availableReplicas"] >= _limits(owner).least_available
        conditions = with_condition(
            old_conditions,
            "Available",
            "True" if enough else "False",
            now,
            reason="MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
            message=f"Deployment {'has' if enough else 'does not have'} minimum availability.",
            lastUpdateTime=_kept_time(owner, "Available", now, "True" if enough else "False"),
        )
        status: Item = {
            "observedGeneration": owner["metadata"].get("generation", 0),
            "replicas": total["replicas"] or None,
            "updatedReplicas": updated or None,
            "readyReplicas": total["readyReplicas"] or None,
            "availableReplicas": total["availableReplicas"] or None,
            "terminatingReplicas": total["terminatingReplicas"],
            "unavailableReplicas": max(0, total["replicas"] - total["availableReplicas"]) or None,
            "conditions": conditions,
        }
        if not owner["spec"].get("paused"):
            status["conditions"] = self._progress(owner, new, status, wanted)
        old = owner.get("status") or {}
        if any(old.get(field) != value for field, value in status.items()):
            self.store.patch("apps/v1", "Deployment", *key_of(owner), {"status": status}, "status")

    def _progress(self, owner: Item, new: Item | None, status: Item, wanted: int) -> list[Item]:
        """The Progressing condition; past its deadline it says so, once."""
        now = self.runtime.now()
        conditions: list[Item] = status["conditions"]
        old = condition(owner, "Progressing")
        name = new["metadata"]["name"] if new is not None else ""
        done = (
            (status["updatedReplicas"] or 0) == wanted
            and (status["replicas"] or 0) == wanted
            and (status["availableReplicas"] or 0) == wanted
        )
        if done:
            text = f'ReplicaSet "{name}" has successfully progressed.'
            same = old is not None and old.get("reason") == "NewReplicaSetAvailable" and old.get("message") == text
            at = old["lastUpdateTime"] if same and old is not None else stamp(now)
            return with_condition(
                conditions, "Progressing", "True", now, reason="NewReplicaSetAvailable", message=text, lastUpdateTime=at
            )
        before = owner.get("status") or {}
        counts = ("updatedReplicas", "readyReplicas", "availableReplicas")
        moved = (
            old is None or any((status[f] or 0) > before.get(f, 0) for f in counts) or old["reason"] == "NewReplicaSetAvailable"
        )
        deadline = owner["spec"].get("progressDeadlineSeconds", 600)
        if not moved and old is not None:
            left_s = deadline - (now - moment(old["lastUpdateTime"])).total_seconds()
            if left_s > 0 or old["reason"] == "ProgressDeadlineExceeded":
                if left_s > 0:
                    self.after(left_s, key_of(owner))
                return conditions
            text = f'ReplicaSet "{name}" has timed out progressing.'
            return with_condition(
                conditions,
                "Progressing",
                "False",
                now,
                reason="ProgressDeadlineExceeded",
                message=text,
                lastUpdateTime=stamp(now),
            )
        self.after(deadline, key_of(owner))
        text = f'ReplicaSet "{name}" is progressing.'
        return with_condition(
            conditions, "Progressing", "True", now, reason="ReplicaSetUpdated", message=text, lastUpdateTime=stamp(now)
        )

    def _clean(self, owner: Item, new: Item | None, sets: list[Item]) -> None:
        """Forget old ReplicaSets beyond the history limit."""
        keep = owner["spec"].get("revisionHistoryLimit", 10)
        idle = [
            s
            for s in sets
            if s is not new and not _replicas(s) and not (s.get("status") or {}).get("replicas") and not is_terminating(s)
        ]
        for one in sorted(idle, key=_revision)[: max(0, len(idle) - keep)]:
            self.store.delete("apps/v1", "ReplicaSet", *key_of(one), uid=one["metadata"]["uid"])


_COUNTS = ("replicas", "readyReplicas", "availableReplicas", "terminatingReplicas")


def _kept_time(owner: Item, kind: str, now: datetime, status: str) -> str:
    old = condition(owner, kind)
    return old["lastUpdateTime"] if old is not None and old["status"] == status and "lastUpdateTime" in old else stamp(now)


def _wanted(owner: Item) -> int:
    return int(owner["spec"].get("replicas", 1))


def _recreates(owner: Item) -> bool:
    return bool((owner["spec"].get("strategy") or {}).get("type") == "Recreate")


def _replicas(one: Item) -> int:
    return int(one["spec"].get("replicas", 1))


def _revision(one: Item) -> int:
    return int((one["metadata"].get("annotations") or {}).get(REVISION, "0"))


def _limits(owner: Item) -> rollout.Limits:
    rolling = (owner["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    if _recreates(owner):
        return rollout.Limits(_wanted(owner), 0, 0)
    return rollout.limits(_wanted(owner), rolling.get("maxSurge", "25%"), rolling.get("maxUnavailable", "25%"))


def _shares(one: Item) -> rollout.Shares:
    last = (one["metadata"].get("annotations") or {}).get(MAXIMUM, "0")
    available = (one.get("status") or {}).get("availableReplicas", 0)
    return rollout.Shares(one["metadata"]["name"], _replicas(one), available, int(last))


def _sizes(owner: Item) -> dict[str, str]:
    limit = _limits(owner)
    return {DESIRED: str(limit.replicas), MAXIMUM: str(limit.most)}


def _is_saturated(owner: Item, new: Item) -> bool:
    desired = int((new["metadata"].get("annotations") or {}).get(DESIRED, "-1"))
    available = (new.get("status") or {}).get("availableReplicas", 0)
    return bool(_replicas(new) == _wanted(owner) == desired == available)


def _without_hash(template: Item) -> Item:
    meta = dict(template.get("metadata") or {})
    labels = {k: v for k, v in (meta.get("labels") or {}).items() if k != HASH}
    meta["labels"] = labels
    if not labels:
        del meta["labels"]
    return {**template, "metadata": meta}
