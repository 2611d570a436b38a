"""What happens in a sandbox run, and when: a small script that stands beside the manifests as a `Scenario` document."""

import difflib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from kubewright.api import duration
from kubewright.errors import ManifestError

API_VERSION = "sandbox.kubewright.sh/v1"
KIND = "Scenario"
ACTIONS = ("apply", "scale", "delete", "interrupt")


class Scale(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: str
    name: str
    replicas: int
    namespace: str = "default"


class Delete(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: str
    name: str
    namespace: str = ""


class Interrupt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Spot (or any) machines that the cloud takes back, the oldest first."""

    capacity_type: str = "spot"
    node_pool: str = ""
    count: int = 1


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing to do at a time; `say` is printed with it."""

    at: str
    say: str = ""
    apply: dict[str, Any] | None = None
    scale: Scale | None = None
    delete: Delete | None = None
    interrupt: Interrupt | None = None

    @property
    def after(self) -> timedelta:
        return duration.parse(self.at)

    @property
    def action(self) -> dict[str, Any] | Scale | Delete | Interrupt | None:
        return self.apply or self.scale or self.delete or self.interrupt


def read(document: Mapping[str, Any], where: str) -> tuple[Step, ...]:
    """The steps of a Scenario document, by time.

    Raises:
        ManifestError: names `where`, the step and the field, and what may stand there.
    """
    steps, problems = [], []
    written = document.get("steps")
    if not isinstance(written, Sequence) or isinstance(written, str) or not written:
        raise ManifestError(
            [f"{where}: Scenario: steps: expected a list of steps such as {{at: 2m, scale: {{...}}}}, found {written!r}"]
        )
    for index, item in enumerate(written):
        place = f"{where}: Scenario: steps[{index}]"
        unknown = sorted(set(item) - set(Step.__struct_fields__)) if isinstance(item, Mapping) else []
        for name in unknown:
            near = difflib.get_close_matches(name, Step.__struct_fields__, 1)
            problems.append(
                f"{place}.{name}: unknown field; "
                + (f"did you mean {near[0]}?" if near else f"a step has at, say and one of {', '.join(ACTIONS)}")
            )
        if unknown:
            continue
        try:
            step = msgspec.convert(item, Step)
            step.after  # noqa: B018 (reads the duration)
        except (msgspec.ValidationError, ValueError) as bad:
            problems.append(f"{place}: {bad}")
            continue
        if step.action is None or sum(getattr(step, name) is not None for name in ACTIONS) != 1:
            problems.append(f"{place}: expected exactly one of {', '.join(ACTIONS)}")
        steps.append(step)
    if problems:
        raise ManifestError(problems)
    return tuple(sorted(steps, key=lambda s: s.after))
