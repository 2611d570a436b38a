"""What happens in a sandbox run, and when: a small script that stands beside the manifests as a `Scenario` document."""

import difflib
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from kubewright.api import duration
from kubewright.errors import ManifestError

API_VERSION = "sandbox.kubewright.sh/v1"
KIND = "Scenario"
EXAMPLES = {
    "apply": "{at: 2m, apply: {apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}}",
    "scale": "{at: 2m, scale: {kind: Deployment, namespace: default, name: web, replicas: 10}}",
    "delete": "{at: 2m, delete: {kind: Deployment, namespace: default, name: web}}",
    "interrupt": "{at: 2m, interrupt: {capacityType: spot, count: 1}}",
}
"""Each action as a whole step."""
ACTIONS = tuple(EXAMPLES)
CAPACITY_TYPES = ("spot", "on-demand", "reserved")

_FIELDS = ("at", "say", *ACTIONS)
_PLACE = re.compile(r"^(?P<says>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?$", re.DOTALL)


class Scale(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: str
    name: str
    replicas: int
    namespace: str = "default"


class Delete(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: str
    name: str
    namespace: str = "default"
    """Not looked at for kinds that have none."""


class Interrupt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Spot (or any) machines that the cloud takes back, the oldest first."""

    capacity_type: str = "spot"
    node_pool: str = ""
    count: int = 1


class Step(msgspec.Struct, frozen=True):
    """One thing to do at a time; `say` is printed with it."""

    at: str
    say: str = ""
    apply: dict[str, Any] | None = None
    scale: Scale | None = None
    delete: Delete | None = None
    interrupt: Interrupt | None = None
    where: str = ""
    """File, line and index, for messages; nobody writes it."""

    @property
    def after(self) -> timedelta:
        return duration.parse(self.at)

    @property
    def action(self) -> dict[str, Any] | Scale | Delete | Interrupt:
        return next(a for a in (self.apply, self.scale, self.delete, self.interrupt) if a is not None)


def read(document: Mapping[str, Any], where: str) -> tuple[Step, ...]:
    """The steps of a Scenario document, by time.

    Raises:
        ManifestError: names `where`, the step and the field, and what may stand there.
    """
    unknown = [
        f"{where}: Scenario: {name}: unknown field; a Scenario has apiVersion, kind, metadata and steps"
        for name in document
        if name not in ("apiVersion", "kind", "metadata", "steps")
    ]
    written = document.get("steps")
    if not isinstance(written, Sequence) or isinstance(written, str) or not written:
        text = f"{where}: Scenario: steps: found {written!r}; write a list of steps such as\n    - {EXAMPLES['scale']}"
        raise ManifestError([*unknown, text])
    steps, problems = [], unknown
    for index, item in enumerate(written):
        place = f"{where}: Scenario: steps[{index}]"
        wrong = _wrong(item, place)
        problems += wrong
        if not wrong:
            steps.append(msgspec.structs.replace(msgspec.convert(item, Step), where=place))
    if problems:
        raise ManifestError(problems)
    return tuple(sorted(steps, key=lambda s: s.after))


def _wrong(item: Any, place: str) -> list[str]:
    """Everything that is wrong with one step as it is written."""
    if not isinstance(item, Mapping):
        return [f"{place}: found {item!r}; write a step such as\n    - {EXAMPLES['scale']}"]
    problems = [f"{place}.{name}: unknown field; {_meant(str(name))}" for name in item if name not in _FIELDS]
    chosen = [name for name in ACTIONS if item.get(name) is not None]
    if not problems and len(chosen) != 1:
        found = " and ".join(chosen) or "none"
        problems.append(f"{place}: found {found}; a step has exactly one of {', '.join(ACTIONS)}")
    problems += _wrong_time(item.get("at"), place)
    if problems:
        return problems
    try:
        step = msgspec.convert(item, Step)
    except msgspec.ValidationError as bad:
        return [_explained(str(bad), item, place, chosen[0])]
    match step.action:
        case Scale(replicas=replicas) if replicas < 0:
            return [f"{place}.scale.replicas: found {replicas}; write 0 or more"]
        case Interrupt(capacity_type=kind) if kind not in CAPACITY_TYPES:
            return [f"{place}.interrupt.capacityType: found {kind!r}; write one of {', '.join(CAPACITY_TYPES)}"]
        case Interrupt(count=count) if count < 1:
            return [f"{place}.interrupt.count: found {count}; write 1 or more"]
    return []


def _wrong_time(at: Any, place: str) -> list[str]:
    try:
        if isinstance(at, str) and duration.parse(at) >= timedelta():
            return []
    except ValueError:
        pass
    return [f"{place}.at: found {at!r}; write the time since the start, for example 2m or 1h30m"]


def _meant(name: str) -> str:
    near = difflib.get_close_matches(name, _FIELDS, 1)
    return f"did you mean {near[0]}?" if near else f"a step has at, say and one of {', '.join(ACTIONS)}"


def _explained(says: str, item: Mapping[str, Any], place: str, action: str) -> str:
    """The decoder's complaint with the field in our form, what was found there, and a good step."""
    taken = _PLACE.match(says)
    assert taken is not None
    path = taken["path"] or ""
    found: Any = item
    for name in path.split(".") if path else ():
        found = found.get(name) if isinstance(found, Mapping) else None
    field = f"{place}.{path}" if path else place
    text = taken["says"].replace("`", "").replace("Object ", "")
    return f"{field}: {text[0].lower()}{text[1:]}, found {found!r}; write for example\n    - {EXAMPLES[action]}"
