"""Tells people why their pods have no node: Karpenter's words first, since tools match on them, then kubewright's.

What is in the way and what would help takes some solves to find. They are made beside the passes, once for a workload and a
reason, and only when an event is due; the event waits for them.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

import structlog

from kubewright.api.core import Pod
from kubewright.clock import Clock
from kubewright.controllers.actor import Actor
from kubewright.explain.why import brief
from kubewright.lifecycle.effects import EventKind, Publish
from kubewright.lifecycle.unused import workload
from kubewright.scheduling.refusal import Refusal
from kubewright.solver.problem import Plan, Problem

WINDOW = timedelta(minutes=5)
"""The same reason for the same pod is told once in it; another reason at once. Source: spec/scheduling 1.9."""
REMEMBERED = 20_000
"""Reasons told, of all pods; the oldest are forgotten first, and then told again."""
REMEMBERED_WORDS = 1_000
WORDS_LAST = timedelta(minutes=15)
"""How long what was found for a workload and a reason is told again without being looked for."""
MOST_EXPLAINED = 20
"""Workloads that one pass looks for words for; the others are told in Karpenter's, and have their turn the next time."""
_NUMBERS = re.compile(r"\d+")

Say = Callable[[str, tuple[Refusal, ...]], str]
"""Pod key and refusals → Karpenter's words, "" for what nobody needs to hear."""
Brief = Callable[[Problem, Plan, str], str]


class _Due:
    """What one pass has to tell: per workload and reason, the pods and the words so far."""

    def __init__(self, problem: Problem, plan: Plan) -> None:
        self.problem = problem
        self.plan = plan
        self.groups: dict[tuple[str, str], list[Pod]] = {}


class Failures:
    """`ignored` and `unplaced` say what there is to tell, `run` finds the words and tells."""

    def __init__(self, actor: Actor, clock: Clock, say: Say, brief: Brief = brief) -> None:
        self._actor = actor
        self._clock = clock
        self._say = say
        self._brief = brief
        self._told: OrderedDict[tuple[str, str], datetime] = OrderedDict()
        self._words: OrderedDict[tuple[str, str], tuple[str, datetime]] = OrderedDict()
        self._due: _Due | None = None
        self._left = MOST_EXPLAINED
        self._wake = asyncio.Event()
        self._log = structlog.get_logger("kubewright.provisioner")

    def ignored(self, waiting: Mapping[str, Pod], refused: Mapping[str, tuple[Refusal, ...]]) -> None:
        """Pods that a pass leaves out; the refusal says it all."""
        for key in sorted(refused):
            pod, text = waiting.get(key), self._say(key, refused[key])
            if pod is not None and text and self._is_news(pod, text):
                self._tell(pod, text)

    def unplaced(self, waiting: Mapping[str, Pod], problem: Problem, plan: Plan) -> None:
        """Pods that no place takes; words that are not found before the next pass are left to that one."""
        due = _Due(problem, plan)
        for key in sorted(plan.unplaced):
            pod, text = waiting.get(key), self._say(key, plan.unplaced[key])
            if pod is not None and text and self._is_news(pod, text):
                due.groups.setdefault((workload(pod), text), []).append(pod)
        self._due = due if due.groups else None
        if due.groups:
            self._wake.set()

    async def run(self) -> None:
        """Explain and tell until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            due, self._left = self._due, MOST_EXPLAINED
            while due is not None and due is self._due and due.groups:
                group = next(iter(due.groups))
                pods = due.groups.pop(group)
                words = await self._explained(group, due.problem, due.plan, pods[0])
                for pod in pods:
                    if self._is_news(pod, group[1]):
                        self._tell(pod, group[1], words)

    async def _explained(self, group: tuple[str, str], problem: Problem, plan: Plan, pod: Pod) -> str:
        group = (group[0], reason(group[1]))
        words, since = self._words.get(group, ("", None))
        if since is not None and self._clock.now() - since < WORDS_LAST:
            return words
        if not self._left:
            return words
        self._left -= 1
        try:
            # In a thread, so that leases and watches go on; a virtual loop runs it inline.
            words = await asyncio.to_thread(self._brief, problem, plan, pod.key)
        except Exception as error:  # noqa: BLE001 — the event is told all the same, and the mistake is not hidden
            self._log.error("explaining a pod failed", Pod={"name": pod.name, "namespace": pod.namespace}, exc_info=error)
            words = ""
        self._words[group] = (words, self._clock.now())
        self._words.move_to_end(group)
        while len(self._words) > REMEMBERED_WORDS:
            self._words.popitem(last=False)
        return words

    def _is_news(self, pod: Pod, text: str) -> bool:
        last = self._told.get((pod.metadata.uid, reason(text)))
        return last is None or self._clock.now() - last >= WINDOW

    def _tell(self, pod: Pod, text: str, words: str = "") -> None:
        mark = (pod.metadata.uid, reason(text))
        self._told[mark] = self._clock.now()
        self._told.move_to_end(mark)
        while len(self._told) > REMEMBERED:
            self._told.popitem(last=False)
        said = f"{text}; kubewright: {words}" if words else text
        self._log.info("could not schedule pod", Pod={"name": pod.name, "namespace": pod.namespace}, error=said)
        told = f"Failed to schedule pod, {said}"
        self._actor.publish(Publish(pod, EventKind.WARNING, "FailedScheduling", told, mark, WINDOW))


def reason(text: str) -> str:
    """What makes two texts tell of one reason: all but numbers, since counts of a topology change with every pod that moves."""
    return _NUMBERS.sub("#", text)
