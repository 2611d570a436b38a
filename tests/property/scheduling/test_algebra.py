"""Laws of the requirements algebra."""

from hypothesis import given
from hypothesis import strategies as st

from kubewright.scheduling.requirement import Requirement, requirement
from kubewright.scheduling.requirements import agree, compatible, conflict, expressions, of_expressions

VALUES = ("a", "b", "1", "2", "3", "7")
values = st.sets(st.sampled_from(VALUES), max_size=4)
bounds = st.integers(0, 8)
simple = st.one_of(
    st.builds(
        lambda op, vs: requirement("k", op, sorted(vs)), st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist")), values
    ),
    st.builds(lambda op, n: requirement("k", op, (str(n),)), st.sampled_from(("Gt", "Lt", "Gte", "Lte")), bounds),
)


def _all(many: list[Requirement]) -> Requirement:
    found = many[0]
    for one in many[1:]:
        found = found & one
    return found


requirements = st.lists(simple, min_size=1, max_size=3).map(_all)


@given(requirements, requirements, st.sampled_from(VALUES))
def test_what_both_allow_is_what_each_allows(a: Requirement, b: Requirement, value: str) -> None:
    assert (a & b).has(value) == (a.has(value) and b.has(value))


@given(requirements, requirements)
def test_intersection_does_not_care_for_order(a: Requirement, b: Requirement) -> None:
    assert a & b == b & a
    assert a.intersects(b) == b.intersects(a)


@given(requirements, requirements)
def test_intersects_says_whether_the_intersection_is_empty(a: Requirement, b: Requirement) -> None:
    assert a.intersects(b) == (not (a & b).is_empty)


@given(requirements)
def test_any_is_an_allowed_value(a: Requirement) -> None:
    value = a.any()
    assert value == "" or a.has(value)


@given(requirements)
def test_written_and_read_again_it_allows_the_same(a: Requirement) -> None:
    again = of_expressions(expressions(a))["k"]
    assert [again.has(v) for v in VALUES] == [a.has(v) for v in VALUES]


@given(requirements, requirements)
def test_sets_conflict_exactly_when_their_members_do_not_agree(a: Requirement, b: Requirement) -> None:
    assert (conflict({"k": a}, {"k": b}) is None) == agree(a, b)


@given(requirements)
def test_an_undefined_key_suits_only_negative_requirements(a: Requirement) -> None:
    assert (compatible({}, {"k": a}) is None) == (a.operator in ("NotIn", "DoesNotExist"))
    assert compatible({}, {"k": a}, {"k"}) is None
