"""Jobs: pods that end, as many at a time and in all as asked, and what became of them.

Refused aloud, by an event and by starting nothing: per-index back-off and success policies.

Source: k8s.io/kubernetes v1.36 pkg/controller/job (job_controller.go, indexed_job_utils.go, pod_failure_policy.go).
"""

from kubewright.sim.objects import (
    Item,
    Key,
    condition,
    is_controlled_by,
    is_ready,
    is_terminal,
    is_terminating,
    is_true,
    key_of,
    moment,
    stamp,
    with_condition,
)
from kubewright.sim.runtime import Reconciler
from kubewright.sim.workloads import templates

NAME = "job-controller"
TRACKING = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
_FIRST_BACKOFF_S, _LAST_BACKOFF_S = 10.0, 600.0
_NOT_DONE = ("backoffLimitPerIndex", "successPolicy", "maxFailedIndexes")


class Jobs(Reconciler):
    def start(self) -> None:
        self._last_failure: dict[str, float] = {}
        """Job's uid → loop time of its last failed pod."""
        self.view.on("Job", self.enqueue_object)
        self.view.on("Pod", self.enqueue_owner("Job"))

    def reconcile(self, key: Key) -> None:
        job = self.view.get("batch/v1", "Job", key)
        if job is None:
            return
        pods = [p for p in self.view.owned(job["metadata"]["uid"], "Pod") if is_controlled_by(p, job)]
        if is_terminating(job) or _is_finished(job):
            for pod in pods:
                self._release(pod)
            self._expire(job)
            return
        if unknown := [field for field in _NOT_DONE if job["spec"].get(field) is not None]:
            text = f"the pretend controller does not do spec.{unknown[0]}: remove the field; no pods are started"
            self.runtime.events.tell(job, "Warning", "Unsupported", text, NAME)
            return
        self._advance(job, pods)

    def _advance(self, job: Item, pods: list[Item]) -> None:
        status = dict(job.get("status") or {})
        if "startTime" not in status and not job["spec"].get("suspend"):
            status["startTime"] = stamp(self.runtime.now())
        broken = self._count_ended(job, status, pods)
        active = [p for p in pods if not is_terminal(p) and not is_terminating(p)]
        failure = broken or self._failure(job, status, active)
        if failure is not None:
            self._finish(job, status, active, "Failed", *failure)
        elif self._is_complete(job, status, active):
            self._finish(job, status, active, "Complete", "CompletionsReached", "Reached expected number of succeeded pods")
        else:
            active = self._suspend(job, status, active) if job["spec"].get("suspend") else self._resize(job, status, active)
            self._write(job, status, active)

    def _count_ended(self, job: Item, status: Item, pods: list[Item]) -> tuple[str, str] | None:
        """Add pods that ended since the last turn to `status` and let them go; the failure that ends the Job at once, if any."""
        broken: tuple[str, str] | None = None
        done = _indexes(status.get("completedIndexes", ""))
        ended = [p for p in pods if TRACKING in (p["metadata"].get("finalizers") or ()) and (is_terminal(p) or is_terminating(p))]
        for pod in ended:
            index = (pod["metadata"].get("annotations") or {}).get(INDEX)
            if pod["status"].get("phase") == "Succeeded":
                if index is None:
                    status["succeeded"] = status.get("succeeded", 0) + 1
                else:
                    done.add(int(index))
                continue
            action, why = _policy(job, pod)
            if action == "Ignore":
                continue
            status["failed"] = status.get("failed", 0) + 1
            self._last_failure[job["metadata"]["uid"]] = self.runtime.now_s()
            if action == "FailJob":
                broken = ("PodFailurePolicy", why)
        if done:
            status["completedIndexes"] = _shown(done)
            status["succeeded"] = len(done)
        if ended:
            # What was counted is written before the pods may vanish.
            self._write(job, status, [p for p in pods if p not in ended])
            for pod in ended:
                self._release(pod)
        return broken

    def _release(self, pod: Item) -> None:
        finalizers = pod["metadata"].get("finalizers") or []
        if TRACKING in finalizers:
            body = {"metadata": {"finalizers": [f for f in finalizers if f != TRACKING] or None}}
            self.store.patch("v1", "Pod", *key_of(pod), body)

    def _failure(self, job: Item, status: Item, active: list[Item]) -> tuple[str, str] | None:
        spec = job["spec"]
        limit = spec.get("backoffLimit", 6)
        restarts = sum(s.get("restartCount", 0) for p in active for s in p["status"].get("containerStatuses") or ())
        on_failure = spec["template"]["spec"].get("restartPolicy") == "OnFailure"
        if status.get("failed", 0) > limit or (on_failure and restarts and restarts >= limit):
            return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        deadline = spec.get("activeDeadlineSeconds")
        if deadline is not None and "startTime" in status and not spec.get("suspend"):
            left_s = deadline - (self.runtime.now() - moment(status["startTime"])).total_seconds()
            if left_s <= 0:
                return "DeadlineExceeded", "Job was active longer than specified deadline"
            self.after(left_s, key_of(job))
        return None

    @staticmethod
    def _is_complete(job: Item, status: Item, active: list[Item]) -> bool:
        completions = job["spec"].get("completions")
        succeeded = int(status.get("succeeded", 0))
        if completions is None:
            return succeeded > 0 and not active
        return succeeded >= int(completions)

    def _finish(self, job: Item, status: Item, active: list[Item], kind: str, reason: str, message: str) -> None:
        now = self.runtime.now()
        for pod in active:
            templates.delete_pod(self.runtime, job, pod, NAME)
            self._release(pod)
        before = "SuccessCriteriaMet" if kind == "Complete" else "FailureTarget"
        conditions = status.get("conditions") or []
        for name in (before, kind):
            extra = {"lastProbeTime": stamp(now)}
            conditions = with_condition(conditions, name, "True", now, reason=reason, message=message, **extra)
        status["conditions"] = conditions
        if kind == "Complete":
            status["completionTime"] = stamp(now)
            self.runtime.events.tell(job, "Normal", "Completed", "Job completed", NAME)
        else:
            self.runtime.events.tell(job, "Warning", reason, message, NAME)
        self._last_failure.pop(job["metadata"]["uid"], None)
        self._write(job, status, [])

    def _suspend(self, job: Item, status: Item, active: list[Item]) -> list[Item]:
        for pod in active:
            templates.delete_pod(self.runtime, job, pod, NAME)
            self._release(pod)
        status["conditions"] = with_condition(
            status.get("conditions") or (),
            "Suspended",
            "True",
            self.runtime.now(),
            reason="JobSuspended",
            message="Job suspended",
        )
        status["startTime"] = None
        return []

    def _resize(self, job: Item, status: Item, active: list[Item]) -> list[Item]:
        if is_true({"status": status}, "Suspended"):
            status["conditions"] = with_condition(
                status["conditions"], "Suspended", "False", self.runtime.now(), reason="JobResumed", message="Job resumed"
            )
        spec = job["spec"]
        parallelism, completions = int(spec.get("parallelism", 1)), spec.get("completions")
        succeeded = int(status.get("succeeded", 0))
        if completions is None:
            wanted = min(len(active), parallelism) if succeeded else parallelism
        else:
            wanted = min(parallelism, int(completions) - succeeded)
        if len(active) > wanted:
            order = sorted(active, key=lambda p: (bool(p["spec"].get("nodeName")), is_ready(p), p["metadata"]["name"]))
            for pod in order[: len(active) - wanted]:
                templates.delete_pod(self.runtime, job, pod, NAME)
            return order[len(active) - wanted :]
        missing = wanted - len(active)
        if missing and self._waits(job, status):
            return active
        return [*active, *self._create(job, status, active, missing)]

    def _waits(self, job: Item, status: Item) -> bool:
        """After a failure the next pod waits, twice as long each time."""
        last = self._last_failure.get(job["metadata"]["uid"])
        if last is None:
            return False
        failed = max(1, int(status.get("failed", 0)))
        left_s = last + min(_LAST_BACKOFF_S, _FIRST_BACKOFF_S * 2 ** (failed - 1)) - self.runtime.now_s()
        if left_s > 1e-9:
            self.after(left_s, key_of(job))
            return True
        return False

    def _create(self, job: Item, status: Item, active: list[Item], count: int) -> list[Item]:
        made: list[Item] = []
        indexed = job["spec"].get("completionMode") == "Indexed"
        numbers: list[int] = []
        if indexed:
            taken = _indexes(status.get("completedIndexes", "")) | {_index(p) for p in active}
            numbers = [n for n in range(int(job["spec"]["completions"])) if n not in taken]
        for number in range(min(count, len(numbers)) if indexed else count):
            pod = templates.pod_from(job, job["spec"]["template"])
            meta = pod["metadata"]
            name, uid = job["metadata"]["name"], job["metadata"]["uid"]
            meta["labels"] = {
                **meta.get("labels", {}),
                "batch.kubernetes.io/controller-uid": uid,
                "batch.kubernetes.io/job-name": name,
                "controller-uid": uid,
                "job-name": name,
            }
            meta["finalizers"] = [*meta.get("finalizers", ()), TRACKING]
            meta["generateName"] = f"{name}-"
            if indexed:
                index = str(numbers[number])
                meta["annotations"] = {**meta.get("annotations", {}), INDEX: index}
                meta["labels"][INDEX] = index
                meta["generateName"] = f"{name}-{index}-"
                pod["spec"]["hostname"] = f"{name}-{index}"
                for field in ("containers", "initContainers"):
                    if field in pod["spec"]:
                        pod["spec"][field] = [_with_index(c) for c in pod["spec"][field]]
            made.append(templates.create_pod(self.runtime, job, pod, NAME))
        return made

    def _write(self, job: Item, status: Item, active: list[Item]) -> None:
        status["active"] = len(active) or None
        status["ready"] = sum(is_ready(p) for p in active)
        status["terminating"] = 0
        status["uncountedTerminatedPods"] = {}
        old = job.get("status") or {}
        if any(old.get(field) != value for field, value in status.items()):
            self.store.patch("batch/v1", "Job", *key_of(job), {"status": status}, "status")

    def _expire(self, job: Item) -> None:
        ttl_s = job["spec"].get("ttlSecondsAfterFinished")
        if ttl_s is None or is_terminating(job):
            return
        ended = condition(job, "Complete") or condition(job, "Failed")
        assert ended is not None
        left_s = ttl_s - (self.runtime.now() - moment(ended["lastTransitionTime"])).total_seconds()
        if left_s > 0:
            self.after(left_s, key_of(job))
        else:
            self.store.delete("batch/v1", "Job", *key_of(job), uid=job["metadata"]["uid"], propagation="Foreground")


def _is_finished(job: Item) -> bool:
    return is_true(job, "Complete") or is_true(job, "Failed")


def _policy(job: Item, pod: Item) -> tuple[str, str]:
    """(Ignore, FailJob or Count; why), by the first rule of podFailurePolicy that fits."""
    for number, rule in enumerate((job["spec"].get("podFailurePolicy") or {}).get("rules") or ()):
        name = pod["metadata"]["name"]
        for wanted in rule.get("onPodConditions") or ():
            found = condition(pod, wanted["type"])
            if found is not None and found["status"] == wanted.get("status", "True"):
                why = (
                    f"Pod {'/'.join(key_of(pod))} has condition {wanted['type']} matching {rule['action']} rule at index {number}"
                )
                return rule["action"], why
        codes = rule.get("onExitCodes")
        for status in (pod["status"].get("containerStatuses") or ()) if codes else ():
            ended = status.get("state", {}).get("terminated")
            if ended is None or not ended["exitCode"] or codes.get("containerName") not in (None, status["name"]):
                continue
            if (ended["exitCode"] in codes["values"]) == (codes["operator"] == "In"):
                why = (
                    f"Container {status['name']} for pod {key_of(pod)[0]}/{name} failed with exit code {ended['exitCode']} "
                    f"matching {rule['action']} rule at index {number}"
                )
                return rule["action"], why
    return "Count", ""


def _with_index(container: Item) -> Item:
    """The container with its number in its environment, unless it says something of its own there."""
    env = container.get("env") or []
    if any(one["name"] == "JOB_COMPLETION_INDEX" for one in env):
        return container
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}}
    return {**container, "env": [*env, {"name": "JOB_COMPLETION_INDEX", "valueFrom": source}]}


def _index(pod: Item) -> int:
    return int((pod["metadata"].get("annotations") or {}).get(INDEX, "-1"))


def _indexes(text: str) -> set[int]:
    """`1,3-5` as numbers."""
    found: set[int] = set()
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def _shown(numbers: set[int]) -> str:
    """Numbers as the API shows them: runs of three or more as `3-5`."""
    parts: list[str] = []
    run: list[int] = []
    for number in [*sorted(numbers), -1]:
        if run and number != run[-1] + 1:
            if len(run) > 2:
                parts.append(f"{run[0]}-{run[-1]}")
            else:
                parts += [str(n) for n in run]
            run = []
        run.append(number)
    return ",".join(parts)
