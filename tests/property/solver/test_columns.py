"""Columns answer as a plain loop over instance types does."""

from hypothesis import given
from hypothesis import strategies as st

from kubewright.api import labels as names
from kubewright.catalogue.columns import Columns, Fit, bits
from kubewright.scheduling.requirement import requirement
from kubewright.scheduling.requirements import agree
from tests.builders import instance_type

sizes = st.tuples(st.integers(1, 9), st.integers(1, 9), st.sampled_from((("a",), ("b", "c"), ("a", "b", "c"))))
catalogues = st.lists(sizes, min_size=1, max_size=8).map(
    lambda many: tuple(
        instance_type(f"t{i}", cpu, memory, 0.1 * cpu + 0.01 * i, zones) for i, (cpu, memory, zones) in enumerate(many)
    )
)
asked = st.builds(
    lambda op, vs: requirement(names.ZONE, op, sorted(vs)),
    st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist")),
    st.sets(st.sampled_from("abcd"), min_size=1, max_size=3),
)


@given(catalogues, asked)
def test_matching_is_what_a_loop_finds(types, one) -> None:
    columns = Columns(types, names.WELL_KNOWN)
    found = {columns.rows[i].type.name for i in bits(columns.matching(one))}
    assert found == {t.name for t in types if agree(t.requirements[names.ZONE], one)}


@given(catalogues, st.integers(0, 10), st.integers(0, 10), st.integers(0, 3))
def test_holding_is_what_a_loop_finds(types, cpu, memory, overhead) -> None:
    columns = Columns(types, names.WELL_KNOWN)
    extra = {"cpu": overhead * 10**9}
    fit = Fit(columns.rows, dict.fromkeys(range(len(columns.rows)), extra))
    requests = {"cpu": cpu * 10**9, "memory": memory * 2**30 * 10**9}
    found = {columns.rows[i].type.name for i in bits(fit.holding(requests))}
    assert found == {
        t.name
        for t in types
        if requests["cpu"] + extra["cpu"] <= t.capacity["cpu"] and requests["memory"] <= t.capacity["memory"]
    }


@given(catalogues)
def test_prices_stand_in_order(types) -> None:
    columns = Columns(types, names.WELL_KNOWN)
    order = columns.by_price(tuple(k.index for k in columns.kinds))
    assert [p for p, _ in order] == sorted(min(o.price for o in t.offerings) for t in types)
