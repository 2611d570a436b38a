"""What is planned is what is launched: the provider's launch leaves out nothing that the plan chose by, on the real catalogue."""

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from kubewright.api import aws_labels
from kubewright.api import labels as names
from kubewright.api.karpenter import NodePool
from kubewright.catalogue.types import InstanceType
from kubewright.cloud.aws import launch
from kubewright.lifecycle.purchase import node_claim
from kubewright.solver.problem import SolverSettings
from kubewright.solver.solve import solve
from tests.builders import ask, needs, node_pool, pod
from tests.unit.cloud.world import World, story


@cache
def types() -> tuple[InstanceType, ...]:
    async def tell(world: World) -> tuple[InstanceType, ...]:
        return await world.provider.instance_types(await world.pool())

    return story(tell)


POOLS = st.sampled_from(
    (
        (),
        (needs(names.CAPACITY_TYPE, "on-demand"),),
        (needs(names.INSTANCE_TYPE, "m5.metal", "m5.large", "p3.2xlarge"),),
        (needs("karpenter.k8s.aws/instance-family", "g5", "c6i"),),
        (needs(names.INSTANCE_TYPE, operator="Exists", min_values=3),),
    )
)
PODS = st.tuples(
    st.sampled_from(("100m", "3", "30", "90", "170")),
    st.sampled_from(("64Mi", "10Gi", "300Gi")),
    st.sampled_from(({}, {}, {}, {"nvidia.com/gpu": "1"}, {"aws.amazon.com/neuron": "1"})),
    st.integers(1, 9),
)


@settings(max_examples=25, deadline=None)
@given(POOLS, st.lists(PODS, min_size=1, max_size=5))
def test_a_launch_picks_from_the_planned_types_at_the_planned_price(
    requirements: tuple[object, ...], wanted: list[tuple[str, str, dict[str, str], int]]
) -> None:
    pool: NodePool = node_pool(requirements=requirements)
    pods = [pod(f"p{i}-{n}", cpu, memory, more=more) for i, (cpu, memory, more, count) in enumerate(wanted) for n in range(count)]
    plan = solve(ask(pods, [pool], types(), settings=SolverSettings(well_known_labels=frozenset(aws_labels.WELL_KNOWN))))
    assert plan.claims or all(more for _, _, more, _ in wanted) or requirements
    exotic = {t.name for t in types() if t.exotic}
    for planned in plan.claims:
        listed = set(planned.instance_types)
        choice = launch.choose(node_claim(planned, pool, "claim"), types())
        bought = [b.type.name for b in choice.types]
        assert set(bought) <= listed
        if any(r.min_values for r in planned.requirements.values()):
            continue
        assert choice.types[0].price == planned.usd_per_hour
        assert listed <= exotic or not listed & exotic
