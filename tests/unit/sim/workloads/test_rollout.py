"""The arithmetic of a rollout: laws, and rows from the deployment controller's behaviour."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.sim.workloads.rollout import Limits, Shares, limits, new_replicas, old_replicas, proportional


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "wanted"),
    [
        (10, "25%", "25%", Limits(10, 3, 2)),
        (1, "25%", "25%", Limits(1, 1, 0)),
        (10, 0, 0, Limits(10, 0, 1)),
        (10, "0%", "1%", Limits(10, 0, 1)),
        (3, 1, 5, Limits(3, 1, 3)),
        (0, "25%", "25%", Limits(0, 0, 0)),
    ],
)
def test_limits_round_surge_up_and_unavailable_down(
    replicas: int, surge: int | str, unavailable: int | str, wanted: Limits
) -> None:
    assert limits(replicas, surge, unavailable) == wanted


@pytest.mark.parametrize(
    ("name", "new", "old", "wanted"),
    [
        ("nothing is up yet: what is unavailable of the new counts", (3, 0), [(10, 10)], [8]),
        ("all of the new is up", (3, 3), [(8, 8)], [5]),
        ("unhealthy pods of the oldest go first", (0, 0), [(4, 1), (6, 6)], [2, 6]),
        ("healthy ones go only as far as availability allows", (2, 2), [(4, 1), (6, 6)], [0, 6]),
        ("too few are available already", (3, 0), [(8, 7)], [8]),
        ("no budget", (5, 0), [(8, 8)], [8]),
    ],
)
def test_old_ones_shrink(name: str, new: tuple[int, int], old: list[tuple[int, int]], wanted: list[int]) -> None:
    shares = [Shares(str(i), replicas, available, 0) for i, (replicas, available) in enumerate(old)]
    found = old_replicas(Limits(10, 3, 2), Shares("new", *new, 0), shares)
    assert [found[str(i)] for i in range(len(old))] == wanted, name


@pytest.mark.parametrize(
    ("replicas", "shares", "wanted"),
    [
        # the newest first; last maximum 13 = 10 + 3
        (20, [(5, 13), (8, 13)], [10, 16]),
        (5, [(5, 13), (8, 13)], [3, 4]),
        (0, [(5, 13), (8, 13)], [0, 0]),
        (10, [(5, 13), (8, 13)], [5, 8]),
        (11, [(5, 13), (8, 13)], [6, 9]),
    ],
)
def test_scaling_in_the_middle_of_a_rollout_is_shared(replicas: int, shares: list[tuple[int, int]], wanted: list[int]) -> None:
    limit = limits(replicas, "30%", 0) if replicas else Limits(0, 0, 0)
    given_shares = [Shares(str(i), size, size, last) for i, (size, last) in enumerate(shares)]
    found = proportional(limit, given_shares)
    assert [found[str(i)] for i in range(len(shares))] == wanted


@st.composite
def rollouts(draw: st.DrawFn) -> tuple[Limits, Shares, list[Shares]]:
    limit = limits(draw(st.integers(1, 30)), draw(st.integers(0, 10)), draw(st.integers(0, 10)))

    def share(name: str, most: int) -> Shares:
        replicas = draw(st.integers(0, most))
        return Shares(name, replicas, draw(st.integers(0, replicas)), 0)

    new = share("new", limit.replicas)
    room, old = limit.most - new.replicas, []
    for number in range(draw(st.integers(0, 3))):
        one = share(str(number), room)
        room -= one.replicas
        old.append(one)
    return limit, new, old


@given(rollouts())
def test_growing_never_exceeds_the_surge_nor_the_wish(case: tuple[Limits, Shares, list[Shares]]) -> None:
    limit, new, old = case
    grown = new_replicas(limit, new, old)
    assert new.replicas <= grown <= limit.replicas
    assert grown + sum(o.replicas for o in old) <= limit.most


@given(rollouts())
def test_shrinking_never_takes_an_available_pod_that_is_needed(case: tuple[Limits, Shares, list[Shares]]) -> None:
    limit, new, old = case
    wanted = old_replicas(limit, new, old)
    # Unavailable pods go first, so what is left available is at least this:
    left = new.available + sum(min(o.available, wanted[o.name]) for o in old)
    before = new.available + sum(o.available for o in old)
    assert left >= min(before, limit.least_available)
    assert all(0 <= wanted[o.name] <= o.replicas for o in old)


@given(rollouts())
def test_a_rollout_whose_pods_come_up_ends(case: tuple[Limits, Shares, list[Shares]]) -> None:
    limit, new, old = case
    for _ in range(200):
        new = Shares("new", new_replicas(limit, new, old), new.available, 0)
        fewer = old_replicas(limit, new, old)
        old = [Shares(o.name, fewer[o.name], min(o.available, fewer[o.name]), 0) for o in old]
        if new.available == new.replicas == limit.replicas and not any(o.replicas for o in old):
            return
        new = Shares("new", new.replicas, new.replicas, 0)
    raise AssertionError(f"stuck at {new}, {old}, {limit}")
