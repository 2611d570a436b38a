"""StatefulSets: numbered pods with claims of their own, one after the other.

Not kept: ControllerRevision objects. A pod's revision is its `controller-revision-hash` label, so there is no `rollout undo`.

Source: k8s.io/kubernetes v1.36 pkg/controller/statefulset/stateful_set_control.go.
"""

from kubewright.errors import AlreadyExists
from kubewright.sim.objects import (
    Item,
    Key,
    available_in_s,
    controller_reference,
    is_controlled_by,
    is_ready,
    is_terminal,
    is_terminating,
    key_of,
    scaled,
)
from kubewright.sim.runtime import Reconciler
from kubewright.sim.workloads import templates

NAME = "statefulset-controller"
REVISION = "controller-revision-hash"


class StatefulSets(Reconciler):
    def start(self) -> None:
        self._templates: dict[tuple[str, str], Item] = {}
        """(StatefulSet's uid, revision) → template; a real controller keeps ControllerRevision objects."""
        self.view.on("StatefulSet", self.enqueue_object)
        self.view.on("Pod", self.enqueue_owner("StatefulSet"))

    def reconcile(self, key: Key) -> None:
        owner = self.view.get("apps/v1", "StatefulSet", key)
        if owner is None:
            return
        pods = self._pods(owner)
        if not is_terminating(owner):
            self._act(owner, pods)
            pods = self._pods_now(owner, pods)
        self._status(owner, pods)

    def _pods(self, owner: Item) -> dict[int, Item]:
        found: dict[int, Item] = {}
        for pod in self.view.owned(owner["metadata"]["uid"], "Pod"):
            number = _ordinal(owner, pod)
            if number is not None and is_controlled_by(pod, owner):
                found[number] = pod
        return found

    def _pods_now(self, owner: Item, before: dict[int, Item]) -> dict[int, Item]:
        """The pods after this turn's own writes, which the index does not know yet."""
        first, wanted = _range(owner)
        numbers = sorted({*before, *range(first, first + wanted)})
        space, name = key_of(owner)
        found = ((n, self.view.get("v1", "Pod", (space, f"{name}-{n}"))) for n in numbers)
        return {n: pod for n, pod in found if pod is not None and is_controlled_by(pod, owner)}

    def _act(self, owner: Item, pods: dict[int, Item]) -> None:
        """Ended pods are replaced, then missing ones made, surplus ones removed, old ones updated; in order, one at a time."""
        first, wanted = _range(owner)
        parallel = owner["spec"].get("podManagementPolicy", "OrderedReady") == "Parallel"
        update = _update_revision(owner)
        self._templates[owner["metadata"]["uid"], update] = owner["spec"]["template"]
        for number in range(first, first + wanted):
            pod = pods.get(number)
            if pod is not None and is_terminal(pod) and not is_terminating(pod):
                self._delete(owner, pod)
                continue  # its going away brings us back
            if pod is None:
                self._create(owner, number, self._revision_for(owner, number, update))
                if not parallel:
                    return
            elif not parallel and not self._is_available(owner, pod):
                return
        surplus = sorted((n for n in pods if not first <= n < first + wanted), reverse=True)
        for number in surplus:
            pod = pods[number]
            if not is_terminating(pod):
                self._hand_over_claims(owner, pod, "whenScaled")
                self._delete(owner, pod)
            if not parallel:
                return
        self._update(owner, {n: p for n, p in pods.items() if first <= n < first + wanted}, update)

    def _update(self, owner: Item, pods: dict[int, Item], update: str) -> None:
        strategy = owner["spec"].get("updateStrategy") or {}
        if strategy.get("type", "RollingUpdate") == "OnDelete":
            return
        rolling = strategy.get("rollingUpdate") or {}
        first, wanted = _range(owner)
        budget = max(1, scaled(rolling.get("maxUnavailable") or 1, wanted, up=True))
        down = sum(not self._is_available(owner, p) for p in pods.values())
        for number in sorted(pods, reverse=True):
            if number < first + rolling.get("partition", 0) or (down >= budget and self._is_available(owner, pods[number])):
                return
            pod = pods[number]
            if _revision(pod) != update and not is_terminating(pod):
                down += self._is_available(owner, pod)
                self._delete(owner, pod)
            if down >= budget:
                return

    def _revision_for(self, owner: Item, number: int, update: str) -> str:
        """Below the partition, pods come back as they were."""
        rolling = (owner["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
        current = (owner.get("status") or {}).get("currentRevision")
        below = number < _range(owner)[0] + rolling.get("partition", 0)
        return str(current) if below and (owner["metadata"]["uid"], current) in self._templates else update

    def _template(self, owner: Item, revision: str) -> Item:
        return self._templates[owner["metadata"]["uid"], revision]

    def _create(self, owner: Item, number: int, revision: str) -> None:
        name = owner["metadata"]["name"]
        pod = templates.pod_from(owner, self._template(owner, revision))
        meta, spec = pod["metadata"], pod["spec"]
        meta["name"] = f"{name}-{number}"
        meta["generateName"] = f"{name}-"
        meta["labels"] = {
            **meta.get("labels", {}),
            REVISION: revision,
            "statefulset.kubernetes.io/pod-name": meta["name"],
            "apps.kubernetes.io/pod-index": str(number),
        }
        spec["hostname"] = meta["name"]
        if owner["spec"].get("serviceName"):
            spec["subdomain"] = owner["spec"]["serviceName"]
        claims = owner["spec"].get("volumeClaimTemplates") or ()
        own = {c["metadata"]["name"] for c in claims}
        volumes = [v for v in spec.get("volumes") or () if v["name"] not in own]
        for claim in claims:
            claim_name = f"{claim['metadata']['name']}-{meta['name']}"
            self._create_claim(owner, claim, claim_name)
            volumes.append({"name": claim["metadata"]["name"], "persistentVolumeClaim": {"claimName": claim_name}})
        if volumes:
            spec["volumes"] = volumes
        text = f"Create Pod {meta['name']} in StatefulSet {name} successful"
        templates.create_pod(self.runtime, owner, pod, NAME, text)

    def _delete(self, owner: Item, pod: Item) -> None:
        text = f"Delete Pod {pod['metadata']['name']} in StatefulSet {owner['metadata']['name']} successful"
        templates.delete_pod(self.runtime, owner, pod, NAME, text)

    def _create_claim(self, owner: Item, template: Item, name: str) -> None:
        labels = {**(template["metadata"].get("labels") or {}), **(owner["spec"]["selector"].get("matchLabels") or {})}
        meta: Item = {"name": name, "namespace": owner["metadata"]["namespace"], "labels": labels}
        if _retention(owner, "whenDeleted") == "Delete":
            meta["ownerReferences"] = [controller_reference(owner)]
        try:
            self.store.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": template["spec"]})
        except AlreadyExists:
            return  # kept from an earlier life of the pod, as it should be

    def _hand_over_claims(self, owner: Item, pod: Item, when: str) -> None:
        """Let the pod's claims go with the pod, where the retention policy says so."""
        if _retention(owner, when) != "Delete":
            return
        reference = {**controller_reference(pod), "controller": False, "blockOwnerDeletion": False}
        reference |= {"apiVersion": "v1", "kind": "Pod"}
        for claim in owner["spec"].get("volumeClaimTemplates") or ():
            key = (key_of(owner)[0], f"{claim['metadata']['name']}-{pod['metadata']['name']}")
            found = self.view.get("v1", "PersistentVolumeClaim", key)
            if found is not None:
                others = [r for r in found["metadata"].get("ownerReferences") or () if r["uid"] != owner["metadata"]["uid"]]
                body = {"metadata": {"ownerReferences": [*others, reference]}}
                self.store.patch("v1", "PersistentVolumeClaim", *key, body)

    def _is_available(self, owner: Item, pod: Item) -> bool:
        if is_terminating(pod):
            return False
        wait_s = available_in_s(pod, owner["spec"].get("minReadySeconds", 0), self.runtime.now())
        if wait_s:
            self.after(wait_s, key_of(owner))
        return wait_s == 0

    def _status(self, owner: Item, pods: dict[int, Item]) -> None:
        update = _update_revision(owner)
        old = owner.get("status") or {}
        _, wanted = _range(owner)
        there = [p for p in pods.values() if not is_terminating(p)]
        updated = sum(_revision(p) == update for p in there)
        ready = sum(is_ready(p) for p in there)
        current = old.get("currentRevision") or update
        if updated == len(pods) == wanted == ready:
            current = update
        status: Item = {
            "observedGeneration": owner["metadata"].get("generation", 0),
            "replicas": len(pods),
            "readyReplicas": ready or None,
            "availableReplicas": sum(self._is_available(owner, p) for p in there),
            "currentReplicas": sum(_revision(p) == current for p in there) or None,
            "updatedReplicas": updated or None,
            "currentRevision": current,
            "updateRevision": update,
            "collisionCount": old.get("collisionCount", 0),
        }
        if any(old.get(field) != value for field, value in status.items()):
            self.store.patch("apps/v1", "StatefulSet", *key_of(owner), {"status": status}, "status")


def _range(owner: Item) -> tuple[int, int]:
    """(first ordinal, how many)."""
    return int((owner["spec"].get("ordinals") or {}).get("start", 0)), int(owner["spec"].get("replicas", 1))


def _update_revision(owner: Item) -> str:
    return f"{owner['metadata']['name']}-{templates.template_hash(owner['spec']['template'])}"


def _ordinal(owner: Item, pod: Item) -> int | None:
    name, _, number = pod["metadata"]["name"].rpartition("-")
    return int(number) if name == owner["metadata"]["name"] and number.isdigit() else None


def _revision(pod: Item) -> str:
    return str((pod["metadata"].get("labels") or {}).get(REVISION, ""))


def _retention(owner: Item, when: str) -> str:
    return str((owner["spec"].get("persistentVolumeClaimRetentionPolicy") or {}).get(when, "Retain"))
