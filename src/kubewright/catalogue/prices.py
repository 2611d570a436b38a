"""People's own price list: prices that replace the cloud's, and commitments that make some machines cheaper for a while.

A list is YAML, JSON or CSV with the same fields. A row without a bound is the price of what it matches; a row with one is a
commitment (`catalogue.commitments`). Of several rows that match, the first counts.
"""

import csv
import difflib
import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml
from msgspec.structs import replace

from kubewright.api import labels
from kubewright.catalogue.types import InstanceType
from kubewright.errors import ConfigError
from kubewright.settings import PriceRow

_TEXTS = {"name": "name", "instanceType": "instance_type", "family": "family", "zone": "zone", "capacityType": "capacity_type"}
_AMOUNTS = {"usdPerHour": "usd_per_hour", "upToInstances": "up_to_instances", "upToUsdPerHour": "up_to_usd_per_hour"}
FIELDS = (*_TEXTS, "usdPerHour", "discount", "upToInstances", "upToUsdPerHour", "paidAnyway")
_KINDS = tuple(sorted(labels.WELL_KNOWN_VALUES[labels.CAPACITY_TYPE]))


def read(text: str, file: str) -> tuple[PriceRow, ...]:
    """The rows of a price list; `file` is its name, whose ending says how it is written: .csv, .json, .yaml or .yml.

    Raises:
        ConfigError: one line for everything that is wrong, with file, row, field, what was found and what to write.
    """
    if file.endswith(".csv"):
        written = _csv(text, file)
    elif file.endswith((".json", ".yaml", ".yml")):
        written = _yaml(text, file)
    else:
        raise ConfigError(f"price file {file}: its name must end in .yaml, .yml, .json or .csv, which says how it is written")
    problems: list[str] = []
    rows: list[PriceRow] = []
    seen: dict[PriceRow, str] = {}
    for where, fields in written:
        problem = _Problem(f"price file {file}, {where}", problems)
        row = _row(fields, problem)
        if row is None:
            continue
        _check(row, fields, problem)
        match = PriceRow(instance_type=row.instance_type, family=row.family, zone=row.zone, capacity_type=row.capacity_type)
        if not row.is_limited and match in seen:
            problem("instanceType", row.instance_type or row.family, f"a machine that {seen[match]} has no price for yet")
        elif not row.is_limited:
            seen[match] = where
        rows.append(row if row.name or not row.is_limited else replace(row, name=where))
    if problems:
        raise ConfigError("\n".join(problems))
    return tuple(rows)


def own_prices(rows: Sequence[PriceRow]) -> Callable[[InstanceType], InstanceType] | None:
    """What the rows without a bound make of a type; None if there are none."""
    plain = [row for row in rows if not row.is_limited]
    if not plain:
        return None

    def priced(kind: InstanceType) -> InstanceType:
        mine = [row for row in plain if is_about(row, kind.name)]
        if not mine:
            return kind
        offerings = []
        for offering in kind.offerings:
            row = next((r for r in mine if r.capacity_type == offering.capacity_type and r.zone in ("", offering.zone)), None)
            if row is None:
                offerings.append(offering)
                continue
            price = row.usd_per_hour if row.usd_per_hour is not None else offering.price * (1 - (row.discount or 0.0))
            offerings.append(replace(offering, price=price, price_overlaid=True))
        return replace(kind, offerings=tuple(offerings))

    return priced


def is_about(row: PriceRow, instance_type: str) -> bool:
    """Whether the row matches the type; one that counts in a size of a family matches the whole family."""
    if row.family:
        same = family_of(instance_type) == row.family
        return same and (row.is_limited or row.instance_type in ("", instance_type))
    return row.instance_type in ("", instance_type)


def family_of(instance_type: str) -> str:
    return instance_type.partition(".")[0]


class _Problem:
    """Collects lines: where, field, what was found, what to write."""

    def __init__(self, where: str, into: list[str]) -> None:
        self._where = where
        self._into = into

    def __call__(self, field: str, found: object, mend: str) -> None:
        self._into.append(f"{self._where}, field {field}: found {found!r}; write {mend}")


def _csv(text: str, file: str) -> list[tuple[str, Mapping[str, Any]]]:
    reader = csv.DictReader(io.StringIO(text), strict=True, restkey="", skipinitialspace=True)
    try:
        found: list[tuple[str, Mapping[str, Any]]] = [
            (f"line {reader.line_num}", {k: v for k, v in row.items() if v not in ("", None)}) for row in reader
        ]
    except csv.Error as error:
        raise ConfigError(f"price file {file}, line {reader.line_num}: this is not CSV ({error})") from None
    if not reader.fieldnames:
        raise ConfigError(f"price file {file}: it is empty; write a first line that names the columns, of {', '.join(FIELDS)}")
    return found


def _yaml(text: str, file: str) -> list[tuple[str, Mapping[str, Any]]]:
    try:
        written = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"price file {file}: it cannot be read ({' '.join(str(error).split())})") from None
    mend = "a mapping with one list, prices: [{instanceType: m5.xlarge, usdPerHour: 0.12}]"
    if not isinstance(written, dict) or set(written) != {"prices"} or not isinstance(written["prices"], list):
        found = sorted(map(str, written)) if isinstance(written, dict) else type(written).__name__
        raise ConfigError(f"price file {file}: found {found} at the top; write {mend}")
    rows: list[tuple[str, Mapping[str, Any]]] = []
    for i, row in enumerate(written["prices"], 1):
        if not isinstance(row, dict):
            raise ConfigError(f"price file {file}, row {i}: found {row!r}; write fields, such as instanceType: m5.xlarge")
        rows.append((f"row {i}", row))
    return rows


def _row(fields: Mapping[str, Any], problem: _Problem) -> PriceRow | None:
    values: dict[str, Any] = {}
    is_fine = True

    def bad(field: str, mend: str) -> None:
        nonlocal is_fine
        is_fine = False
        problem(field, fields[field], mend)

    for field in fields:
        written = fields[field]
        if field in _TEXTS:
            if not isinstance(written, str):
                bad(field, "text")
            values[_TEXTS[field]] = written
        elif field in _AMOUNTS:
            number = _number(written)
            if number is None or number < 0:
                bad(field, "a number that is not negative")
            values[_AMOUNTS[field]] = number
        elif field == "discount":
            share = _number(str(written).removesuffix("%")) if str(written).endswith("%") else None
            if share is None or not 0 <= share <= 100:
                bad(field, "a percentage from 0% to 100%, with its sign")
            values["discount"] = None if share is None else share / 100
        elif field == "paidAnyway":
            if str(written).lower() not in ("true", "false"):
                bad(field, "true or false")
            values["paid_anyway"] = str(written).lower() == "true"
        else:
            near = difflib.get_close_matches(str(field), FIELDS, n=1)
            is_fine = False
            problem(str(field), written, f"one of {', '.join(FIELDS)}" + (f"; did you mean {near[0]}?" if near else ""))
    return PriceRow(**values) if is_fine else None


def _check(row: PriceRow, fields: Mapping[str, Any], problem: _Problem) -> None:
    if row.capacity_type not in _KINDS:
        problem("capacityType", row.capacity_type, f"one of {', '.join(_KINDS)}")
    if row.usd_per_hour is None and row.discount is None:
        problem("usdPerHour", None, "what a machine costs an hour, or a discount such as 28%")
    if row.usd_per_hour is not None and row.discount is not None:
        problem("discount", fields["discount"], "it or usdPerHour, not both")
    if row.up_to_instances is not None and row.up_to_usd_per_hour is not None:
        problem("upToUsdPerHour", row.up_to_usd_per_hour, "it or upToInstances, not both")
    if row.usd_per_hour is not None and not row.instance_type:
        problem("instanceType", None, "the machine that costs so much; for a whole family, or for all, write a discount")
    if row.family and row.instance_type and family_of(row.instance_type) != row.family:
        problem("instanceType", row.instance_type, f"a size of family {row.family}, or leave one of the two out")
    if row.family and row.instance_type and not row.is_limited:
        problem("family", row.family, "it only where a bound is counted in sizes of the instanceType; leave one of the two out")
    if row.up_to_usd_per_hour is not None and (row.usd_per_hour == 0 or row.discount == 1):
        problem("upToUsdPerHour", row.up_to_usd_per_hour, "the price that uses it up, and paidAnyway: true")
    if row.paid_anyway and not row.is_limited:
        problem("paidAnyway", True, "it only beside upToInstances or upToUsdPerHour")


def _number(written: object) -> float | None:
    if isinstance(written, bool) or not isinstance(written, int | float | str):
        return None
    try:
        number = float(written)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
