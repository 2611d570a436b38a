"""Which types a spot claim names."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kubewright.api import labels as names
from kubewright.catalogue.types import InstanceType
from kubewright.packing import plan
from kubewright.packing.trim import pools_named, trimmed
from kubewright.settings import Settings
from kubewright.solver.problem import Plan
from kubewright.solver.solve import solve
from tests.builders import ask, instance_type, needs, node_pool, pod

prices = st.lists(st.floats(0.01, 10), min_size=1, max_size=12)
SPOT = node_pool(requirements=(needs(names.CAPACITY_TYPE, "spot"),))


def types_of(listed: list[float], out: str = "") -> tuple[InstanceType, ...]:
    found = [instance_type(f"t{i:02}", 4, 16, usd) for i, usd in enumerate(listed)]
    if out:
        dry = tuple(replace(o, available=False, unavailable_because=out) if o.zone == "c" else o for o in found[-1].offerings)
        found[-1] = replace(found[-1], offerings=dry)
    return tuple(found)


def of_one_pod(types: tuple[InstanceType, ...], share: float, least: int, pool=SPOT) -> tuple[Plan, Plan]:
    asked = ask([pod()], [pool], types=types)
    whole = solve(asked)
    return whole, trimmed(whole, asked, share, least)


@given(prices, st.floats(0, 2), st.integers(0, 40))
@settings(deadline=None, max_examples=100)
def test_what_is_named_is_cheap_or_needed_to_have_enough_pools(listed, share, least) -> None:
    types = types_of(listed)
    (whole,), (cut,) = (one.claims for one in of_one_pod(types, share, least))
    assert set(cut.instance_types) <= set(whole.instance_types)
    assert cut.instance_types[0] == whole.instance_types[0]
    assert cut.requirements[names.INSTANCE_TYPE].values == set(cut.instance_types)
    assert cut.usd_per_hour == whole.usd_per_hour
    usd = {t.name: t.offerings[-1].price for t in types}
    dear = [n for n in cut.instance_types if usd[n] > whole.usd_per_hour * (1 + share) + 1e-9]
    if dear:
        assert pools_named(cut, types) - 3 < least
    left_out = set(whole.instance_types) - set(cut.instance_types)
    assert all(usd[n] > whole.usd_per_hour * (1 + share) for n in left_out)
    if left_out:
        assert pools_named(cut, types) >= least


@given(prices, st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(("1", "3"))), min_size=2, max_size=6), st.floats(0, 2))
@settings(deadline=None, max_examples=60)
def test_each_claim_of_a_plan_is_trimmed_as_if_it_were_alone(listed, wanted, share) -> None:
    few = [pod(f"p{i}", cpu, node_selector={names.ZONE: zone}) for i, (zone, cpu) in enumerate(wanted)]
    types = tuple(
        replace(t, offerings=tuple(replace(o, price=o.price * (1 + i % 3 * "cab".index(o.zone))) for o in t.offerings))
        for i, t in enumerate(types_of(listed))
    )
    asked = ask(few, [SPOT], types=types)
    whole = solve(asked)
    alone = [trimmed(replace(whole, claims=(claim,)), asked, share, 4).claims[0] for claim in whole.claims]
    assert list(trimmed(whole, asked, share, 4).claims) == alone


def test_pools_are_counted_by_type_and_zone() -> None:
    types = types_of([1.0, 1.05, 1.5, 2.0, 3.0, 4.0])
    _, cut = of_one_pod(types, 0.1, 7)
    assert cut.claims[0].instance_types == ("t00", "t01", "t02")  # two types have six pools


def test_a_zone_in_which_a_type_is_dear_counts_against_it() -> None:
    types = types_of([1.0, 1.0])
    dear = tuple(replace(o, price=5.0) if o.zone == "c" and o.capacity_type == "spot" else o for o in types[1].offerings)
    _, cut = of_one_pod((types[0], replace(types[1], offerings=dear)), 0.1, 0)
    assert cut.claims[0].instance_types == ("t00",)


def test_after_a_capacity_error_the_whole_list_is_named_again() -> None:
    listed = [1.0, 2.0, 3.0]
    whole, cut = of_one_pod(types_of(listed, "InsufficientInstanceCapacity until 12:03:00"), 0.1, 0)
    assert cut == whole
    whole, cut = of_one_pod(types_of(listed, "nobody names a price for it"), 0.1, 0)
    assert cut != whole


def test_on_demand_and_min_values_are_left_alone() -> None:
    for needed in (
        needs(names.CAPACITY_TYPE, "on-demand"),
        needs(names.INSTANCE_TYPE, operator="Exists", min_values=2),
    ):
        whole, cut = of_one_pod(types_of([1.0, 2.0, 3.0]), 0.1, 0, node_pool(requirements=(needed,)))
        assert cut == whole


def test_plans_are_trimmed_by_the_settings() -> None:
    asked = ask([pod()], [SPOT], types=types_of([1.0, 1.05, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]))
    assert len(plan(asked, Settings()).claims[0].instance_types) == 5
    assert len(plan(asked, Settings(launch_least_pools=3)).claims[0].instance_types) == 2
    assert len(plan(asked, Settings(launch_price_share=3.5)).claims[0].instance_types) == 5
    assert len(plan(asked, Settings(launch_price_share=9)).claims[0].instance_types) == 8
