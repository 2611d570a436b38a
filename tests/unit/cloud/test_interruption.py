import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.api.karpenter import NodeClaim
from kubewright.cloud.aws.interruption import Interruptions, Kind, Notice, parse
from kubewright.errors import NotFound, ServerUnavailable
from kubewright.kube.client import MergePatch
from kubewright.metrics import Registry
from tests.unit.cloud.world import World, story


def message(detail_type, detail, source="aws.ec2", version="0") -> str:
    return json.dumps({"version": version, "source": source, "detail-type": detail_type, "detail": detail})


HEALTH = {
    "service": "EC2",
    "eventTypeCategory": "scheduledChange",
    "affectedEntities": [{"entityValue": "i-1"}, {"entityValue": "i-2"}],
}


@pytest.mark.parametrize(
    ("body", "notice"),
    [
        (message("EC2 Spot Instance Interruption Warning", {"instance-id": "i-1"}), Notice(Kind.SPOT, ("i-1",))),
        (message("EC2 Instance Rebalance Recommendation", {"instance-id": "i-1"}), Notice(Kind.REBALANCE, ("i-1",))),
        (
            message("EC2 Instance State-change Notification", {"instance-id": "i-1", "state": "Stopping"}),
            Notice(Kind.STOPPED, ("i-1",)),
        ),
        (
            message("EC2 Instance State-change Notification", {"instance-id": "i-1", "state": "terminated"}),
            Notice(Kind.TERMINATED, ("i-1",)),
        ),
        (message("EC2 Instance State-change Notification", {"instance-id": "i-1", "state": "running"}), Notice(Kind.NONE)),
        (
            message("EC2 Capacity Reservation Instance Interruption Warning", {"instance-id": "i-1"}),
            Notice(Kind.RESERVATION, ("i-1",)),
        ),
        (message("AWS Health Event", HEALTH, "aws.health"), Notice(Kind.SCHEDULED, ("i-1", "i-2"))),
        (message("AWS Health Event", {**HEALTH, "service": "RDS"}, "aws.health"), Notice(Kind.NONE)),
        (message("EC2 Spot Instance Interruption Warning", {"instance-id": "i-1"}, version="1"), Notice(Kind.NONE)),
        (message("Something New", {"instance-id": "i-1"}), Notice(Kind.NONE)),
        ("", Notice(Kind.NONE)),
    ],
)
def test_messages_mean(body, notice):
    assert parse(body) == notice


@given(
    st.text(max_size=60) | st.recursive(st.none() | st.integers() | st.text(max_size=5), st.lists, max_leaves=5).map(json.dumps)
)
def test_poison_is_a_value_error_and_nothing_else(body):
    with contextlib.suppress(ValueError):
        assert parse(body).kind is Kind.NONE


def interruptions(world: World, *, rebalance: bool = False) -> Interruptions:
    provider = world.provider
    return Interruptions(
        world.ec2,
        world.kube,
        world.clock,
        "sandbox",
        provider._unavailable,
        provider._reservations,
        provider._recorder,
        provider._measures,
        rebalance=rebalance,
    )


async def launched(world: World, market: str = "spot") -> NodeClaim:
    claim = await world.claim(**{"karpenter.sh/capacity-type": [market]})
    bought = await world.provider.create(claim)
    await world.kube.patch(NodeClaim, claim.name, MergePatch({"metadata": {"labels": dict(bought.labels)}}))
    return await world.kube.patch(
        NodeClaim, claim.name, MergePatch({"status": {"providerID": bought.provider_id}}), subresource="status"
    )


def test_a_notice_deletes_the_claim_and_marks_the_offering():
    async def tell(world: World):
        claim = await launched(world)
        world.ec2.queue.put("poison")
        world.ec2.interrupt(claim.status.provider_id.rpartition("/")[2])
        loop = interruptions(world)
        await loop.poll(world.ec2.queue.url)
        with pytest.raises(NotFound):
            await world.kube.get(NodeClaim, claim.name)
        types = await world.provider.instance_types(await world.pool())
        name, zone = (
            claim.metadata.labels["node.kubernetes.io/instance-type"],
            claim.metadata.labels["topology.kubernetes.io/zone"],
        )
        offering = next(o for t in types if t.name == name for o in t.offerings if o.zone == zone and o.capacity_type == "spot")
        assert not offering.available
        assert "interrupted" in offering.unavailable_because
        assert len(world.ec2.queue) == 0, "poison and handled messages are both deleted"
        assert loop.received == {Kind.NONE: 1, Kind.SPOT: 1}

    story(tell)


def test_a_rebalance_recommendation_deletes_nothing():
    async def tell(world: World):
        claim = await launched(world)
        world.ec2.queue.publish(
            "EC2 Instance Rebalance Recommendation", {"instance-id": claim.status.provider_id.rpartition("/")[2]}
        )
        await interruptions(world).poll(world.ec2.queue.url)
        assert (await world.kube.get(NodeClaim, claim.name)).metadata.deletion_timestamp is None

    story(tell)


def test_a_rebalance_recommendation_replaces_only_where_that_was_asked_for():
    async def tell(world: World):
        claim = await launched(world)
        instance = claim.status.provider_id.rpartition("/")[2]
        world.ec2.queue.publish("EC2 Instance Rebalance Recommendation", {"instance-id": instance})
        await interruptions(world, rebalance=True).poll(world.ec2.queue.url)
        with pytest.raises(NotFound):
            await world.kube.get(NodeClaim, claim.name)

    story(tell)


def test_a_reservation_that_is_taken_back_counts_as_used_up():
    async def tell(world: World):
        name = world.ec2.account.reserve("m5.xlarge", "us-west-2b", 3, tags={"team": "ml"})
        await world.provider.reconcile_node_class("default")
        claim = await launched(world, "reserved")
        assert claim.metadata.labels["karpenter.k8s.aws/capacity-reservation-id"] == name
        assert world.provider._reservations.left(name) == 2
        instance = claim.status.provider_id.rpartition("/")[2]
        world.ec2.queue.publish("EC2 Capacity Reservation Instance Interruption Warning", {"instance-id": instance})
        await interruptions(world).poll(world.ec2.queue.url)
        assert world.provider._reservations.left(name) == 0

    story(tell, capacityReservationSelectorTerms=[{"tags": {"team": "ml"}}])


def test_poison_is_deleted_and_counted_and_what_cannot_be_handled_now_comes_again():
    async def tell(world: World):
        registry = Registry()
        world.provider.measure(registry)
        claim = await launched(world)
        for text in ("", "poison", "[1]", "{}", json.dumps({"version": "0", "source": "aws.ec2", "detail": 7})):
            world.ec2.queue.put(text)
        world.ec2.interrupt(claim.status.provider_id.rpartition("/")[2])
        real, failing = world.kube.delete, [True]

        async def delete(*args, **options):
            if failing:
                raise ServerUnavailable(503, "ServiceUnavailable", "not now")
            return await real(*args, **options)

        world.kube.delete = delete
        loop = interruptions(world)
        await loop.poll(world.ec2.queue.url)
        assert len(world.ec2.queue) == 1, "only the notice that was not acted on is left"
        failing.clear()
        await loop.poll(world.ec2.queue.url)
        assert len(world.ec2.queue) == 0
        with pytest.raises(NotFound):
            await world.kube.get(NodeClaim, claim.name)
        value = registry.value
        assert value("karpenter_interruption_received_messages_total", message_type="no_op") == 5
        assert value("karpenter_interruption_received_messages_total", message_type="spot_interrupted") == 2
        assert value("karpenter_interruption_deleted_messages_total") == 6
        assert value("karpenter_interruption_message_queue_duration_seconds") == 2
        facts = {"nodepool": "general", "capacity_type": "spot", "consolidation_policy": "", "termination_mode": "graceful"}
        assert value("karpenter_nodeclaims_disrupted_total", reason="spot_interrupted", **facts) == 1

    story(tell)
