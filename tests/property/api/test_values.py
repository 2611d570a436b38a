"""Laws of quantities, durations, schedules, selectors and conditions."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from kubewright.api import conditions, cron, duration, quantity, selectors
from kubewright.api.meta import Condition, LabelSelector, ObjectMeta, SelectorRequirement, find_condition

SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
amounts = st.integers(-(10**21), 10**21)
texts = st.builds(
    lambda sign, whole, fraction, suffix: f"{sign}{whole}{fraction}{suffix}",
    st.sampled_from(["", "+", "-"]),
    st.integers(0, 10**6),
    st.sampled_from(["", ".", ".5", ".25", ".001", ".999999999"]),
    st.sampled_from([*SUFFIXES, "e3", "E-2", "e+1"]),
)


@given(amounts, st.booleans())
def test_a_quantity_shown_and_read_is_the_same_amount(amount: int, binary: bool) -> None:
    # a binary suffix is read with the server's cap, which only amounts beyond it feel
    bounded = max(-(2**63 - 1) * quantity.ONE, min((2**63 - 1) * quantity.ONE, amount))
    assert quantity.parse(quantity.show(bounded, binary=binary)) == bounded


@given(texts)
def test_the_canonical_text_means_the_same_and_is_its_own_canonical_text(text: str) -> None:
    canonical = quantity.canonical(text)
    assert quantity.parse(canonical) == quantity.parse(text)
    assert quantity.canonical(canonical) == canonical


@given(texts, texts)
def test_order_and_sums_of_texts_are_those_of_amounts(a: str, b: str) -> None:
    x, y = quantity.parse(a), quantity.parse(b)
    assert (x <= y) == (x - y <= 0)
    assert quantity.parse(quantity.show(x + y)) == x + y


@given(st.sampled_from(["n", "u", "m", "", "k", "M", "G"]), st.integers(1, 999))
def test_the_next_suffix_is_a_thousand_times_more(suffix: str, count: int) -> None:
    order = ["n", "u", "m", "", "k", "M", "G", "T"]
    larger = order[order.index(suffix) + 1]
    assert quantity.parse(f"{count}{larger}") == 1000 * quantity.parse(f"{count}{suffix}")


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("1000m", "1"),
        ("0.5", "500m"),
        ("2048Mi", "2Gi"),
        ("1.5Gi", "1536Mi"),
        ("1e3", "1e3"),
        ("12E3", "12E3"),
        ("1000e3", "1e6"),
        ("+5", "+5"),
        ("5.", "5."),
        ("1.001k", "1.001k"),
        ("1.5k", "1500"),
        (" 1Gi ", "1Gi"),
        ("Gi", "0"),
        ("1E", "1E"),
        ("0.1Ki", "102400m"),
        ("100000000000000000000", "100E"),
        ("1023Ki", "1023Ki"),
        ("1000Ki", "1000Ki"),
        ("0.0000000001", "1n"),
        ("-0.5", "-500m"),
        ("0Gi", "0"),
        ("9Ei", "9223372036854775807"),
        (5, "5"),
    ],
)
def test_quantities_are_printed_as_the_api_server_prints_them(written: str | int, shown: str) -> None:
    assert quantity.canonical(written) == shown


@pytest.mark.parametrize(
    "text", ["", "1K", "1 Gi", " ", "1e", "1e1.5", "0x10", "1Gib", "1e+", "--1", "1_000", "٣", "1e999999999"]
)
def test_what_the_api_server_refuses_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        quantity.parse(text)


@given(st.integers(-(2**53), 2**53))
def test_a_duration_shown_and_read_is_the_same(micros: int) -> None:
    span = timedelta(microseconds=micros)
    assert duration.parse(duration.show(span)) == span


@given(st.lists(st.tuples(st.integers(0, 1000), st.sampled_from(["h", "m", "s", "ms"])), min_size=1, max_size=4))
def test_the_parts_of_a_duration_add_up(parts: list[tuple[int, str]]) -> None:
    units = {"h": 3600 * 10**9, "m": 60 * 10**9, "s": 10**9, "ms": 10**6}
    assert duration.parse_ns("".join(f"{n}{u}" for n, u in parts)) == sum(n * units[u] for n, u in parts)


@pytest.mark.parametrize("text", ["", "1", "1d", "h", "1h30", " 1h", "1h ", "Never", "1.h.", "99999999999h"])
def test_what_go_refuses_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        duration.parse(text)


def test_never_is_no_duration_but_a_nillable_one() -> None:
    assert duration.parse_nillable("Never") is None
    assert duration.parse_nillable(None) is None
    assert duration.parse_nillable("0s") == timedelta(0)


MOMENTS = st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - the zone is given


def _numbers(low: int, high: int) -> st.SearchStrategy[str]:
    one = st.integers(low, high).map(str)
    span = st.tuples(st.integers(low, high), st.integers(low, high)).map(lambda t: f"{min(t)}-{max(t)}")
    return st.one_of(st.just("*"), one, span, st.lists(one, min_size=2, max_size=3).map(",".join))


SCHEDULES = st.tuples(_numbers(0, 59), _numbers(0, 23), _numbers(1, 28), _numbers(1, 12), _numbers(0, 6)).map(" ".join)


@given(SCHEDULES, MOMENTS)
def test_on_what_both_read_alike_a_schedule_is_cronsims(text: str, moment: datetime) -> None:
    hit = cron.parse(text).next_after(moment)
    assert hit > moment
    assert hit == next(CronSim(text, moment))


@given(MOMENTS)
def test_a_schedule_means_what_the_reference_means(moment: datetime) -> None:
    assert cron.parse("@daily") == cron.parse("0 0 * * ?")
    assert cron.parse("0 0 * jan-mar mon,FRI") == cron.parse("0 0 * 1-3 1,5")
    assert cron.parse("7/20 * * * *") == cron.parse("7-59/20 * * * *")
    # a step is no star: the 1st, 11th, 21st, 31st or a Monday, not both
    either = cron.parse("0 0 */10 * 1").next_after(moment)
    assert either.day in (1, 11, 21, 31) or either.weekday() == 0
    # a star is one: odd weekdays only
    assert cron.parse("0 0 * * 1-5/2").next_after(moment).weekday() in (0, 2, 4)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 7",
        "* * L * *",
        "* * * * 1#2",
        "5-1 * * * *",
        "*/0 * * * *",
        "a * * * *",
        "0 0 30 2 *",
        "@every 5m",
        "@Daily",
        "TZ=UTC 0 0 * * *",
        "1.5 * * * *",
        "- * * * *",
    ],
)
def test_what_the_reference_refuses_is_no_schedule(text: str) -> None:
    with pytest.raises(ValueError, match="schedule"):
        cron.parse(text)


LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["", "x", "y", "5", "10"]), max_size=3)


@given(LABELS)
def test_an_empty_selector_selects_all_and_none_selects_nothing(labels: dict[str, str]) -> None:
    assert selectors.matches(LabelSelector(), labels)
    assert not selectors.matches(None, labels)
    assert selectors.parse_labels("").matches(labels)


@given(LABELS, st.sampled_from("abc"), st.lists(st.sampled_from(["x", "y", "5"]), min_size=1, max_size=2))
def test_opposites_are_opposite_and_text_means_what_the_structure_means(
    labels: dict[str, str], key: str, values: list[str]
) -> None:
    for yes, no, text in (
        ("In", "NotIn", f"{key} in ({','.join(values)})"),
        ("Exists", "DoesNotExist", key),
    ):
        listed = tuple(values) if yes == "In" else ()
        chosen = selectors.matches(
            LabelSelector(match_expressions=(SelectorRequirement(key=key, operator=yes, values=listed),)), labels
        )
        other = selectors.matches(
            LabelSelector(match_expressions=(SelectorRequirement(key=key, operator=no, values=listed),)), labels
        )
        assert chosen != other
        assert selectors.parse_labels(text).matches(labels) == chosen


@given(LABELS, LABELS)
def test_labels_that_contain_a_selectors_labels_match_it(wanted: dict[str, str], more: dict[str, str]) -> None:
    assert selectors.matches(LabelSelector(match_labels=wanted), more | wanted)
    assert selectors.parse_labels(",".join(f"{k}={v}" for k, v in wanted.items())).matches(more | wanted)


@pytest.mark.parametrize("text", ["a in", "a in x", "a b", "=x", "a=b,", "!!a", "a in (x", "a>x", "a=b c", "-a", "a=-"])
def test_what_the_api_server_refuses_is_no_label_selector(text: str) -> None:
    with pytest.raises(ValueError, match="unable to parse"):
        selectors.parse_labels(text)


def test_numbers_are_compared_as_numbers() -> None:
    assert selectors.parse_labels("a>9").matches({"a": "10"})
    assert not selectors.parse_labels("a<9").matches({"a": "10"})
    assert not selectors.parse_labels("a>9").matches({"a": "x"})


def test_field_selectors_unescape_and_take_a_missing_field_as_empty() -> None:
    query = selectors.parse_fields(r"metadata.name=a\,b\=c,spec.nodeName!=n,status.phase==")
    assert query.paths == ("metadata.name", "spec.nodeName", "status.phase")
    assert query.matches({"metadata.name": "a,b=c"})
    assert not query.matches({"metadata.name": "a,b=c", "spec.nodeName": "n"})
    with pytest.raises(ValueError, match="invalid selector"):
        selectors.parse_fields("metadata.name")


BORN = datetime(2026, 1, 1, tzinfo=UTC)
STEPS = st.lists(
    st.tuples(st.sampled_from([*conditions.NODE_CLAIM.dependents, "Drifted"]), st.sampled_from(["True", "False", "Unknown"])),
    max_size=8,
)


@given(STEPS)
def test_the_root_is_true_exactly_when_every_dependent_is(steps: list[tuple[str, str]]) -> None:
    meta = ObjectMeta(name="a", generation=1, creation_timestamp=BORN)
    found: tuple[Condition, ...] = conditions.initialize((), conditions.NODE_CLAIM, meta, BORN)
    for seconds, (kind, status) in enumerate(steps):
        now = BORN + timedelta(seconds=seconds)
        found = conditions.set_condition(found, kind, status, kinds=conditions.NODE_CLAIM, meta=meta, now=now)
        again = conditions.set_condition(
            found, kind, status, kinds=conditions.NODE_CLAIM, meta=meta, now=now + timedelta(hours=1)
        )
        assert again == found, "setting what is set already changes nothing"
    statuses = [_status(found, kind) for kind in conditions.NODE_CLAIM.dependents]
    root = _status(found, "Ready")
    touched = any(kind != "Drifted" for kind, _ in steps)
    expected = "True" if set(statuses) == {"True"} else "False" if "False" in statuses else "Unknown"
    assert root == (expected if touched else "Unknown")
    assert found[-1].type == "Ready"
    moments = [c.last_transition_time for c in found[:-1]]
    assert moments == sorted(moments, key=lambda m: m or BORN)


def test_an_edit_makes_the_root_unknown_until_all_are_seen_again() -> None:
    old = ObjectMeta(name="a", generation=1, creation_timestamp=BORN)
    new = ObjectMeta(name="a", generation=2, creation_timestamp=BORN)
    kinds = conditions.NODE_POOL
    found: tuple[Condition, ...] = ()
    for kind in kinds.dependents:
        found = conditions.set_condition(found, kind, "True", kinds=kinds, meta=old, now=BORN)
    assert _status(found, "Ready") == "True"
    found = conditions.set_condition(found, kinds.dependents[0], "True", kinds=kinds, meta=new, now=BORN)
    ready: Any = find_condition(found, "Ready")
    assert (ready.status, ready.reason, ready.message) == ("Unknown", "ReconcilingDependents", "NodeClassReady=True")
    found = conditions.set_condition(found, kinds.dependents[1], "True", kinds=kinds, meta=new, now=BORN)
    assert _status(found, "Ready") == "True"


def test_only_independent_conditions_can_be_cleared() -> None:
    found = (Condition(type="Z", status="True"), Condition(type="Drifted", status="True"), Condition(type="A", status="True"))
    cleared = conditions.clear_condition(found, "Drifted", kinds=conditions.NODE_CLAIM)
    assert [c.type for c in cleared] == ["A", "Z"]
    with pytest.raises(ValueError, match="cannot be cleared"):
        conditions.clear_condition(found, "Launched", kinds=conditions.NODE_CLAIM)


def _status(found: tuple[Condition, ...], kind: str) -> str:
    condition = find_condition(found, kind)
    assert condition is not None
    return condition.status
