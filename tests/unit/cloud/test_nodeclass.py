"""The EC2NodeClass controller: what it validates, names, keeps and takes away."""

import asyncio
import contextlib
from datetime import timedelta

import pytest
from msgspec.structs import replace

from kubewright.api import aws_labels, labels
from kubewright.api.karpenter import NodeClaim
from kubewright.cloud.aws import amis, api, profiles
from kubewright.errors import CloudError, NodeClassNotReady
from kubewright.kube.client import MergePatch
from kubewright.sim.ec2 import Faults
from kubewright.sim.ec2.account import AMAZON, OWNER, name_id
from tests.unit.cloud.world import World, story

TYPE = labels.INSTANCE_TYPE


def conditions(world: World) -> dict[str, tuple[str, str, str]]:
    found = world.node_class().get("status", {}).get("conditions", ())
    return {c["type"]: (c["status"], c["reason"], c["message"]) for c in found}


async def reconcile(world: World) -> timedelta | None:
    return await world.provider.reconcile_node_class("default")


# --- validation -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("CreateLaunchTemplate", "CreateLaunchTemplateAuthCheckFailed"),
        ("CreateFleet", "CreateFleetAuthCheckFailed"),
        ("RunInstances", "RunInstancesAuthCheckFailed"),
    ],
)
def test_a_permission_that_is_missing_is_told_before_anything_is_launched(call, reason):
    async def tell(world: World):
        world.ec2.break_down(call, code="UnauthorizedOperation", status=403)
        await reconcile(world)
        status, found, message = conditions(world)["ValidationSucceeded"]
        assert (status, found) == ("False", reason)
        assert f"ec2:{call}" in message
        asked = dict(world.ec2.calls)
        world.ec2.mend()
        await reconcile(world)
        assert conditions(world)["ValidationSucceeded"][1] == reason, "remembered for half an hour"
        assert world.ec2.calls[call] == asked[call]
        body = {"metadata": {"annotations": {"retry": "1"}}}
        world.store.patch("karpenter.k8s.aws/v1", "EC2NodeClass", "", "default", MergePatch(body))
        await reconcile(world)
        assert conditions(world)["ValidationSucceeded"][0] == "True", "any annotation asks again"

    story(tell, ready=False)


def test_dry_runs_buy_nothing_and_are_not_repeated():
    async def tell(world: World):
        calls = dict(world.ec2.calls)
        assert (calls["CreateFleet"], calls["RunInstances"], calls["CreateLaunchTemplate"]) == (1, 1, 1)
        assert not world.ec2.machines.all
        await reconcile(world)
        assert world.ec2.calls["CreateFleet"] == 1
        await asyncio.sleep(31 * 60)
        await reconcile(world)
        assert world.ec2.calls["CreateFleet"] == 2

    story(tell)


def test_without_dry_runs_the_class_is_taken_at_its_word():
    async def tell(world: World):
        world.provider = world.restarted(dry_run=False)
        await reconcile(world)
        assert conditions(world)["Ready"][0] == "True"
        assert "CreateFleet" not in world.ec2.calls

    story(tell, ready=False)


def test_a_new_profile_that_ec2_does_not_know_yet_is_waited_for():
    async def tell(world: World):
        assert await reconcile(world) == timedelta(seconds=10)
        assert conditions(world)["ValidationSucceeded"][0] == "Unknown"
        await asyncio.sleep(20)
        await reconcile(world)
        assert conditions(world)["Ready"][0] == "True"

    story(tell, Faults(profile_lag_s=15), ready=False)


def test_a_profile_of_the_user_that_is_not_there_is_told():
    async def tell(world: World):
        assert conditions(world)["ValidationSucceeded"][:2] == ("False", "InstanceProfileNotFound")

    story(tell, instanceProfile="nobodys", role=None)


def test_a_role_that_iam_does_not_know_is_told_and_leaves_no_profile():
    async def tell(world: World):
        world.ec2.account.roles = {"SomebodyElse"}
        await reconcile(world)
        status, reason, message = conditions(world)["InstanceProfileReady"]
        assert (status, reason) == ("False", "RoleNotFound")
        assert "'KarpenterNodeRole-sandbox'" in message
        assert not world.ec2.account.profiles
        asked = world.ec2.calls["CreateInstanceProfile"]
        await reconcile(world)
        assert world.ec2.calls["CreateInstanceProfile"] == asked, "not asked again at every look"
        world.ec2.account.roles.add("KarpenterNodeRole-sandbox")
        await asyncio.sleep(61)
        await reconcile(world)
        assert conditions(world)["Ready"][0] == "True"

    story(tell, ready=False)


@pytest.mark.parametrize(
    ("spec", "reason", "words"),
    [
        ({"tags": {"karpenter.sh/nodepool": "x"}}, "", "karpenter.sh/nodepool"),
        (
            {"amiSelectorTerms": [{"alias": "bottlerocket@latest"}], "kubelet": {"podsPerCore": 2}},
            "UnsupportedKubeletConfiguration",
            "Bottlerocket does not know it; use maxPods",
        ),
        ({"userData": "#" * 17_000}, "UserDataSizeLimitExceeded", "16384"),
    ],
)
def test_what_the_class_must_not_say_is_refused_with_a_mend(spec, reason, words):
    if "tags" in spec:
        with pytest.raises(Exception, match=words):  # the CRD says so already
            story(reconcile, **spec)
        return

    async def tell(world: World):
        status, found, message = conditions(world)["ValidationSucceeded"]
        assert (status, found) == ("False", reason)
        assert words in message

    story(tell, **spec)


def test_a_class_without_a_service_range_is_not_launched_from():
    async def tell(world: World):
        network = api.KubernetesNetworkConfig()
        world.ec2.account.cluster = replace(world.ec2.account.cluster, kubernetes_network_config=network)
        await reconcile(world)
        assert conditions(world)["ValidationSucceeded"][1] == "ClusterCIDRResolutionFailed"

    story(tell, ready=False)


# --- images -----------------------------------------------------------------------------------------------------------------


def test_aliases_stand_for_the_published_parameters():
    """Source: AWS's documentation of the parameters for EKS, Bottlerocket and Windows images."""
    root = "/aws/service/eks/optimized-ami/1.32"
    assert dict(amis.parameters("al2@latest", "1.32"))[f"{root}/amazon-linux-2/recommended/image_id"] == "standard"
    named = [n for n, _ in amis.parameters("al2@v20250101", "1.32")]
    assert f"{root}/amazon-linux-2-arm64/amazon-eks-arm64-node-1.32-v20250101/image_id" in named
    assert [v for n, v in amis.parameters("al2@latest", "1.32") if "-gpu/" in n] == ["nvidia", "neuron"]
    ((windows, variant),) = amis.parameters("windows2022@latest", "1.36")
    assert windows == "/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.36/image_id"
    assert variant == "windows2022"


@pytest.mark.parametrize(
    ("alias", "version", "mend"),
    [
        ("al2@latest", "1.33", "use al2023@latest"),
        ("windows2025@latest", "1.34", "use windows2022@latest"),
        ("ubuntu@latest", "1.34", "al2023@latest"),
        ("al2023@latest", "", "select images by id, name or tags"),
    ],
)
def test_an_alias_that_cannot_be_served_names_one_that_can(alias, version, mend):
    with pytest.raises(amis.AliasUnsupported, match=mend):
        amis.parameters(alias, version)


def test_windows_machines_are_windows():
    async def tell(world: World):
        assert conditions(world)["Ready"][0] == "True"
        bought = await world.provider.create(await world.claim(**{TYPE: ["m5.xlarge"], labels.OS: ["windows"]}))
        assert bought.labels[labels.OS] == "windows"
        assert bought.labels[labels.WINDOWS_BUILD] == "10.0.20348"
        assert bought.capacity["pods"] == "110"
        assert bought.capacity[aws_labels.PRIVATE_IPV4] == "14"

    story(tell, amiSelectorTerms=[{"alias": "windows2022@latest"}])


def image(name: str, made: str, *, owner: str = OWNER, arch: str = "x86_64", **more) -> api.Image:
    return api.Image(
        image_id=name_id("ami", name, made),
        name=name,
        architecture=arch,
        creation_date=made,
        state="available",
        owner_id=owner,
        **more,
    )


def test_images_by_name_tag_id_and_parameter():
    async def tell(world: World):
        account = world.ec2.account
        old, new = image("mine-1", "2026-01-01T00:00:00.000Z"), image("mine-2", "2026-02-01T00:00:00.000Z")
        gone = image("mine-3", "2026-03-01T00:00:00.000Z", deprecation_time="2026-04-01T00:00:00.000Z")
        foreign = image("mine-9", "2026-09-01T00:00:00.000Z", owner="999988887777")
        tagged = image("other", "2025-01-01T00:00:00.000Z", arch="arm64", tags=(api.Tag(key="team", value="a"),))
        for one in (old, new, gone, foreign, tagged):
            account.add_image(one)
        account.parameters["/mine/ami"] = old.image_id

        async def resolved(*terms) -> list[str]:
            world.patch_class({"amiSelectorTerms": list(terms), "amiFamily": "AL2023"})
            await reconcile(world)
            return [a["id"] for a in world.node_class()["status"].get("amis", ())]

        assert await resolved({"name": "mine-*"}) == [new.image_id], "newest of one architecture that is not deprecated"
        assert await resolved({"name": "mine-*", "owner": "999988887777"}) == [foreign.image_id]
        assert await resolved({"name": "mine-*"}, {"tags": {"team": "a"}}) == [new.image_id, tagged.image_id]
        assert await resolved({"id": old.image_id}) == [old.image_id]
        assert await resolved({"ssmParameter": "/mine/ami"}) == [old.image_id]
        assert await resolved({"ssmParameter": "/no/such"}, {"id": gone.image_id}) == [gone.image_id], "better than none"
        assert await resolved({"ssmParameter": "/no/such"}) == []
        assert conditions(world)["AMIsReady"][:2] == ("False", "AMINotFound")

    assert AMAZON != OWNER
    story(tell)


# --- profiles, names, ends ----------------------------------------------------------------------------------------------------


def test_profiles_that_nobody_names_go_and_no_others():
    async def tell(world: World):
        first = world.node_class()["status"]["instanceProfile"]
        claim = await world.claim()
        bought = await world.provider.create(claim)
        body = {"metadata": {"annotations": dict(bought.annotations)}}
        await world.kube.patch(NodeClaim, claim.name, MergePatch(body))
        world.ec2.account.profiles["theirs"] = api.InstanceProfileInfo(instance_profile_name="theirs", path="/other/")
        world.patch_class({"role": "another"})
        await reconcile(world)
        second = world.node_class()["status"]["instanceProfile"]
        assert first != second
        await asyncio.sleep(2 * 3600)
        assert await world.provider.collect_profiles() == [], "a machine still runs with the first"
        await world.kube.delete(NodeClaim, claim.name)
        assert await world.provider.collect_profiles() == [first]
        assert set(world.ec2.account.profiles) == {second, "theirs"}

    story(tell)


def test_a_profile_is_not_taken_from_under_a_class_whose_status_is_not_written_yet():
    async def tell(world: World):
        path = profiles.path(world.ec2.region, "sandbox", "other-uid")
        await world.ec2.create_instance_profile(api.CreateInstanceProfile(instance_profile_name="young", path=path))
        assert await world.provider.collect_profiles() == []
        await asyncio.sleep(3601)
        assert await world.provider.collect_profiles() == ["young"]

    story(tell)


def test_a_machine_gets_its_names_once_its_node_is_known_and_keeps_what_it_has():
    from kubewright.cloud.aws.tagging import Tagging

    async def tell(world: World):
        provider = world.provider
        tagging = Tagging(world.ec2, world.kube, provider._machines, "sandbox", provider._unavailable)
        claim = await world.claim()
        bought = await provider.create(claim)
        body = {"status": {"providerID": bought.provider_id}}
        await world.kube.patch(NodeClaim, claim.name, MergePatch(body), subresource="status")
        assert await tagging.reconcile(claim.name) is None
        assert "CreateTags" not in world.ec2.calls, "no Node yet"
        body = {"status": {"nodeName": "ip-1"}}
        await world.kube.patch(NodeClaim, claim.name, MergePatch(body), subresource="status")
        await tagging.reconcile(claim.name)
        found = api.tags_of(world.ec2.running()[0].tags)
        assert (found["Name"], found["karpenter.sh/nodeclaim"]) == ("ip-1", claim.name)
        assert found["eks:eks-cluster-name"] == "sandbox"
        written = (await world.kube.get(NodeClaim, claim.name)).metadata.annotations
        assert written[aws_labels.TAGGED] == written[aws_labels.CLUSTER_NAME_TAGGED] == "true"
        await tagging.reconcile(claim.name)
        assert world.ec2.calls["CreateTags"] == 1

    story(tell)

    async def kept(world: World):
        provider = world.provider
        tagging = Tagging(world.ec2, world.kube, provider._machines, "sandbox", provider._unavailable)
        claim = await world.claim()
        bought = await provider.create(claim)
        body = {"status": {"providerID": bought.provider_id, "nodeName": "ip-1"}}
        await world.kube.patch(NodeClaim, claim.name, MergePatch(body), subresource="status")
        await tagging.reconcile(claim.name)
        assert api.tags_of(world.ec2.running()[0].tags)["Name"] == "mine"

    story(kept, tags={"Name": "mine"})


def test_claims_of_another_hash_version_are_rehashed_not_drifted():
    async def tell(world: World):
        claim = await world.claim()
        bought = await world.provider.create(claim)
        old = {aws_labels.EC2_NODE_CLASS_HASH: "1", aws_labels.EC2_NODE_CLASS_HASH_VERSION: "v4"}
        await world.kube.patch(NodeClaim, claim.name, MergePatch({"metadata": {"annotations": old}}))
        store = world.store
        store.patch("karpenter.k8s.aws/v1", "EC2NodeClass", "", "default", MergePatch({"metadata": {"annotations": old}}))
        await reconcile(world)
        found = (await world.kube.get(NodeClaim, claim.name)).metadata.annotations
        for key in old:
            assert found[key] == bought.annotations[key]

    story(tell)


# --- what works while others do not -------------------------------------------------------------------------------------------

DOWN = {
    "pricing": ("GetProducts", "DescribeSpotPriceHistory"),
    "SQS": ("GetQueueUrl", "ReceiveMessage", "DeleteMessage"),
    "SSM": ("GetParameter",),
    "zonal shift": ("GetManagedResource",),
    "EKS": ("DescribeCluster",),
    "IAM": ("GetInstanceProfile", "CreateInstanceProfile", "ListInstanceProfiles"),
}


@pytest.mark.parametrize("service", DOWN)
def test_a_class_that_was_ready_still_launches_while_a_service_is_down(service):
    """Pricing, SQS, SSM, ARC and IAM are asked ahead of launches, never by them."""

    async def tell(world: World):
        world.ec2.break_down(*DOWN[service])
        failing = pytest.raises(CloudError) if service == "IAM" else contextlib.nullcontext()
        with failing:
            await reconcile(world)
        assert conditions(world)["Ready"][0] == "True"
        await world.provider.rediscover()
        await world.provider.refresh_spot()
        bought = await world.provider.create(await world.claim())
        await world.provider.get(bought.provider_id)
        assert len(await world.provider.list()) == 1
        await world.provider.delete(bought.provider_id)

    story(tell)


def test_launches_go_on_while_machines_cannot_be_looked_at():
    async def tell(world: World):
        world.ec2.break_down("DescribeInstances")
        bought = await world.provider.create(await world.claim())
        for look in (world.provider.get(bought.provider_id), world.provider.list(), world.provider.delete(bought.provider_id)):
            with pytest.raises(CloudError):
                await look
        assert len(world.ec2.running()) == 1, "nothing is ended on a look that failed"

    story(tell)


def test_without_eks_endpoint_and_ca_of_the_flags_are_enough_for_a_class_that_names_its_images():
    async def tell(world: World):
        world.ec2.break_down("DescribeCluster", code="AccessDeniedException", status=403)
        with pytest.raises(CloudError, match="DescribeCluster"):
            await reconcile(world)
        world.provider = world.restarted(cluster_endpoint="https://e", cluster_ca_bundle="Q0E=")
        await reconcile(world)
        assert conditions(world)["AMIsReady"][1] == "UnsupportedAlias", "an alias needs the cluster's version"
        image_id = next(i for i, image in world.ec2.account.images.items() if "bottlerocket" in image.name)
        world.patch_class({"amiSelectorTerms": [{"id": image_id}], "amiFamily": "Bottlerocket"})
        await reconcile(world)
        assert conditions(world)["Ready"][0] == "True"
        await world.provider.create(await world.claim())

    story(tell, ready=False)


def test_a_new_class_waits_for_ssm_and_says_so():
    async def tell(world: World):
        world.ec2.break_down("GetParameter")
        with pytest.raises(CloudError, match="GetParameter"):
            await reconcile(world)
        assert conditions(world)["AMIsReady"][0] == "Unknown"
        with pytest.raises(NodeClassNotReady):
            await world.provider.create(await world.claim())
        world.ec2.mend()
        await reconcile(world)
        await world.provider.create(await world.claim("now"))

    story(tell, ready=False)


def test_prices_that_cannot_be_asked_are_the_last_ones_and_at_first_the_embedded_ones():
    async def tell(world: World):
        world.ec2.break_down(*DOWN["pricing"])
        await reconcile(world)
        types = {t.name: t for t in await world.provider.instance_types(await world.pool())}
        assert {o.price for o in types["m5.large"].offerings} == {0.096}
        world.ec2.mend()
        await world.provider.refresh_spot()
        fresh = {t.name: t for t in await world.provider.instance_types(await world.pool())}["m5.large"]
        assert min(o.price for o in fresh.offerings) < 0.096
        world.ec2.break_down(*DOWN["pricing"])
        await world.provider.refresh_spot()
        assert {t.name: t for t in await world.provider.instance_types(await world.pool())}["m5.large"] == fresh

    story(tell, ready=False)
