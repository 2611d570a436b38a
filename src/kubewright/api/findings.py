"""What is wrong with a manifest, said so that it can be mended: the field, what was found, and the lines to write instead."""

import difflib
import re
from collections.abc import Iterable
from typing import Any

import msgspec
import yaml

_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


class Finding(msgspec.Struct, frozen=True):
    """One problem of one object. `mend` is a structure to be shown as YAML, or None where words must do."""

    field: str
    says: str
    mend: Any = None

    def render(self, where: str, subject: str) -> str:
        """Whole lines for people; `where` is file and line, `subject` the object."""
        lines = f"{where}: {subject}: {self.field}: {self.says}"
        if self.mend is None:
            return lines
        return f"{lines}; write\n{indent(dump(self.mend))}"


def dump(value: Any) -> str:
    """YAML as people write it, without a last newline."""
    return yaml.dump(value, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=120).rstrip("\n")


def indent(text: str, by: str = "    ") -> str:
    return "\n".join(by + line for line in text.split("\n"))


def nest(path: str, value: Any) -> Any:
    """The smallest structure that has `value` at `path`: `spec.a[0].b` is {spec: {a: [{b: value}]}}."""
    result = value
    for name, index in reversed(_STEP.findall(path)):
        result = [result] if index else {name: result}
    return result


def parent(path: str) -> str:
    """The path one step up; "" at the top."""
    return re.sub(r"(^|\.)[^.\[\]]+$|\[\d+\]$", "", path)


def leaf(path: str) -> str:
    return path.rsplit(".", 1)[-1]


_SYNONYMS = {
    "equal": "In",
    "equals": "In",
    "=": "In",
    "==": "In",
    "notequal": "NotIn",
    "notequals": "NotIn",
    "!=": "NotIn",
    "greaterthan": "Gt",
    ">": "Gt",
    "lessthan": "Lt",
    "<": "Lt",
}


def nearest(word: str, known: Iterable[str]) -> str | None:
    """What `word` was probably meant to be."""
    names = sorted(known)
    if _SYNONYMS.get(word.lower()) in names:
        return _SYNONYMS[word.lower()]
    by_lower = {name.lower(): name for name in names}
    if word.lower() in by_lower:
        return by_lower[word.lower()]
    close = difflib.get_close_matches(word.lower(), sorted(by_lower), n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


NO_QUANTITY = "which is no quantity: a number, then nothing or one of n u m k M G T P E Ki Mi Gi Ti Pi Ei"


def near_quantity(text: str) -> str:
    """The same number with a suffix that exists: `1 GB` is 1G, `512mb` is 512M, `2gib` is 2Gi."""
    shape = re.match(r"\s*[+-]?(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text, re.ASCII)
    if shape is None:
        return "100m"
    letters = shape[2].lower().removesuffix("b")
    known = {"k": "k", "m": "M", "g": "G", "t": "T", "ki": "Ki", "mi": "Mi", "gi": "Gi", "ti": "Ti", "mm": "m"}
    return shape[1] + known.get(letters, "")


def quoted(value: Any) -> str:
    """A value as a message shows it; long ones are cut."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 120 else text[:117] + "..."


class _Plain(yaml.SafeDumper):
    """Block style; no aliases; lists indented under their key."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is PyYAML's
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 - the signature is PyYAML's
        super().increase_indent(flow, False)
