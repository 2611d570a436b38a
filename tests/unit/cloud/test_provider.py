"""The provider on the fake EC2: what it buys, that it never buys twice, and what it says when it cannot."""

import asyncio
import contextlib
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kubewright.api import aws_labels
from kubewright.api.karpenter import NodeClaim
from kubewright.cloud.aws import api, launch, tags
from kubewright.cloud.aws.collection import OrphanCollection
from kubewright.cloud.provider import CloudProvider, HasBackground, HasNodeClasses
from kubewright.errors import CloudError, InstanceNotFound, InsufficientCapacity, LaunchFailed, NodeClassNotReady, Throttled
from kubewright.scheduling import requirements
from kubewright.settings import MinValuesPolicy
from kubewright.sim.ec2 import Faults
from tests.unit.cloud.world import World, story

ZONE, TYPE, MARKET = "topology.kubernetes.io/zone", "node.kubernetes.io/instance-type", "karpenter.sh/capacity-type"


def test_it_is_a_whole_provider():
    async def tell(world: World):
        whole: CloudProvider = world.provider
        assert isinstance(whole, HasNodeClasses)
        assert isinstance(whole, HasBackground)

    story(tell)


# --- instance types ---------------------------------------------------------------------------------------------------


def test_types_are_the_same_object_until_something_changes_and_then_only_what_changed_is_new():
    async def tell(world: World):
        pool = await world.pool()
        first = await world.provider.instance_types(pool)
        assert await world.provider.instance_types(pool) is first
        world.provider._unavailable.mark("on-demand", "m5.large", "us-west-2a", "test", world.clock.now())
        second = await world.provider.instance_types(pool)
        assert second is not first
        assert [b.name for a, b in zip(first, second, strict=True) if a is not b] == ["m5.large"]
        await asyncio.sleep(181)
        third = await world.provider.instance_types(pool)
        assert third == first

    story(tell)


def test_offerings_are_the_class_zones_by_both_markets_cheapest_first():
    async def tell(world: World):
        types = {t.name: t for t in await world.provider.instance_types(await world.pool())}
        assert len(types) > 1200
        for t in types.values():
            assert list(t.offerings) == sorted(t.offerings, key=lambda o: (o.price, o.capacity_type, o.zone))
            assert all(o.price > 0 for o in t.offerings if o.available)
        found = {(o.capacity_type, o.zone) for o in types["m5.large"].offerings}
        assert found == {(c, z) for c in ("on-demand", "spot") for z in ("us-west-2a", "us-west-2b", "us-west-2c")}
        listed = next(o.price for o in types["m5.large"].offerings if o.capacity_type == "on-demand")
        assert all(o.price < listed for o in types["m5.large"].offerings if o.capacity_type == "spot")

    story(tell, whole=True)


def test_every_label_of_aws_has_an_answer_on_every_type():
    async def tell(world: World):
        wanted = aws_labels.WELL_KNOWN - {
            "karpenter.sh/nodepool",
            aws_labels.PLACEMENT_GROUP_ID,
            aws_labels.PLACEMENT_GROUP_PARTITION,
        }
        for t in await world.provider.instance_types(await world.pool()):
            assert wanted <= t.requirements.keys(), t.name

    story(tell, whole=True)


def test_types_survive_a_dead_spot_market_at_on_demand_prices():
    async def tell(world: World):
        world.ec2.break_down("DescribeSpotPriceHistory")
        await world.provider.reconcile_node_class("default")
        types = {t.name: t for t in await world.provider.instance_types(await world.pool())}
        assert {o.price for o in types["m5.large"].offerings} == {0.096}

    story(tell, ready=False)


# --- launch -----------------------------------------------------------------------------------------------------------


def test_an_instance_shows_what_nodeclaims_show():
    async def tell(world: World):
        bought = await world.provider.create(await world.claim(**{TYPE: ["m5.xlarge"], ZONE: ["us-west-2b"]}))
        assert bought.provider_id.startswith("aws:///us-west-2b/i-")
        assert bought.labels[TYPE] == "m5.xlarge"
        assert bought.labels["topology.k8s.aws/zone-id"]
        assert bought.capacity["cpu"] == "4"
        assert bought.allocatable["memory"] == "14162Mi"
        assert bought.annotations[aws_labels.EC2_NODE_CLASS_HASH_VERSION] == "v5"
        assert replace(await world.provider.get(bought.provider_id), annotations={}).image_id == bought.image_id

    story(tell)


MARKETS = st.sets(st.sampled_from(["spot", "on-demand"]), min_size=1)
ZONES = st.sets(st.sampled_from(["us-west-2a", "us-west-2b", "us-west-2c"]), min_size=1)
KINDS = st.sets(
    st.sampled_from(["m5.xlarge", "c6g.2xlarge", "r5.large", "m7a.4xlarge", "t3.xlarge", "g5.2xlarge", "m5.metal"]), min_size=1
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(MARKETS, ZONES, KINDS, st.integers(0, 2**16))
def test_whatever_is_bought_is_what_the_claim_allows_and_carries_every_tag(markets, zones, kinds, seed):
    async def tell(world: World):
        claim = await world.claim(cpu="1", **{MARKET: sorted(markets), ZONE: sorted(zones), TYPE: sorted(kinds)})
        try:
            bought = await world.provider.create(claim)
        except InsufficientCapacity:
            return
        wanted = requirements.of_expressions(claim.spec.requirements)
        assert all(wanted[key].has(bought.labels[key]) for key in (MARKET, ZONE, TYPE))
        (there,) = world.ec2.running()
        found = api.tags_of(there.tags)
        assert tags.short(claim.metadata.uid) in tags.launched_for(found)
        assert found["kubewright.sh/cluster-uid"]
        assert found["karpenter.sh/nodepool"] == "general"
        assert found["eks:eks-cluster-name"] == "sandbox"
        assert found["kubernetes.io/cluster/sandbox"] == "owned"
        assert found["karpenter.k8s.aws/ec2nodeclass"] == "default"

    story(tell, Faults(dry_share=0.3), seed=seed)


@settings(max_examples=15, deadline=None)
@given(MARKETS, ZONES, st.integers(0, 200), st.data())
def test_the_quick_check_of_a_launch_says_what_the_algebra_says(markets, zones, cpu, data):
    async def tell(world: World):
        types = await world.provider.instance_types(await world.pool())
        rule = data.draw(
            st.sampled_from([("Gt", [str(cpu)]), ("Lt", [str(cpu)]), ("NotIn", ["2", "4"]), ("Exists", []), ("DoesNotExist", [])])
        )
        wanted = requirements.of_expressions(())
        for key, operator, values in (
            (MARKET, "In", sorted(markets)),
            (ZONE, "In", sorted(zones)),
            (aws_labels.INSTANCE_CPU, *rule),
            (aws_labels.INSTANCE_GPU_COUNT, *rule),
        ):
            requirements.add(wanted, launch_requirement(key, operator, values))
        for t in types:
            assert launch.allows(wanted, t.requirements) == (requirements.conflict(wanted, t.requirements) is None)

    story(tell)


def launch_requirement(key, operator, values):
    from kubewright.scheduling.requirement import requirement

    return requirement(key, operator, values)


def test_at_most_sixty_types_the_cheapest_first_and_nothing_exotic():
    async def tell(world: World):
        claim = await world.claim(**{MARKET: ["spot", "on-demand"]})
        types = await world.provider.instance_types(await world.pool())
        choice = launch.choose(claim, types)
        assert choice.capacity_type == "spot"
        assert len(choice.types) == 60
        assert [b.price for b in choice.types] == sorted(b.price for b in choice.types)
        assert not any("metal" in b.type.name or b.type.capacity["nvidia.com/gpu"] for b in choice.types)

    story(tell, whole=True)


def test_metal_is_bought_when_nothing_else_is_asked_for():
    async def tell(world: World):
        bought = await world.provider.create(await world.claim(**{TYPE: ["m5.metal"]}))
        assert bought.labels[TYPE] == "m5.metal"

    story(tell)


def test_spot_dearer_than_the_cheapest_on_demand_machine_is_not_bought():
    async def tell(world: World):
        claim = await world.claim(cpu="1", **{MARKET: ["spot", "on-demand"], TYPE: ["m5.24xlarge", "m5.xlarge"]})
        types = await world.provider.instance_types(await world.pool())
        spot = {t.name: min(o.price for o in t.offerings if o.capacity_type == "spot") for t in types if t.name.startswith("m5.")}
        assert spot["m5.24xlarge"] > 0.192, "or this test shows nothing"
        choice = launch.choose(claim, types)
        assert (choice.capacity_type, [b.type.name for b in choice.types]) == ("spot", ["m5.xlarge"])
        only_spot = await world.claim("dear", cpu="1", **{MARKET: ["spot"], TYPE: ["m5.24xlarge"]})
        assert [b.type.name for b in launch.choose(only_spot, types).types] == ["m5.24xlarge"]

    story(tell)


def test_min_values_are_kept_or_refused():
    async def tell(world: World):
        claim = await world.claim(**{TYPE: ["m5.xlarge", "m5a.xlarge"]})
        wanted = tuple(replace(r, min_values=3) if r.key == TYPE else r for r in claim.spec.requirements)
        claim = replace(claim, spec=replace(claim.spec, requirements=wanted))
        types = await world.provider.instance_types(await world.pool())
        with pytest.raises(InsufficientCapacity, match="needs 3 values, found 2"):
            launch.choose(claim, types)
        assert len(launch.choose(claim, types, MinValuesPolicy.BEST_EFFORT).types) == 2

    story(tell)


# --- never twice, never leaked ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", [False, True])
def test_an_answer_that_is_lost_is_not_a_second_machine(restart):
    async def tell(world: World):
        claim = await world.claim()
        for _ in range(5):
            world.ec2.fail_next("CreateFleet", "RequestTimeout", after=True, status=0)
        with pytest.raises(Throttled):
            await world.provider.create(claim)
        provider = world.restarted() if restart else world.provider
        bought = await provider.create(claim)
        assert [f"aws:///{i.placement.availability_zone}/{i.instance_id}" for i in world.ec2.running()] == [bought.provider_id]

    story(tell)


def test_a_machine_that_ec2_does_not_show_yet_is_waited_for():
    async def tell(world: World):
        claim = await world.claim()
        await world.provider.create(claim)
        forgetful = world.restarted()
        forgetful._unavailable.mark("on-demand", "c6g.xlarge", "us-west-2a", "changes the request", world.clock.now())
        for _ in range(40):
            try:
                bought = await forgetful.create(claim)
                break
            except Throttled:
                await asyncio.sleep(2)
        assert len(world.ec2.running()) == 1
        assert bought.provider_id.endswith(world.ec2.running()[0].instance_id)

    story(tell, Faults(describe_lag_s=10))


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**16))
def test_calls_that_fail_before_or_after_their_effect_never_double_or_leak(seed):
    async def tell(world: World):
        claims = [await world.claim(f"c{i}") for i in range(5)]
        owned = {}
        for claim in claims:
            for _ in range(60):
                try:
                    owned[claim.metadata.uid] = (await world.provider.create(claim)).provider_id
                    break
                except CloudError:
                    await asyncio.sleep(5)
        assert len(owned) == len(claims)
        assert sorted(owned.values()) == sorted(
            f"aws:///{i.placement.availability_zone}/{i.instance_id}" for i in world.ec2.running()
        )

    story(reconciled(tell), Faults(fail_before=0.2, fail_after=0.2), seed=seed, ready=False)


def is_ready(world: World) -> bool:
    found = world.node_class().get("status", {}).get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in found)


def reconciled(tell):
    """`tell` once the NodeClass has got through a cloud that fails."""

    async def told(world: World):
        for _ in range(50):
            with contextlib.suppress(CloudError):
                await world.provider.reconcile_node_class("default")
            if is_ready(world):
                break
            await asyncio.sleep(10)
        for _ in range(50):
            try:
                await world.provider.instance_types(await world.pool())
                break
            except CloudError:
                await asyncio.sleep(1)
        await tell(world)

    return told


def test_throttled_calls_are_repeated():
    async def tell(world: World):
        await asyncio.gather(*[world.provider.create(await world.claim(f"c{i}")) for i in range(40)])
        assert len(world.ec2.running()) == 40

    story(tell, Faults(calls_per_s=20, calls_burst=30))


def orphans_of(world: World) -> OrphanCollection:
    provider = world.provider
    uid = world.store.get("v1", "Namespace", "", "kube-system")["metadata"]["uid"]
    return OrphanCollection(world.ec2, world.kube, world.clock, "sandbox", provider._templates, provider._machines, uid)


def test_orphans_are_ended_and_nothing_else():
    async def tell(world: World):
        kept = await world.claim("kept")
        await world.provider.create(kept)  # status never written: found again by its tag
        lost = await world.claim("lost")
        orphan = await world.provider.create(lost)
        await world.kube.delete(NodeClaim, "lost")
        collection = orphans_of(world)
        assert await collection.collect() == [], "too young"
        await asyncio.sleep(31)
        assert await collection.collect() == [orphan.provider_id.rpartition("/")[2]]
        world.ec2.fail_next("DescribeInstances", "UnauthorizedOperation")
        with pytest.raises(CloudError):
            await collection.collect()
        assert len(world.ec2.running()) == 1

    story(tell)


# --- no capacity ------------------------------------------------------------------------------------------------------


def test_a_dry_zone_is_marked_and_left():
    async def tell(world: World):
        world.ec2.exhaust(zone="us-west-2a")
        bought = await world.provider.create(await world.claim(**{TYPE: ["m5.xlarge"]}))
        assert bought.labels[ZONE] != "us-west-2a"
        claim = await world.claim("stuck", **{TYPE: ["m5.xlarge"], ZONE: ["us-west-2a"]})
        with pytest.raises(InsufficientCapacity):
            await world.provider.create(claim)
        calls = world.ec2.calls["CreateFleet"]
        with pytest.raises(InsufficientCapacity, match="unavailable"):
            await world.provider.create(claim)
        assert world.ec2.calls["CreateFleet"] == calls, "a marked offering is not asked for"
        world.ec2.restock()
        await asyncio.sleep(181)
        assert (await world.provider.create(claim)).labels[ZONE] == "us-west-2a"

    story(tell)


def test_full_subnets_put_the_zone_out():
    async def tell(world: World):
        for i in range(6):
            await world.provider.create(await world.claim(f"c{i}", **{TYPE: ["m5.xlarge"]}))
        with pytest.raises(InsufficientCapacity):
            await world.provider.create(await world.claim("c6", **{TYPE: ["m5.xlarge"]}))

    story(tell, Faults(subnet_addresses=2))


def test_a_template_that_vanished_is_made_again():
    async def tell(world: World):
        await world.provider.create(await world.claim("a"))
        world.ec2.account.templates.clear()
        await world.provider.create(await world.claim("b"))
        assert len(world.ec2.running()) == 2

    story(tell)


def test_templates_go_some_time_after_their_last_use():
    async def tell(world: World):
        await world.provider.create(await world.claim("a"))
        assert world.ec2.account.templates
        await world.restarted()._templates.collect(world.clock.now())
        assert world.ec2.account.templates, "an earlier run's are kept as long as our own"
        await world.provider._templates.collect(world.clock.now() + timedelta(minutes=5))
        assert not world.ec2.account.templates

    story(tell)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("UnauthorizedOperation", "Unauthorized"),
        ("InvalidAMIID.NotFound", "AMINotFound"),
        ("PendingVerification", "AccountPendingVerification"),
        ("SomethingNew", "LaunchFailed"),
    ],
)
def test_a_refused_call_says_so_on_the_launched_condition(code, reason):
    async def tell(world: World):
        world.ec2.fail_next("CreateFleet", code)
        with pytest.raises(LaunchFailed) as found:
            await world.provider.create(await world.claim())
        assert found.value.condition_reason == reason

    story(tell)


# --- ends -------------------------------------------------------------------------------------------------------------


def test_delete_is_done_when_it_says_the_instance_is_gone():
    async def tell(world: World):
        bought = await world.provider.create(await world.claim())
        await asyncio.sleep(60)
        await world.provider.delete(bought.provider_id)
        assert [i.terminating for i in await world.provider.list()] == [True]
        await world.provider.delete(bought.provider_id)
        assert world.ec2.calls["TerminateInstances"] == 1, "what is ending is not told again"
        await asyncio.sleep(60)
        with pytest.raises(InstanceNotFound):
            await world.provider.delete(bought.provider_id)
        assert await world.provider.list() == []

    story(tell)


def test_an_id_of_another_cloud_is_refused():
    async def tell(world: World):
        with pytest.raises(CloudError, match="aws:///<zone>/<instance id>"):
            await world.provider.get("kwok://x")

    story(tell)


# --- NodeClass --------------------------------------------------------------------------------------------------------


def conditions(world: World) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c["reason"]) for c in world.node_class()["status"]["conditions"]}


def test_a_good_class_becomes_ready_and_stays_untouched():
    async def tell(world: World):
        assert {s for s, _ in conditions(world).values()} == {"True"}
        version = world.node_class()["metadata"]["resourceVersion"]
        assert await world.provider.reconcile_node_class("default") == timedelta(minutes=1)
        assert world.node_class()["metadata"]["resourceVersion"] == version

    story(tell)


@pytest.mark.parametrize(
    ("spec", "kind", "reason"),
    [
        ({"subnetSelectorTerms": [{"tags": {"no": "such"}}]}, "SubnetsReady", "SubnetsNotFound"),
        ({"securityGroupSelectorTerms": [{"name": "none"}]}, "SecurityGroupsReady", "SecurityGroupsNotFound"),
        ({"amiSelectorTerms": [{"id": "ami-0123"}], "amiFamily": "AL2023"}, "AMIsReady", "AMINotFound"),
        ({"amiSelectorTerms": [{"alias": "al2@latest"}]}, "AMIsReady", "UnsupportedAlias"),
        ({"placementGroupSelector": {"name": "x"}}, "PlacementGroupReady", "PlacementGroupResolutionFailed"),
        (
            {"amiSelectorTerms": [{"alias": "bottlerocket@latest"}], "userData": "set -e"},
            "ValidationSucceeded",
            "UserDataInvalid",
        ),
    ],
)
def test_a_bad_class_says_what_is_wrong_and_launches_nothing(spec, kind, reason):
    async def tell(world: World):
        found = conditions(world)
        assert found[kind] == ("False", reason)
        assert found["Ready"][0] == "False"
        with pytest.raises(NodeClassNotReady):
            await world.provider.create(await world.claim())

    story(tell, **spec)


def test_a_class_goes_only_after_its_claims_and_leaves_nothing_behind():
    async def tell(world: World):
        claim = await world.claim()
        await world.provider.create(claim)
        world.store.delete("karpenter.k8s.aws/v1", "EC2NodeClass", "", "default")
        assert await world.provider.reconcile_node_class("default") == timedelta(minutes=10)
        await world.kube.delete(NodeClaim, claim.name)
        assert await world.provider.reconcile_node_class("default") is None
        assert not world.ec2.account.templates
        assert not world.ec2.account.profiles
        assert await world.provider.reconcile_node_class("default") is None

    story(tell)


def test_drift():
    async def tell(world: World):
        claim = await world.claim()
        bought = await world.provider.create(claim)
        status = replace(claim.status, provider_id=bought.provider_id, image_id=bought.image_id)
        meta = replace(claim.metadata, labels=dict(bought.labels), annotations=dict(bought.annotations))
        claim = replace(claim, metadata=meta, status=status)
        assert await world.provider.drift_reason(claim) == ""
        old = replace(claim, status=replace(status, image_id="ami-old"))
        assert await world.provider.drift_reason(old) == "AMIDrift"
        hashed = replace(meta, annotations={**meta.annotations, aws_labels.EC2_NODE_CLASS_HASH: "1"})
        assert await world.provider.drift_reason(replace(claim, metadata=hashed)) == "NodeClassDrift"
        groups = {g: replace(v, group_id=f"{g}x") for g, v in world.ec2.account.groups.items()}
        world.ec2.account.groups = {v.group_id: v for v in groups.values()}
        await world.provider.reconcile_node_class("default")
        assert await world.provider.drift_reason(claim) == "SecurityGroupDrift"

    story(tell)
