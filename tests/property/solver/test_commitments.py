"""Laws of commitments in a pass: used as far as they go and no further, counted beside what runs, never a loss."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubewright.api import labels as names
from kubewright.api.karpenter import NodeClaim, NodeClaimStatus
from kubewright.api.meta import ObjectMeta
from kubewright.packing import plan
from kubewright.settings import Packing, PriceRow, Settings
from kubewright.solver.committed import COMMITMENT, relief
from kubewright.solver.problem import SolverSettings, StateNode
from kubewright.solver.solve import solve
from tests.builders import S_TYPES, ask, needs, node_pool, pods

TYPES = S_TYPES[:4]
LIST = {kind.name: kind.offerings[0].price for kind in TYPES}
ON_DEMAND = (needs(names.CAPACITY_TYPE, "on-demand"),)


def running(name, kind, capacity_type="on-demand"):
    """A full machine."""
    carried = {
        names.INSTANCE_TYPE: kind,
        names.ZONE: "a",
        names.CAPACITY_TYPE: capacity_type,
        names.NODEPOOL: "default",
    }
    status = NodeClaimStatus(provider_id=name, capacity={"cpu": "0"}, allocatable={"cpu": "0"})
    return StateNode(None, NodeClaim(metadata=ObjectMeta(name=name, labels=carried), status=status))


def planned(count, *rows, cpu="1500m", nodes=(), pool=None):
    how = SolverSettings(commitments=rows)
    return ask(pods(count, cpu=cpu), [pool or node_pool(requirements=ON_DEMAND)], TYPES, settings=how, nodes=nodes)


def instances(up_to, **more):
    return PriceRow(**{"name": "ri", "instance_type": "s4", "usd_per_hour": 0.1, **more}, up_to_instances=up_to)


row_sets = st.lists(
    st.one_of(
        st.builds(instances, st.integers(0, 3)),
        st.builds(
            lambda n, zone: instances(n, name="zonal", zone=zone, paid_anyway=True), st.integers(0, 2), st.sampled_from("ab")
        ),
        st.builds(
            lambda usd, share: PriceRow(name="plan", discount=share, up_to_usd_per_hour=usd),
            st.floats(0, 2),
            st.sampled_from((0.1, 0.3, 0.6)),
        ),
    ),
    max_size=3,
    unique_by=lambda row: row.name,
).map(tuple)


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 12), row_sets, st.lists(st.sampled_from(("s4", "s8")), max_size=3))
def test_no_commitment_is_used_beyond_what_is_left_and_every_pod_has_its_place(count, rows, kinds):
    nodes = tuple(running(f"n{i}", kind) for i, kind in enumerate(kinds))
    problem = planned(count, *rows, nodes=nodes)
    found = solve(problem)
    assert found == solve(problem)
    assert found.unplaced == {}
    for row in rows:
        mine = [c for c in found.claims if c.annotations.get(COMMITMENT) == row.name]
        if row.up_to_instances is not None:
            others = [r for r in rows[: rows.index(row)] if r.up_to_usd_per_hour is None]
            there = kinds.count("s4") if row.zone in ("", "a") and not others else 0
            assert len(mine) <= max(0, row.up_to_instances - (there if row is rows[0] else 0))
            assert all(c.instance_types == ("s4",) for c in mine)
            if row.zone:
                assert all(c.requirements[names.ZONE].values == {row.zone} for c in mine)
        elif not row.paid_anyway:
            assert sum(c.usd_per_hour for c in mine) <= row.up_to_usd_per_hour + 1e-9
    assert found.usd_per_hour == pytest.approx(sum(c.usd_per_hour for c in found.claims))


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 12), row_sets)
def test_what_is_saved_is_no_more_than_the_commitments_can_save(count, rows):
    problem = planned(count, *rows)
    found = solve(problem)
    at_list = sum(
        min(LIST[name] for name in c.instance_types) if COMMITMENT in c.annotations else c.usd_per_hour for c in found.claims
    )
    assert at_list - found.usd_per_hour <= relief(problem) + 1e-9


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 30), row_sets)
def test_an_improved_plan_is_never_dearer_and_no_plan_undercuts_the_bound(count, rows):
    problem = planned(count, *rows)
    first, better = solve(problem), plan(problem, Settings(packing=Packing.IMPROVE, packing_steps=2000))
    assert better.usd_per_hour <= first.usd_per_hour + 1e-9
    assert better.bound_usd_per_hour <= better.usd_per_hour + 1e-9


def test_reserved_instances_are_filled_first_then_list_price():
    found = solve(planned(6, instances(2)))
    mine = [c for c in found.claims if COMMITMENT in c.annotations]
    assert [(c.instance_types, c.usd_per_hour, len(c.pods)) for c in mine] == [(("s4",), 0.1, 2)] * 2
    assert all(c.requirements[names.CAPACITY_TYPE].values == {"on-demand"} for c in mine)
    (rest,) = [c for c in found.claims if COMMITMENT not in c.annotations]
    assert rest.usd_per_hour == LIST["s4"]


def test_what_runs_and_what_is_on_its_way_has_used_it_up():
    assert not any(COMMITMENT in c.annotations for c in solve(planned(2, instances(1), nodes=(running("n", "s4"),))).claims)
    spot = running("n", "s4", "spot")
    assert any(COMMITMENT in c.annotations for c in solve(planned(2, instances(1), nodes=(spot,))).claims)
    wanted = (needs(names.INSTANCE_TYPE, "s4"),)
    coming = NodeClaim(metadata=ObjectMeta(name="n", annotations={COMMITMENT: "ri"}, labels={names.NODEPOOL: "default"}))
    from msgspec.structs import replace

    coming = replace(coming, spec=replace(coming.spec, requirements=wanted))
    nodes = (StateNode(None, coming),)
    assert not any(COMMITMENT in c.annotations for c in solve(planned(2, instances(1), nodes=nodes)).claims)


def test_a_dear_machine_is_not_begun_for_a_small_discount():
    dear = PriceRow(name="gpu", instance_type="s16", discount=0.05, up_to_instances=5)
    found = solve(planned(1, dear))
    assert [c.instance_types[0] for c in found.claims] == ["s2"]


def test_a_savings_plan_covers_everything_until_it_is_spent():
    row = PriceRow(name="plan", discount=0.5, up_to_usd_per_hour=0.25)
    found = solve(planned(3, row, cpu="3", pool=node_pool(requirements=(*ON_DEMAND, needs(names.INSTANCE_TYPE, "s4")))))
    assert sorted(c.usd_per_hour for c in found.claims) == [0.1, 0.1, 0.2]


def test_what_is_paid_anyway_wins_over_spot():
    pool = node_pool(requirements=(needs(names.INSTANCE_TYPE, "s4"),))
    bought = solve(planned(1, instances(1, usd_per_hour=0.12, paid_anyway=True), cpu="3", pool=pool)).claims[0]
    assert (bought.usd_per_hour, bought.requirements[names.CAPACITY_TYPE].values) == (0.0, {"on-demand"})
    honest = solve(planned(1, instances(1, usd_per_hour=0.12), cpu="3", pool=pool)).claims[0]
    assert COMMITMENT not in honest.annotations, "at its price, spot is cheaper"


def test_pods_beside_commitments_are_packed_as_well_as_without_any():
    """Reserved instances take what they hold; the rest costs what it would cost alone."""
    row = instances(4, usd_per_hour=0.0)
    rest = plan(planned(40, cpu="1700m"), Settings(packing=Packing.IMPROVE))
    whole = plan(planned(40 + 4 * 2, row, cpu="1700m"), Settings(packing=Packing.IMPROVE))
    assert sorted(c.usd_per_hour for c in whole.claims if COMMITMENT in c.annotations) == [0.0] * 4
    assert whole.usd_per_hour == pytest.approx(rest.usd_per_hour)
    assert len({c.name for c in whole.claims}) == len(whole.claims)
    assert sorted(key for c in whole.claims for key in c.pods) == [p.key for p in planned(48).pods]
    assert whole.bound_usd_per_hour <= whole.usd_per_hour
    limited = plan(
        planned(20, row, cpu="1700m", pool=node_pool(requirements=ON_DEMAND, limits={"nodes": "6"})),
        Settings(packing=Packing.IMPROVE),
    )
    assert len(limited.claims) <= 6, "committed machines count for limits"
