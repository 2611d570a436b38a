"""A column of a table, and the columns that CustomResourceDefinitions describe by JSONPath."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from kubewright.sim.apiserver.kinds import Kind

Item = Mapping[str, Any]
Cell = str | int | bool | float | None

_FILTER = re.compile(r"""^\?\(@\.(?P<path>.+?)\s*==\s*["'](?P<value>.*)["']\)$""")


class Column(msgspec.Struct, frozen=True):
    """`priority` above 0 is shown by `-o wide` only."""

    name: str
    cell: Callable[[Item, datetime], Cell]
    type: str = "string"
    priority: int = 0
    description: str = ""


def of_custom(kind: Kind) -> list[Column]:
    """The columns of a custom kind: its name, then what its definition says, else its age."""
    described = kind.columns or ({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},)
    return [Column("Name", name_of), *(_described(column) for column in described)]


def name_of(obj: Item, now: datetime) -> Cell:
    del now
    return str(obj["metadata"]["name"])


def age_of(obj: Item, now: datetime) -> Cell:
    return since(obj["metadata"].get("creationTimestamp"), now)


def since(stamp: str | None, now: datetime) -> str:
    """The time since a wire timestamp, for people."""
    if not stamp:
        return "<unknown>"
    return span((now - datetime.fromisoformat(stamp).astimezone(UTC)).total_seconds())


def span(seconds: float) -> str:
    """Source: k8s.io/apimachinery pkg/util/duration HumanDuration."""
    s = int(seconds)
    if s < -1:
        return "<invalid>"
    s = max(s, 0)
    minutes, hours, days = s // 60, s // 3600, s // 86400
    if s < 120:
        return f"{s}s"
    if minutes < 10:
        return f"{minutes}m" + (f"{s % 60}s" if s % 60 else "")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h" + (f"{minutes % 60}m" if minutes % 60 else "")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d" + (f"{hours % 24}h" if hours % 24 else "")
    if days < 2 * 365:
        return f"{days}d"
    if days < 8 * 365:
        return f"{days // 365}y" + (f"{days % 365}d" if days % 365 else "")
    return f"{days // 365}y"


def _described(column: Mapping[str, Any]) -> Column:
    steps = steps_of(column["jsonPath"])
    as_date = column["type"] == "date"

    def cell(obj: Item, now: datetime) -> Cell:
        found = find(obj, steps)
        if found is None:
            return None
        if as_date:
            return since(found, now) if isinstance(found, str) else "<invalid>"
        if isinstance(found, dict | list):
            return msgspec.json.encode(found).decode()
        return found if isinstance(found, str | int | bool | float) else str(found)

    return Column(column["name"], cell, column["type"], column.get("priority", 0), column.get("description", ""))


def steps_of(path: str) -> list[str]:
    r"""`.status.conditions[?(@.type=="Ready")].status` → its steps; a backslash keeps a dot inside a step."""
    steps: list[str] = []
    at = 0
    while at < len(path):
        if path[at] == ".":
            found = re.compile(r"(?:\\.|[^.\[\\])+").match(path, at + 1)
            assert found is not None, f"not a JSONPath that columns use: {path}"
            steps.append(re.sub(r"\\(.)", r"\1", found[0]))
            at = found.end()
        else:
            end = path.index("]", at)
            steps.append(path[at + 1 : end].strip("'\""))
            at = end + 1
    return steps


def find(obj: Any, steps: list[str]) -> Any:
    """What the steps lead to first, or None."""
    for n, step in enumerate(steps):
        if isinstance(obj, Mapping):
            obj = obj.get(step)
        elif isinstance(obj, list):
            found = _FILTER.match(step)
            if found is not None:
                obj = next((one for one in obj if find(one, found["path"].split(".")) == found["value"]), None)
            elif step == "*":
                return next((r for one in obj if (r := find(one, steps[n + 1 :])) is not None), None)
            else:
                obj = obj[int(step)] if step.lstrip("-").isdigit() and -len(obj) <= int(step) < len(obj) else None
        if obj is None:
            return None
    return obj
