"""Bytes to structs and back: paths, pages, watch lines, Status bodies. No I/O; both the client and tests use it."""

import contextlib
import gc
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import msgspec

from kubewright.api.meta import Object, ObjectMeta
from kubewright.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    ServerUnavailable,
    TooManyRequests,
)
from kubewright.kube.client import EventType, WatchEvent

T = TypeVar("T", bound=Object)


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """The body of every no."""

    reason: str = ""
    message: str = ""
    code: int = 0
    details: dict[str, Any] | None = None


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, Generic[T], frozen=True):
    metadata: _ListMeta = _ListMeta()
    items: list[T] | None = None


class _Frame(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Bookmark(msgspec.Struct, frozen=True):
    """A bookmark's object has nulls in required places; only its metadata means something."""

    metadata: ObjectMeta


class _Name(msgspec.Struct, frozen=True):
    name: str = "?"
    namespace: str = ""


class _Named(msgspec.Struct, frozen=True):
    metadata: _Name = _Name()


class _NamedPage(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw] | None = None


_STATUS = msgspec.json.Decoder(Status)
_FRAME = msgspec.json.Decoder(_Frame)
_BOOKMARK = msgspec.json.Decoder(_Bookmark)
_ENCODER = msgspec.json.Encoder()

_BY_CODE: dict[int, type[KubeError]] = {
    400: Invalid,
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    405: Invalid,
    406: Invalid,
    409: Conflict,
    410: Gone,
    413: Invalid,
    415: Invalid,
    422: Invalid,
    429: TooManyRequests,
}


def path(kind: type[Object], namespace: str = "", name: str = "", subresource: str = "") -> str:
    """Where the API server keeps it, without a leading slash; no name means the collection.

    Raises:
        ValueError: a namespace for a kind that has none, or none where there must be one. A bug of the caller.
    """
    resource = kind.RESOURCE
    if namespace and not resource.namespaced:
        raise ValueError(f"{resource.kind} is cluster-scoped, but a namespace was given: {namespace!r}")
    if name and resource.namespaced and not namespace:
        raise ValueError(f"{resource.kind} {name!r} is namespaced, but no namespace was given")
    parts = ["api", resource.version] if not resource.group else ["apis", resource.group, resource.version]
    if namespace:
        parts += ["namespaces", namespace]
    parts.append(resource.plural)
    parts += [quote(part, safe="") for part in (name, subresource) if part]
    return "/".join(parts)


def body(obj: Object) -> dict[str, Any]:
    """A whole object as the wire has it, with its apiVersion and kind; defaults are left out."""
    return {"apiVersion": obj.RESOURCE.api_version, "kind": obj.RESOURCE.kind, **msgspec.to_builtins(obj)}


def encode(value: Any) -> bytes:
    return _ENCODER.encode(value)


def decode(kind: type[T], data: bytes) -> T:
    """One object.

    Raises:
        ServerUnavailable: the bytes are not such an object; the message says where.
    """
    try:
        obj: T = _decoder(kind).decode(data)
    except msgspec.DecodeError as error:
        raise _undecodable(kind, data, error) from error
    return obj


def decode_page(kind: type[T], data: bytes) -> tuple[Sequence[T], str, str]:
    """Items, resourceVersion and the continue token of one page of a list. The collector pauses meanwhile (half the time)."""
    try:
        with collector_paused():
            page = _page_decoder(kind).decode(data)
    except msgspec.DecodeError as error:
        raise _undecodable_item(kind, data, error) from error
    return page.items or (), page.metadata.resource_version, page.metadata.continue_


def decode_event(kind: type[T], line: bytes) -> WatchEvent[T]:
    """One line of a watch.

    Raises:
        KubeError: the line is an ERROR event (Gone when the version is too old).
    """
    try:
        frame = _FRAME.decode(line)
    except msgspec.DecodeError as error:
        raise ServerUnavailable(
            0, "Undecodable", f"a line of the watch of {kind.RESOURCE.plural} is not an event: {error}"
        ) from error
    match frame.type:
        case "BOOKMARK":
            mark = _BOOKMARK.decode(frame.object)
            return WatchEvent(EventType.BOOKMARK, _empty(kind, mark.metadata.resource_version))
        case "ERROR":
            raise error_of(0, bytes(frame.object))
        case _:
            try:
                return WatchEvent(EventType(frame.type), _decoder(kind).decode(frame.object))
            except msgspec.DecodeError as error:
                raise _undecodable(kind, bytes(frame.object), error) from error


def error_of(code: int, data: bytes) -> KubeError:
    """The error that an answer means: `code` is HTTP's (0 inside a watch), `data` the Status body if there is one.

    The only place where answers become errors.
    """
    try:
        status = _STATUS.decode(data)
    except msgspec.DecodeError:
        status = Status(message=data[:200].decode(errors="replace").strip())
    code = code or status.code
    if code == 409 and status.reason == "AlreadyExists":
        kind: type[KubeError] = AlreadyExists
    else:
        kind = _BY_CODE.get(code, Invalid if 400 <= code < 500 else ServerUnavailable)
    return kind(code, status.reason, status.message, status.details)


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """No garbage collection inside: decoding makes thousands of objects and no garbage."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@cache
def _decoder(kind: type[T]) -> "msgspec.json.Decoder[T]":
    return msgspec.json.Decoder(kind)


@cache
def _page_decoder(kind: type[T]) -> "msgspec.json.Decoder[_Page[T]]":
    return msgspec.json.Decoder(_Page[kind])  # type: ignore[valid-type]


@cache
def _is_constructible(kind: type[Object]) -> bool:
    return all(not field.required for field in msgspec.structs.fields(kind))


def _empty(kind: type[T], version: str) -> T:
    if not _is_constructible(kind):
        raise TypeError(f"{kind.__name__} has fields without defaults, so a bookmark cannot be shown as one")
    return kind(metadata=ObjectMeta(resource_version=version))


def _undecodable(kind: type[Object], data: bytes, error: msgspec.DecodeError) -> KubeError:
    named = _Named()
    with contextlib.suppress(msgspec.DecodeError):  # not even a name: then the text below says "?"
        named = msgspec.json.decode(data, type=_Named)
    where = f"{named.metadata.namespace}/{named.metadata.name}" if named.metadata.namespace else named.metadata.name
    return ServerUnavailable(0, "Undecodable", f"{kind.RESOURCE.kind} {where} is not what this version reads: {error}")


def _undecodable_item(kind: type[T], data: bytes, error: msgspec.DecodeError) -> KubeError:
    """The first item that is to blame, by name; a list's own error only has its index."""
    with contextlib.suppress(msgspec.DecodeError):
        for item in msgspec.json.decode(data, type=_NamedPage).items or ():
            try:
                _decoder(kind).decode(item)
            except msgspec.DecodeError as cause:
                return _undecodable(kind, bytes(item), cause)
    return ServerUnavailable(0, "Undecodable", f"the list of {kind.RESOURCE.plural} is not what this version reads: {error}")
