"""Buying: one instant fleet for all NodeClaims that ask for the same, safe to repeat. Source: spec/aws 7.3 to 7.5.

Nothing is bought twice, and nothing bought is lost:

- a fleet whose answer did not come is asked for again with the same client token, so EC2 answers with the same machines;
- a fleet's machines carry the names of the NodeClaims it was for, so that another process finds them (`ownership`).
"""

import hashlib
from collections.abc import Sequence
from datetime import timedelta

import msgspec
import structlog
from msgspec.structs import replace

from kubewright.api import labels
from kubewright.api.aws import EC2NodeClass
from kubewright.api.karpenter import NodeClaim
from kubewright.clock import Clock
from kubewright.cloud.aws import api, errors, retry, tags, templates
from kubewright.cloud.aws.addresses import Addresses
from kubewright.cloud.aws.batching import Batcher
from kubewright.cloud.aws.cluster import Cluster
from kubewright.cloud.aws.launch import Choice
from kubewright.cloud.aws.measures import Measures
from kubewright.cloud.aws.orders import Order, Orders, place
from kubewright.cloud.aws.reservations import ReservationCounts
from kubewright.cloud.aws.settings import AwsSettings
from kubewright.cloud.aws.unavailable import UnavailableOfferings
from kubewright.errors import CloudError, LaunchFailed, Throttled

MOST_CLAIMS = 200
"""That one fleet is asked for; so many names fit into a machine's tags."""
IDLE = timedelta(milliseconds=35)
NO_REASON = "EC2 gave neither a machine nor a reason"
_SPREAD_FULL = "limit of instances in this spread placement group"


class Bought(msgspec.Struct, frozen=True):
    instance: api.Ec2Instance
    reservation_id: str = ""


class _Sent:
    """A fleet that was asked for, and whose answer is not known."""

    def __init__(self, request: api.CreateFleet, orders: Sequence[Order]) -> None:
        self.request = request
        self.orders = tuple(orders)


class TemplateGone(CloudError):
    """Somebody deleted a launch template; make it again and ask again."""


class Fleet:
    """Batches, sends, repeats, deals machines out, and marks what was out of capacity."""

    def __init__(
        self,
        ec2: api.Ec2Api,
        clock: Clock,
        cluster: str,
        made: templates.LaunchTemplates,
        unavailable: UnavailableOfferings,
        addresses: Addresses,
        reservations: ReservationCounts,
        measures: Measures,
    ) -> None:
        self._ec2 = ec2
        self._clock = clock
        self._cluster = cluster
        self._templates = made
        self._unavailable = unavailable
        self._addresses = addresses
        self._reservations = reservations
        self._measures = measures
        self._orders = Orders(clock, cluster, made, unavailable, addresses, measures)
        self._unsure: dict[str, _Sent] = {}
        """By NodeClaim UID."""
        self._unclaimed: dict[str, Bought] = {}
        """Dealt out to NodeClaims that were not waiting just then."""
        self._serial = 0
        self._began = ""
        self._batches: Batcher[Order, Bought] = Batcher(
            "create_fleet",
            self._buy_together,
            key=lambda order: msgspec.json.encode((order.node_class, order.request)),
            idle=IDLE,
            most=MOST_CLAIMS,
            measures=measures,
        )
        self._repeats: Batcher[Order, Bought] = Batcher(
            "create_fleet",
            self._repeat_together,
            key=lambda order: id(self._unsure[order.uid]),
            idle=IDLE,
            most=MOST_CLAIMS,
            measures=measures,
        )
        self._log = structlog.get_logger("kubewright.fleet")

    async def buy(
        self,
        claim: NodeClaim,
        node_class: EC2NodeClass,
        choice: Choice,
        cluster: Cluster,
        aws: AwsSettings,
        group: api.PlacementGroup | None = None,
    ) -> Bought:
        """The machine, still pending.

        Raises:
            InsufficientCapacity: every offering was out; they are marked.
            LaunchFailed, UserDataError: see there.
            Throttled: AWS did not let the call through, or did not answer it; ask again.
        """
        uid = claim.metadata.uid
        if uid in self._unclaimed:
            return self._unclaimed.pop(uid)
        unsure = self._unsure.get(uid)
        if unsure is not None:
            return await self._repeats.add(next(o for o in unsure.orders if o.uid == uid))
        for attempt in (1, 2):
            order, promised = await self._orders.make(claim, node_class, choice, cluster, aws, group)
            used = ""
            try:
                bought = await self._batches.add(order)
                used = bought.instance.subnet_id
            except TemplateGone as error:
                self._templates.forget()
                if attempt == 2:
                    raise LaunchFailed("LaunchTemplateNotFound", error.message) from error
            else:
                return bought
            finally:
                self._addresses.take_back(promised, used)
        raise AssertionError("unreachable")

    # --- sending --------------------------------------------------------------------------------------------------------

    async def _buy_together(self, orders: Sequence[Order]) -> list[Bought | Exception]:
        base = orders[0].request
        others = max((len(s.tags) for s in base.tag_specifications), default=0)
        size = min(len(orders), tags.room_for_launches(others))
        if not size:
            text = f"spec.tags: {others} tags with ours leave no room for one more of the {tags.MOST} that EC2 takes"
            return [LaunchFailed("LaunchFailed", text)] * len(orders)
        found: list[Bought | Exception] = []
        for start in range(0, len(orders), size):
            part = orders[start : start + size]
            self._serial += 1
            self._began = self._began or self._clock.now().isoformat()
            token = " ".join((self._cluster, self._began, str(self._serial), *(o.uid for o in part)))
            launch = tags.of_launch([o.uid for o in part])
            request = replace(
                base,
                target_capacity_specification=replace(base.target_capacity_specification, total_target_capacity=len(part)),
                tag_specifications=tuple(
                    replace(s, tags=tags.as_tags({**api.tags_of(s.tags), **launch})) for s in base.tag_specifications
                ),
                client_token=hashlib.sha256(token.encode()).hexdigest(),
            )
            found += await self._send(_Sent(request, part))
        return found

    async def _repeat_together(self, orders: Sequence[Order]) -> list[Bought | Exception]:
        sent = self._unsure.get(orders[0].uid)
        if sent is None:
            return [Throttled("the answer to an earlier launch was just dealt out; asking again")] * len(orders)
        answers = dict(zip((o.uid for o in sent.orders), await self._send(sent), strict=True))
        for order in sent.orders:
            bought = answers[order.uid]
            if order.uid not in {o.uid for o in orders} and isinstance(bought, Bought):
                self._unclaimed[order.uid] = bought
        return [answers[o.uid] for o in orders]

    async def _send(self, sent: _Sent) -> list[Bought | Exception]:
        """One answer or error for each of `sent.orders`."""
        orders = sent.orders
        for o in orders:
            self._unsure[o.uid] = sent  # until proved otherwise: a process that is cancelled here has perhaps bought
        try:
            answer = await retry.call(self._ec2.create_fleet, sent.request)
        except errors.AwsError as error:
            if errors.is_unsure(error):
                return [Throttled(f"EC2 did not answer the launch: {error}")] * len(orders)
            self._sure(orders)
            if error.code == errors.TEMPLATE_GONE:
                return [TemplateGone(str(error))] * len(orders)
            return [errors.of_launch(error)] * len(orders)
        self._sure(orders)
        self._learn(answer, orders[0])
        machines = [(i, bought) for bought in answer.instances for i in bought.instance_ids]
        found: list[Bought | Exception] = [
            self._dealt(instance_id, bought, order) for order, (instance_id, bought) in zip(orders, machines, strict=False)
        ]
        if len(found) < len(orders):
            failed = errors.of_fleet([(e.error_code, e.error_message) for e in answer.errors])
            found += [failed] * (len(orders) - len(found))
        return found

    def _sure(self, orders: Sequence[Order]) -> None:
        for o in orders:
            self._unsure.pop(o.uid, None)

    def _dealt(self, instance_id: str, bought: api.FleetInstance, order: Order) -> Bought:
        """The machine from the answer alone: our own overrides are echoed, so EC2 need not be asked again."""
        chosen = bought.launch_template_and_overrides.overrides or api.Override(instance_type=bought.instance_type, subnet_id="")
        reservation = order.reservations.get(place(chosen.instance_type, chosen.availability_zone), "")
        if reservation:
            self._reservations.launched(reservation, self._clock.now())
        found = next((s.tags for s in order.request.tag_specifications if s.resource_type == "instance"), ())
        instance = api.Ec2Instance(
            instance_id=instance_id,
            instance_type=bought.instance_type or chosen.instance_type,
            image_id=chosen.image_id,
            state=api.InstanceState(name="pending"),
            launch_time=self._clock.now(),
            placement=api.Placement(
                availability_zone=chosen.availability_zone,
                tenancy=order.tenancy,
                group_id=order.group_id,
                partition_number=order.partition,
            ),
            subnet_id=chosen.subnet_id,
            instance_lifecycle="spot" if order.capacity_type == labels.SPOT else "",
            capacity_reservation_id=reservation,
            capacity_reservation_specification=api.ReservationSpecification(
                capacity_reservation_preference="capacity-reservations-only"
            )
            if reservation
            else None,
            tags=found,
        )
        return Bought(instance, reservation)

    def _learn(self, answer: api.FleetAnswer, order: Order) -> None:
        """Marks for every offering that was out. Source: spec/aws 6.5."""
        now = self._clock.now()
        for e in answer.errors:
            tried = e.launch_template_and_overrides.overrides
            kind, zone = (tried.instance_type, tried.availability_zone) if tried else ("", "")
            self._log.info("fleet error", code=e.error_code, instance_type=kind, zone=zone, capacity_type=order.capacity_type)
            self._measures.count(
                "karpenter_cloudprovider_instance_launch_failures_total",
                zone=zone,
                zone_id=self._unavailable.zone_id(zone),
                capacity_type=order.capacity_type,
                reason=e.error_code,
            )
            if e.error_code == errors.NO_SPOT_ROLE:
                self._unavailable.mark_spot(e.error_code, now)
            elif tried is None or e.error_code not in errors.UNFULFILLABLE:
                continue
            elif e.error_code == errors.SUBNET_FULL:
                self._unavailable.mark_subnet(tried.subnet_id, now)
                self._addresses.empty(tried.subnet_id)
            elif order.reservations:
                reservation = order.reservations.get(place(kind, zone))
                if reservation is not None:
                    self._reservations.used_up(reservation, now)
            elif _SPREAD_FULL in e.error_message:
                for each in order.types:
                    self._unavailable.mark(order.capacity_type, each, zone, e.error_message, now, order.group_id)
            else:
                self._unavailable.mark(order.capacity_type, kind, zone, e.error_code, now, order.group_id)
        if not answer.errors and not any(i.instance_ids for i in answer.instances):
            for config in order.request.launch_template_configs:
                for o in config.overrides:
                    self._unavailable.mark(
                        order.capacity_type, o.instance_type, o.availability_zone, NO_REASON, now, order.group_id
                    )
            for reservation in sorted(set(order.reservations.values())):
                self._reservations.used_up(reservation, now)
