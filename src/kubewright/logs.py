"""Logs that Karpenter's dashboards and alerts can read: one JSON object a line, with the reference's field names.

`level`, `time`, `logger`, `message`, then `commit`, then what is bound (`controller`, `namespace`, `name`, `reconcileID`),
then the call's own fields. A Kubernetes object given as a field is shown as a reference: `"NodeClaim": {"name": "x"}`.
People at a terminal get the same in columns. Time is the clock's, so that a run in virtual time logs the same bytes twice.
Values that look like secrets are struck out, wherever they stand.
"""

import logging
import re
import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TextIO

import msgspec
import structlog
from structlog.typing import EventDict, Processor

from kubewright.api import duration
from kubewright.api.meta import Object
from kubewright.clock import Clock
from kubewright.errors import ConfigError

LEVELS = {"": logging.INFO, "debug": logging.DEBUG, "info": logging.INFO, "error": logging.ERROR}
"""Values of --log-level. Source: spec/scheduling 12.3."""

_LEVEL_NAMES = {"warning": "WARN", "critical": "ERROR", "exception": "ERROR"}
_FIRST = ("level", "time", "logger", "message", "commit", "controller", "namespace", "name", "reconcileID")
_SECRET_KEY = re.compile(r"(?i)(token|password|passwd|authorization|credential|secret(?!name|-name|_name)|private.?key)$")
_SECRET_TEXT = re.compile(
    r"(?i)((?:\bbearer|\bauthorization\W{1,3}\w+)\s+)[\w.~+/=-]{8,}"  # an Authorization header
    r"|(\b\w[\w+.-]*://[^\s:/@]*:)[^\s@/]+(?=@)"  # a password in a URL
    r"|(\beyJ)[\w-]{10,}\.[\w-]{10,}\.[\w-]*"  # a JSON web token
)
STRUCK = "***"


def configure(
    *,
    level: str = "info",
    console: bool | None = None,
    outputs: Sequence[str] = ("stdout",),
    clock: Clock | None = None,
    commit: str = "",
    stream: TextIO | None = None,
) -> Callable[[], None]:
    """Send all logs, those of libraries included, to `outputs` ("stdout", "stderr" or files) or to `stream`.

    `console` asks for columns instead of JSON; None means if the only output is a terminal. Returns a function that
    closes what was opened.

    Raises:
        ConfigError: no such level, or a file that cannot be written.
    """
    if level not in LEVELS:
        raise ConfigError(f'validating cli flags / env vars, invalid LOG_LEVEL "{level}"; use debug, info or error')
    opened: list[TextIO] = []
    streams = [stream] if stream is not None else [_open(output, opened) for output in outputs]
    if console is None:
        console = len(streams) == 1 and streams[0].isatty()
    processors: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        _name,
        structlog.processors.format_exc_info,
        _Stamp(clock, commit),
        _strike,
    ]
    if console:
        processors.append(structlog.dev.ConsoleRenderer(event_key="message", timestamp_key="time", sort_keys=False))
    else:
        processors.append(_render)
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=_Loggers(streams),
        cache_logger_on_first_use=False,
    )
    _route_standard_logging()

    def close() -> None:
        for file in opened:
            file.close()

    return close


class _Logger:
    """Writes finished lines. structlog calls the method named like the level."""

    def __init__(self, name: str, streams: Sequence[TextIO]) -> None:
        self.name = name
        self._streams = streams

    def msg(self, line: str) -> None:
        for stream in self._streams:
            stream.write(f"{line}\n")
            stream.flush()

    debug = info = warning = warn = error = critical = exception = fatal = log = msg


class _Loggers:
    def __init__(self, streams: Sequence[TextIO]) -> None:
        self._streams = streams

    def __call__(self, *args: Any) -> _Logger:
        return _Logger(str(args[0]) if args else "controller", self._streams)


def _name(logger: Any, method: str, event: EventDict) -> EventDict:
    event["logger"] = event.pop("logger", None) or logger.name
    event["level"] = _LEVEL_NAMES.get(method, method.upper())
    event["message"] = event.pop("event", "")
    return event


class _Stamp:
    """Adds the time and puts the fields in order."""

    def __init__(self, clock: Clock | None, commit: str) -> None:
        self._clock = clock
        self._commit = commit

    def __call__(self, _: Any, __: str, event: EventDict) -> EventDict:
        event["time"] = self._now().strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        if self._commit:
            event["commit"] = self._commit
        ordered: dict[str, Any] = {key: event.pop(key) for key in _FIRST if key in event}
        ordered.update(event)
        return ordered

    def _now(self) -> datetime:
        if self._clock is not None:
            try:
                return self._clock.now()
            except RuntimeError:
                pass  # no loop runs: before the start or after the end
        return datetime.now(UTC)


def _strike(_: Any, __: str, event: EventDict) -> EventDict:
    return {key: STRUCK if value and _SECRET_KEY.search(key) else _show(value) for key, value in event.items()}


def _show(value: Any) -> Any:
    """`value` as JSON has it, without secrets."""
    match value:
        case bool() | int() | float() | None:
            return value
        case str():
            return _SECRET_TEXT.sub(lambda m: (m[1] or m[2] or m[3]) + STRUCK, value)
        case Object():
            return reference(value)
        case timedelta():
            return duration.show(value)
        case datetime():
            return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        case msgspec.Struct():
            return _show(msgspec.to_builtins(value))
        case Mapping():
            return {str(k): STRUCK if v and _SECRET_KEY.search(str(k)) else _show(v) for k, v in value.items()}
        case set() | frozenset():
            return sorted(_show(item) for item in value)
        case list() | tuple():
            return [_show(item) for item in value]
        case _:
            return _show(str(value))


def reference(obj: Object) -> dict[str, str]:
    """How a log line points to an object."""
    return {"namespace": obj.namespace, "name": obj.name} if obj.namespace else {"name": obj.name}


def _render(_: Any, __: str, event: MutableMapping[str, Any]) -> str:
    if "exception" in event:
        event["stacktrace"] = event.pop("exception")
    return msgspec.json.encode(event).decode()


def _open(output: str, opened: list[TextIO]) -> TextIO:
    if output in {"stdout", "stderr"}:
        return sys.stdout if output == "stdout" else sys.stderr
    try:
        file = open(output, "a", encoding="utf-8")  # noqa: SIM115, PTH123 — closed by what `configure` returns
    except OSError as error:
        raise ConfigError(
            f"--log-output-paths names {output!r}, which cannot be written ({error.strerror}): use stdout, stderr or "
            "a writable file"
        ) from error
    opened.append(file)
    return file


class _Forward(logging.Handler):
    """Hands the records of libraries to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger(record.name).log(record.levelno, record.getMessage(), exc_info=record.exc_info or None)


def _route_standard_logging() -> None:
    """Libraries speak only when something is wrong: httpx2 would log every request."""
    root = logging.getLogger()
    for handler in [h for h in root.handlers if isinstance(h, _Forward)]:
        root.removeHandler(handler)
    root.addHandler(_Forward())
    root.setLevel(logging.WARNING)
