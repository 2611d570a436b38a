"""A cluster as it was saved to files (`kubectl get -A -o yaml ...`), behind the client that reads real ones."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec

from kubewright.api import documents
from kubewright.api.documents import Document, Unreadable
from kubewright.api.meta import Object
from kubewright.errors import ConfigError, Forbidden, ManifestError, NotFound
from kubewright.kube.client import Listing, WatchEvent

T = TypeVar("T", bound=Object)


class SavedCluster:
    """`KubeClient` over objects that do not change. Writing to it is refused."""

    def __init__(self, objects: Iterable[Mapping[str, Any]]) -> None:
        self._by_kind: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        for one in objects:
            self._by_kind.setdefault((str(one.get("apiVersion", "")), str(one.get("kind", ""))), []).append(one)

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(kind for _, kind in self._by_kind)

    async def get(self, kind: type[T], name: str, namespace: str = "") -> T:
        key = f"{namespace}/{name}" if namespace else name
        for one in self._of(kind):
            if one.key == key:
                return one
        raise NotFound(404, "NotFound", f"{kind.RESOURCE.kind} {key} is not in the files")

    async def list(self, kind: type[T], namespace: str = "", *, labels: str = "", fields: str = "") -> Listing[T]:
        if labels or fields:
            raise ConfigError(f"a saved cluster cannot select by {labels or fields}")
        found = sorted(self._of(kind), key=lambda o: o.key)
        return Listing([o for o in found if not namespace or o.namespace == namespace], "1")

    async def watch(
        self,
        kind: type[T],  # noqa: ARG002 - nothing ever happens
        namespace: str = "",  # noqa: ARG002
        *,
        resource_version: str,  # noqa: ARG002
        labels: str = "",  # noqa: ARG002
        fields: str = "",  # noqa: ARG002
    ) -> AsyncIterator[WatchEvent[T]]:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")
        yield  # type: ignore[unreachable]

    async def create(self, obj: T) -> NoReturn:
        self._refuse(f"create {obj.RESOURCE.kind} {obj.key}")

    async def patch(self, kind: type[T], name: str, patch: object, namespace: str = "", *, subresource: str = "") -> NoReturn:  # noqa: ARG002
        self._refuse(f"change {kind.RESOURCE.kind} {namespace}/{name}")

    async def delete(self, kind: type[T], name: str, namespace: str = "", **_: object) -> NoReturn:
        self._refuse(f"delete {kind.RESOURCE.kind} {namespace}/{name}")

    async def evict(self, name: str, namespace: str, *, uid: str = "") -> NoReturn:  # noqa: ARG002
        self._refuse(f"evict {namespace}/{name}")

    async def close(self) -> None:
        """Nothing is open."""

    def _refuse(self, what: str) -> NoReturn:
        raise Forbidden(403, "Forbidden", f"cannot {what}: the cluster is only saved files")

    def _of(self, kind: type[T]) -> Sequence[T]:
        resource = kind.RESOURCE
        found = []
        for raw in self._by_kind.get((resource.api_version, resource.kind), ()):
            try:
                found.append(msgspec.convert(raw, kind))
            except msgspec.ValidationError as error:
                name = raw.get("metadata", {}).get("name", "?")
                raise ManifestError([f"{resource.kind} {name}: {error}; save it again with kubectl get -o yaml"]) from error
        return found


def load(paths: Iterable[str | Path]) -> SavedCluster:
    """The objects of these files and directories; Lists are opened.

    Raises:
        ManifestError: something is not there, or no YAML.
    """
    problems: list[str] = []
    found: list[Mapping[str, Any]] = []
    for path in documents.files_under(paths):
        if isinstance(path, Unreadable):
            problems.append(path.render())
            continue
        read, unreadable = documents.read(path)
        problems += [u.render() for u in unreadable]
        for document in read:
            found += _objects(document, problems)
    if problems:
        raise ManifestError(problems)
    return SavedCluster(found)


def _objects(document: Document, problems: list[str]) -> Iterator[Mapping[str, Any]]:
    value = document.value
    items = value.get("items") if isinstance(value, dict) and str(value.get("kind", "")).endswith("List") else [value]
    for one in items if isinstance(items, list) else []:
        if isinstance(one, dict) and one.get("kind") and one.get("apiVersion"):
            yield one
        else:
            where = f"{document.file}:{document.line}"
            problems.append(f"{where}: an object without apiVersion and kind; write what kubectl get -o yaml printed")
