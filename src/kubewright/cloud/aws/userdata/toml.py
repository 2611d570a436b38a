"""Writing the TOML that `tomllib` reads."""

import json
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Any

_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


def write(table: Mapping[str, Any]) -> str:
    """`tomllib.loads(write(table)) == table`."""
    lines: list[str] = []
    _table(table, (), lines)
    return "\n".join(lines) + "\n" if lines else ""


def _table(table: Mapping[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    plain = {k: v for k, v in table.items() if not isinstance(v, Mapping)}
    if path and (plain or len(plain) == len(table)):
        lines.append(f"[{'.'.join(map(_key, path))}]")
    lines.extend(f"{_key(key)} = {_value(value)}" for key, value in plain.items())
    for key, value in table.items():
        if isinstance(value, Mapping):
            _table(value, (*path, key), lines)


def _key(key: str) -> str:
    return key if key and set(key) <= _BARE else _text(key)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_key(k)} = {_value(v)}' for k, v in value.items())}}}"
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return repr(value)
