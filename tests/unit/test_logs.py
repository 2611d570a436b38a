"""One JSON object a line, with the names that people's dashboards ask for, and no secrets."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from kubewright import logs
from kubewright.api.core import Node, Pod
from kubewright.api.meta import ObjectMeta
from kubewright.clock import Clock
from kubewright.errors import ConfigError
from kubewright.sim.loop import run

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def undone() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def logged(body: Any, **options: Any) -> list[dict[str, Any]]:
    """What `body(logger)` logs, in virtual time."""
    return [json.loads(line) for line in text_of(body, **options).splitlines()]


def text_of(body: Any, **options: Any) -> str:
    out = io.StringIO()

    async def main() -> None:
        logs.configure(stream=out, clock=Clock(EPOCH), **options)
        await asyncio.sleep(1.5)
        body(structlog.get_logger("controller"))

    run(main())
    return out.getvalue()


def test_a_line_has_the_reference_s_names_in_its_order() -> None:
    def body(log: Any) -> None:
        with structlog.contextvars.bound_contextvars(controller="provisioner", namespace="", name="", reconcileID="r"):
            log.info("created nodeclaim", NodeClaim=Node(metadata=ObjectMeta(name="default-x")), pods=3)

    assert text_of(body, commit="abc123") == (
        '{"level":"INFO","time":"2026-01-01T00:00:01.500Z","logger":"controller","message":"created nodeclaim",'
        '"commit":"abc123","controller":"provisioner","namespace":"","name":"","reconcileID":"r",'
        '"NodeClaim":{"name":"default-x"},"pods":3}\n'
    )


def test_two_runs_give_the_same_bytes() -> None:
    def body(log: Any) -> None:
        log.warning("odd", zones={"b", "a"}, Pod=Pod(metadata=ObjectMeta(name="p", namespace="shop")))

    assert text_of(body) == text_of(body)
    assert logged(body)[0]["Pod"] == {"namespace": "shop", "name": "p"}
    assert logged(body)[0]["zones"] == ["a", "b"]


@pytest.mark.parametrize(
    ("level", "shown"),
    [("debug", "DEBUG INFO WARN ERROR"), ("info", "INFO WARN ERROR"), ("", "INFO WARN ERROR"), ("error", "ERROR")],
)
def test_levels(level: str, shown: str) -> None:
    def body(log: Any) -> None:
        log.debug("d")
        log.info("i")
        log.warning("w")
        log.error("e")

    assert [line["level"] for line in logged(body, level=level)] == shown.split()


def test_an_unknown_level_is_refused_in_the_reference_s_words() -> None:
    with pytest.raises(ConfigError, match='validating cli flags / env vars, invalid LOG_LEVEL "loud"'):
        logs.configure(level="loud")


def test_an_output_that_cannot_be_written_is_named() -> None:
    with pytest.raises(ConfigError, match="--log-output-paths names '/nowhere/x'"):
        logs.configure(outputs=["/nowhere/x"])


def test_a_file_gets_the_lines_and_is_closed(tmp_path: Any) -> None:
    file = tmp_path / "log"
    close = logs.configure(outputs=[str(file)])
    structlog.get_logger("controller").info("hello")
    close()
    assert json.loads(file.read_text())["message"] == "hello"


def test_an_exception_is_a_stack_trace_without_local_values() -> None:
    def body(log: Any) -> None:
        password = "hunter2-hunter2"  # noqa: F841
        try:
            raise ValueError("boom")
        except ValueError as error:
            log.error("Reconciler error", error=str(error), exc_info=error)  # noqa: TRY400

    (line,) = logged(body)
    assert line["stacktrace"].endswith("ValueError: boom")
    assert line["error"] == "boom"
    assert "hunter2-" not in line["stacktrace"].replace('"hunter2-hunter2"', "")


def test_libraries_are_heard_only_when_something_is_wrong() -> None:
    def body(_: Any) -> None:
        logging.getLogger("httpx2").info("HTTP Request: GET")
        logging.getLogger("aiohttp.server").error("Error handling request %s", "x")

    (line,) = logged(body)
    assert (line["logger"], line["level"], line["message"]) == ("aiohttp.server", "ERROR", "Error handling request x")


SECRET = st.text(alphabet="abcdefghijklmnopqrstuvwxyzABCDEF0123456789", min_size=12, max_size=40)


@given(secret=SECRET)
def test_secrets_are_struck_out_wherever_they_stand(secret: str) -> None:
    secret = f"S3{secret}"

    def body(log: Any) -> None:
        log.error(
            f"Authorization: Bearer {secret} and authorization=Basic {secret}",  # noqa: G004
            token=secret,
            password=secret,
            nested={"client_secret": secret, "Authorization": f"Basic {secret}"},
            url=f"https://me:{secret}@example.invalid/x",
            listed=[f"bearer {secret}"],
            error=ValueError(f"proxy http://u:{secret}@host refused"),
        )

    text = text_of(body)
    assert secret not in text
    assert "example.invalid" in text


def test_what_only_sounds_like_a_secret_is_shown() -> None:
    def body(log: Any) -> None:
        log.info("basic scheduling of a secret", secretName="tls", tokens_left=3, imagePullSecretName="x")

    (line,) = logged(body)
    assert (line["message"], line["secretName"], line["tokens_left"]) == ("basic scheduling of a secret", "tls", 3)


def test_people_get_columns() -> None:
    text = text_of(lambda log: log.info("created nodeclaim", NodeClaim=Node(metadata=ObjectMeta(name="x"))), console=True)
    assert "created nodeclaim" in text
    assert not text.startswith("{")


def test_durations_and_dates_are_shown_as_kubernetes_does() -> None:
    (line,) = logged(lambda log: log.info("x", after=timedelta(seconds=90), at=EPOCH))
    assert (line["after"], line["at"]) == ("1m30s", "2026-01-01T00:00:00Z")
