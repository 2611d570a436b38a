"""Laws of commitments: never more than was bought, never dearer than without, and the rest at list price."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.catalogue.commitments import Bought, Commitments, bill
from kubewright.settings import PriceRow

LISTS = {"m.xl": 0.2, "m.2xl": 0.4, "c.xl": 0.17}
machines = st.lists(
    st.builds(
        lambda kind, capacity_type, zone: Bought(
            kind, capacity_type, zone, LISTS[kind] * (0.4 if capacity_type == "spot" else 1)
        ),
        st.sampled_from(sorted(LISTS)),
        st.sampled_from(("on-demand", "on-demand", "spot")),
        st.sampled_from("ab"),
    ),
    max_size=8,
)


@st.composite
def rows(draw):
    found = []
    for i in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(("ri", "flexible", "plan", "family plan")))
        zone = draw(st.sampled_from(("", "", "a")))
        common = {"name": f"r{i}", "zone": zone, "paid_anyway": draw(st.booleans())}
        if kind == "ri":
            found.append(PriceRow(instance_type="m.xl", usd_per_hour=0.12, up_to_instances=draw(st.integers(0, 4)), **common))
        elif kind == "flexible":
            more = {"family": "m", "instance_type": "m.xl", "up_to_instances": draw(st.integers(0, 5))}
            found.append(PriceRow(usd_per_hour=0.13, **more, **common))
        else:
            family = "c" if kind == "family plan" else ""
            found.append(PriceRow(family=family, discount=0.3, up_to_usd_per_hour=draw(st.floats(0, 1)), **common))
    return found


@given(rows(), machines)
def test_a_bill_lies_between_fully_covered_and_list_price(own, bought):
    listed = sum(m.usd for m in bought)
    total = bill(own, LISTS, bought)
    assert total <= listed + 1e-9
    assert total >= 0
    if all(not r.paid_anyway for r in own):
        assert total >= listed * 0.6 - 1e-9
    assert bill([], LISTS, bought) == listed


@given(rows(), machines)
def test_nothing_is_used_beyond_what_was_committed_and_savings_add_up(own, bought):
    counted = Commitments(own, LISTS)
    before = list(counted.left)
    total = sum(counted.take(m) for m in bought)
    assert all(-1e-9 <= left <= had for left, had in zip(counted.left, before, strict=True))
    # What is saved is what the used parts save, row by row; rows are linear in what they use.
    saved = 0.0
    for row, left, had in zip(counted.rows, counted.left, before, strict=True):
        used = had - left
        if row.up_to_usd_per_hour is not None:
            at_list = used / (1 - row.discount)
            saved += at_list - (0 if row.paid_anyway else used)
        else:
            saved += used * (0.2 - (0 if row.paid_anyway else row.usd_per_hour))
    assert sum(m.usd for m in bought) - total == pytest.approx(saved, abs=1e-6)


@given(rows(), machines, st.sampled_from(sorted(LISTS)))
def test_one_more_machine_never_costs_more_than_its_list_price_nor_less_than_nothing(own, bought, kind):
    more = Bought(kind, "on-demand", "a", LISTS[kind])
    extra = bill(own, LISTS, [*bought, more]) - bill(own, LISTS, bought)
    assert -1e-9 <= extra <= more.usd + 1e-9


def test_a_larger_size_uses_as_much_as_it_is_larger_and_a_part_is_covered_too():
    own = [PriceRow(family="m", instance_type="m.xl", usd_per_hour=0.1, up_to_instances=3)]
    counted = Commitments(own, LISTS)
    assert counted.take(Bought("m.2xl", "on-demand", "a", 0.4)) == pytest.approx(0.2)
    assert counted.left == [pytest.approx(1)]
    assert counted.take(Bought("m.2xl", "on-demand", "a", 0.4)) == pytest.approx(0.1 + 0.2), "half of it at list price"
    assert counted.take(Bought("m.xl", "on-demand", "a", 0.2)) == 0.2


def test_what_covers_nothing_of_it_or_would_be_dearer_is_left_alone():
    own = [
        PriceRow(instance_type="m.xl", usd_per_hour=0.5, up_to_instances=3),
        PriceRow(instance_type="m.xl", zone="b", usd_per_hour=0.1, up_to_instances=3),
        PriceRow(family="z", instance_type="z.xl", usd_per_hour=0.1, up_to_instances=3),
    ]
    counted = Commitments(own, LISTS)
    assert counted.take(Bought("m.xl", "on-demand", "a", 0.2)) == 0.2
    assert counted.take(Bought("m.xl", "spot", "b", 0.08)) == 0.08
    assert counted.take(Bought("z.2xl", "on-demand", "b", 0.08)) == 0.08, "the size it counts in has no list price"
    assert counted.left == [3, 3, 3]
