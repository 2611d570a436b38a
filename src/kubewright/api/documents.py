"""Files of YAML or JSON, read into plain values that remember the line each field stands on.

Scalars come out as Kubernetes' own YAML reader has them: dates and `1:30` stay text.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

_MOST_NODES = 1_000_000
SUFFIXES = (".yaml", ".yml", ".json")


class Document(msgspec.Struct, frozen=True):
    """One object of one file; `index` counts the file's documents from 0."""

    file: str
    index: int
    line: int
    value: Any
    lines: dict[str, int]
    """Path of a field → its line."""

    def line_of(self, path: str) -> int:
        """The line of the field, or of the nearest field around it."""
        while path and path not in self.lines:
            cut = max(path.rfind("."), path.rfind("["))
            path = path[:cut] if cut > 0 else ""
        return self.lines.get(path, self.line)


class Unreadable(msgspec.Struct, frozen=True):
    """A place in a file that is no manifest at all."""

    file: str
    line: int
    says: str

    def render(self) -> str:
        return f"{self.file}:{self.line}: {self.says}"


def files_under(paths: Iterable[str | Path]) -> Iterator[Path | Unreadable]:
    """Every file that is meant: files as they are, directories with all YAML and JSON below them, sorted by name."""
    for path in map(Path, paths):
        if path.is_dir():
            found = sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES and p.is_file())
            if not found:
                yield Unreadable(str(path), 0, "no .yaml, .yml or .json file in this directory; name a file or another directory")
            yield from found
        elif path.is_file():
            yield path
        else:
            yield Unreadable(str(path), 0, "no such file or directory")


def read(path: Path) -> tuple[list[Document], list[Unreadable]]:
    """The objects of one file, members of lists taken apart."""
    name = str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return [], [Unreadable(name, 0, f"cannot be read: {error}")]
    documents: list[Document] = []
    try:
        for index, node in enumerate(yaml.compose_all(text, Loader=_Loader)):
            if node is None or (isinstance(node, yaml.ScalarNode) and node.value in ("", "null", "~")):
                continue
            reader = _Reader(name)
            value = reader.value(node, "", ())
            documents += _members(Document(name, index, node.start_mark.line + 1, value, reader.lines))
            if reader.problems:
                return [], reader.problems
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        says = f"not YAML: {error.problem or error.context}"
        if mark is not None:
            says += f" at column {mark.column + 1}"
        return [], [Unreadable(name, mark.line + 1 if mark else 1, says)]
    except yaml.YAMLError as error:
        return [], [Unreadable(name, 1, f"not YAML: {error}")]
    return documents, []


def _members(document: Document) -> list[Document]:
    value = document.value
    if not (isinstance(value, dict) and str(value.get("kind", "")).endswith("List") and isinstance(value.get("items"), list)):
        return [document]
    members: list[Document] = []
    for index, item in enumerate(value["items"]):
        prefix = f"items[{index}]"
        lines = {p[len(prefix) + 1 :]: line for p, line in document.lines.items() if p.startswith(prefix + ".")}
        members.append(Document(document.file, document.index, document.lines.get(prefix, document.line), item, lines))
    return members


class _Loader(yaml.SafeLoader):
    """SafeLoader without dates and base-60 numbers."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, shape) for tag, shape in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Reader:
    def __init__(self, file: str) -> None:
        self._file = file
        self._scalars = _Loader("")
        self._seen = 0
        self.lines: dict[str, int] = {}
        self.problems: list[Unreadable] = []

    def value(self, node: yaml.Node, path: str, above: tuple[int, ...]) -> Any:
        self._seen += 1
        if id(node) in above or self._seen > _MOST_NODES:
            raise yaml.composer.ComposerError(None, None, "an alias that contains itself, or too many aliases", node.start_mark)
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, (*above, id(node)))
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, f"{path}[{n}]", (*above, id(node))) for n, item in enumerate(node.value)]
        if ":" in node.value and node.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float"):
            return node.value
        return self._scalars.construct_object(node)

    def _mapping(self, node: yaml.MappingNode, path: str, above: tuple[int, ...]) -> dict[str, Any]:
        written = [key.value for key, _ in node.value]
        self._scalars.flatten_mapping(node)
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = str(key_node.value)
            here = f"{path}.{key}" if path else key
            if written.count(key) > 1:
                says = f"{here} is written {written.count(key)} times in one mapping; keep one of them"
                self.problems.append(Unreadable(self._file, key_node.start_mark.line + 1, says))
            self.lines[here] = key_node.start_mark.line + 1
            result[key] = self.value(value_node, here, above)
        return result
