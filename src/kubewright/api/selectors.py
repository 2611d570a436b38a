"""Label selectors and field selectors: read from text, and asked of objects.

Source: k8s.io/apimachinery labels.Parse, fields.ParseSelector, metav1.LabelSelectorAsSelector.
"""

import re
from collections.abc import Mapping

import msgspec

from kubewright.api import labels as label_names
from kubewright.api.meta import Labels, LabelSelector

_TOKEN = re.compile(r"\s*(==|!=|[=!(),<>]|[^\s=!(),<>]+)")
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)


class LabelTerm(msgspec.Struct, frozen=True):
    """One requirement: `operator` is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Labels) -> bool:
        present = self.key in labels
        match self.operator:
            case "In":
                return present and labels[self.key] in self.values
            case "NotIn":
                return not present or labels[self.key] not in self.values
            case "Exists":
                return present
            case "DoesNotExist":
                return not present
            case "Gt" | "Lt":
                return present and _compare(labels[self.key], self.operator, self.values[0])
        raise ValueError(f"label selector operator {self.operator!r} of key {self.key!r}: use In, NotIn, Exists or DoesNotExist")


class LabelQuery(msgspec.Struct, frozen=True):
    """All terms must hold; no terms match everything."""

    terms: tuple[LabelTerm, ...] = ()

    def matches(self, labels: Labels) -> bool:
        return all(term.matches(labels) for term in self.terms)


class FieldQuery(msgspec.Struct, frozen=True):
    """(path, value, equal?) terms, which must all hold."""

    terms: tuple[tuple[str, str, bool], ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(path for path, _, _ in self.terms)

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Whether an object with these selectable fields matches; a field it lacks is the empty string."""
        return all((fields.get(path, "") == value) == equal for path, value, equal in self.terms)


def matches(selector: LabelSelector | None, labels: Labels) -> bool:
    """Whether a LabelSelector picks an object with these labels: none selects nothing, an empty one everything.

    Raises:
        ValueError: an operator that the API server would have refused.
    """
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    return all(LabelTerm(e.key, e.operator, e.values).matches(labels) for e in selector.match_expressions)


def parse_labels(text: str) -> LabelQuery:
    """A label selector as `kubectl -l` and list calls write it: `a=b,c!=d,e in (f,g),h,!i,j>1`.

    Raises:
        ValueError: not a selector; the message quotes the text and says where reading stopped.
    """
    tokens = _tokens(text)
    terms: list[LabelTerm] = []
    at = 0
    while at < len(tokens):
        term, at = _term(text, tokens, at)
        terms.append(term)
        if at < len(tokens):
            if tokens[at] != "," or at + 1 == len(tokens):
                raise ValueError(
                    f"unable to parse label selector {text!r}: found '{tokens[at]}', expected: ',' and a requirement"
                )
            at += 1
    return LabelQuery(tuple(terms))


def parse_fields(text: str) -> FieldQuery:
    r"""A field selector: `metadata.name=x,status.phase!=Running`; a backslash escapes `,`, `=` and itself.

    Raises:
        ValueError: not a selector.
    """
    terms: list[tuple[str, str, bool]] = []
    for part in re.split(r"(?<!\\),", text):
        if not part:
            continue
        shape = re.fullmatch(r"([^=!]*)(!=|==|=)(.*)", part, re.DOTALL)
        if shape is None:
            raise ValueError(f"invalid selector: '{text}'; can't understand '{part}'")
        terms.append((shape[1], re.sub(r"\\([\\,=])", r"\1", shape[3]), shape[2] != "!="))
    return FieldQuery(tuple(terms))


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    at = 0
    while at < len(text.rstrip()):
        found = _TOKEN.match(text, at)
        assert found is not None, "every character is a token or part of one"
        tokens.append(found[1])
        at = found.end()
    return tokens


def _term(text: str, tokens: list[str], at: int) -> tuple[LabelTerm, int]:
    def expect(index: int, what: str) -> str:
        if index >= len(tokens):
            raise ValueError(f"unable to parse label selector {text!r}: found '', expected: {what}")
        return tokens[index]

    if tokens[at] == "!":
        return LabelTerm(_key(text, expect(at + 1, "a key")), "DoesNotExist"), at + 2
    key = _key(text, tokens[at])
    if at + 1 >= len(tokens) or tokens[at + 1] == ",":
        return LabelTerm(key, "Exists"), at + 1
    operator = tokens[at + 1]
    if operator in ("in", "notin"):
        values, end = _values(text, tokens, at + 2)
        return LabelTerm(key, "In" if operator == "in" else "NotIn", values), end
    names = {"=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt"}
    if operator not in names:
        raise ValueError(f"unable to parse label selector {text!r}: found '{operator}', expected: in, notin, =, ==, !=, gt, lt")
    value = "" if at + 2 >= len(tokens) or tokens[at + 2] == "," else tokens[at + 2]
    if names[operator] in ("Gt", "Lt") and not _INTEGER.fullmatch(value):
        raise ValueError(f"unable to parse label selector {text!r}: '>' and '<' take an integer, found {value!r}")
    return LabelTerm(key, names[operator], (_value(text, value),)), at + 2 + bool(value)


def _values(text: str, tokens: list[str], at: int) -> tuple[tuple[str, ...], int]:
    if at >= len(tokens) or tokens[at] != "(" or ")" not in tokens[at:]:
        raise ValueError(f"unable to parse label selector {text!r}: expected a list in parentheses after in or notin")
    end = tokens.index(")", at)
    values: list[str] = [""]
    for word in tokens[at + 1 : end]:
        if word == ",":
            values.append("")
        elif values[-1] or word in ("(", "=", "==", "!=", "!", "<", ">"):
            raise ValueError(f"unable to parse label selector {text!r}: found '{word}', expected: ',' or ')'")
        else:
            values[-1] = word
    return tuple(_value(text, value) for value in values), end + 1


def _key(text: str, key: str) -> str:
    problems = label_names.qualified_name_problems(key)
    if problems:
        raise ValueError(f"unable to parse label selector {text!r}: key {key!r}: {'; '.join(problems)}")
    return key


def _value(text: str, value: str) -> str:
    problems = label_names.value_problems(value)
    if problems:
        raise ValueError(f"unable to parse label selector {text!r}: value {value!r}: {'; '.join(problems)}")
    return value


def _compare(found: str, operator: str, wanted: str) -> bool:
    if not _INTEGER.fullmatch(found) or not _INTEGER.fullmatch(wanted):
        return False
    return int(found) > int(wanted) if operator == "Gt" else int(found) < int(wanted)
