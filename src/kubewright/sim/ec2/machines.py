"""Fleets and machines: what is bought, its life, what it costs."""

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from msgspec.structs import replace

from kubewright.clock import Clock
from kubewright.cloud.aws import api, errors, tags
from kubewright.cloud.aws.errors import AwsError
from kubewright.sim.ec2.account import WOULD_HAVE_WORKED, Account, check_tags, matches
from kubewright.sim.ec2.faults import Faults, chance
from kubewright.sim.ec2.instances import Bill, Machine
from kubewright.sim.ec2.market import HOUR, Market
from kubewright.sim.ec2.queue import Queue
from kubewright.sim.ec2.refusals import Refusals, reservation_of

MOST_OVERRIDES = 300
DEFAULT_DISK_GIB = 20
_MARKETS = {"on-demand": "on-demand", "spot": "spot", "capacity-block": "on-demand", "reserved-capacity": "on-demand"}
"""Target capacity type → the market that it is billed at."""
SHOWN_AFTER_END = timedelta(hours=1)
"""How long DescribeInstances still shows a terminated machine."""


Listener = Callable[[Machine], None]


class Machines:
    def __init__(self, account: Account, market: Market, queue: Queue, clock: Clock, seed: int) -> None:
        self._account = account
        self._market = market
        self._queue = queue
        self._clock = clock
        self._seed = seed
        self._refusals = Refusals(account, market, clock)
        self.all: dict[str, Machine] = {}
        self.fleets: dict[str, tuple[api.CreateFleet, api.FleetAnswer]] = {}
        """By client token."""
        self.on_running: list[Listener] = []
        self.on_terminated: list[Listener] = []
        self._timers: set[asyncio.TimerHandle] = set()

    @property
    def _faults(self) -> Faults:
        return self._market.faults

    def close(self) -> None:
        for timer in self._timers:
            timer.cancel()

    def resume(self, machines: Mapping[str, Machine], fleets: Mapping[str, tuple[api.CreateFleet, api.FleetAnswer]]) -> None:
        """Go on with what another process has left; listeners hear of every machine, of ended ones that they ran and ended."""
        self.all.update(machines)
        self.fleets.update(fleets)
        for name, machine in machines.items():
            if machine.ended is None:
                self._market.held[machine.pool] = self._market.held.get(machine.pool, 0) + 1
                self._account.take_address(machine.seen.subnet_id)
            if machine.seen.state.name == "pending":
                self._later(self._faults.launch_s, self._run, name)
                continue
            for tell in self.on_running:
                tell(machine)
            if machine.ended is not None:
                for tell in self.on_terminated:
                    tell(machine)
            elif not machine.is_live:
                self._later(self._faults.terminate_s, self._ended, name)

    # --- fleets -----------------------------------------------------------------------------------------------------

    def create_fleet(self, request: api.CreateFleet) -> api.FleetAnswer:
        """An instant fleet; the same client token buys once. Raises AwsError for what EC2 refuses outright."""
        token = request.client_token
        if token in self.fleets:
            before, answer = self.fleets[token]
            if before != request:
                text = "The client token has been used before with different parameters."
                raise AwsError("CreateFleet", errors.TOKEN_REUSED, text)
            return answer
        check_tags("CreateFleet", request.tag_specifications)
        if sum(len(c.overrides) for c in request.launch_template_configs) > MOST_OVERRIDES:
            text = f"The maximum number of launch template overrides is {MOST_OVERRIDES}"
            raise AwsError("CreateFleet", "InvalidParameterValue", text)
        if request.type != "instant" or not request.launch_template_configs:
            raise AwsError("CreateFleet", "InvalidParameterValue", f"Type {request.type!r} or an empty config is not supported")
        for config in request.launch_template_configs:
            name = config.launch_template_specification.launch_template_name
            if name not in self._account.templates:
                text = f"The specified launch template, with template name {name}, does not exist."
                raise AwsError("CreateFleet", errors.TEMPLATE_GONE, text)
        if request.dry_run:
            raise AwsError("CreateFleet", *WOULD_HAVE_WORKED)
        answer = self._buy(request)
        if token:
            self.fleets[token] = (request, answer)
        return answer

    def _buy(self, request: api.CreateFleet) -> api.FleetAnswer:
        market = _MARKETS.get(request.target_capacity_specification.default_target_capacity_type, "")
        if not market:
            asked = request.target_capacity_specification.default_target_capacity_type
            raise AwsError("CreateFleet", "InvalidParameterValue", f"DefaultTargetCapacityType {asked!r} is not valid")
        number = len(self.fleets)
        fleet_id = f"fleet-{hashlib.sha256(f'{self._seed}/{number}/{request.client_token}'.encode()).hexdigest()[:32]}"
        bought: dict[tuple[str, str, str], tuple[api.Override, str, list[str]]] = {}
        failed: dict[tuple[str, str], api.FleetError] = {}
        for _ in range(request.target_capacity_specification.total_target_capacity):
            for config, override in self._in_order(request, market):
                used = self._account.templates[config.launch_template_specification.launch_template_name][0]
                if (override.instance_type, override.subnet_id) in failed:
                    continue
                problem = self._problem(config, override, market)
                if problem is None:
                    made = self._launch(config, override, market, request)
                    key = (override.instance_type, override.subnet_id, used.launch_template_id)
                    bought.setdefault(key, (override, used.launch_template_id, []))[2].append(made.instance_id)
                    break
                failed[override.instance_type, override.subnet_id] = api.FleetError(
                    error_code=problem[0],
                    error_message=problem[1],
                    lifecycle=market,
                    launch_template_and_overrides=_place(override, used.launch_template_id),
                )
        found = tuple(
            api.FleetInstance(
                instance_ids=tuple(ids),
                instance_type=override.instance_type,
                lifecycle=market,
                launch_template_and_overrides=_place(override, template),
            )
            for override, template, ids in bought.values()
        )
        return api.FleetAnswer(fleet_id=fleet_id, instances=found, errors=tuple(failed.values()))

    def run_instances(self, request: api.RunInstances) -> api.Done:
        """Only dry: says what a launch of one machine would meet. Always raises AwsError, as EC2 does."""
        name = request.launch_template.launch_template_name
        if not request.dry_run:
            raise AwsError("RunInstances", "UnsupportedOperation", "machines are launched by fleets here")
        if name not in self._account.templates:
            text = f"The specified launch template, with template name {name}, does not exist."
            raise AwsError("RunInstances", errors.TEMPLATE_GONE, text)
        override = api.Override(instance_type=request.instance_type, subnet_id=request.subnet_id, image_id=request.image_id)
        problem = self._refusals.of_template(self._account.templates[name][1], override)
        raise AwsError("RunInstances", *(problem or WOULD_HAVE_WORKED))

    def _in_order(self, request: api.CreateFleet, market: str) -> list[tuple[api.TemplateConfig, api.Override]]:
        """As the allocation strategy tries them: by priority where it says so, else by price, spot also by the pool's depth."""
        now = self._clock.now()
        options = request.spot_options if market == "spot" else request.on_demand_options
        by_priority = options is not None and options.allocation_strategy.endswith("prioritized")

        def rank(item: tuple[api.TemplateConfig, api.Override]) -> tuple[float, str, str]:
            o = item[1]
            pool = (o.instance_type, self._zone(o), market)
            price = self._market.price(pool, now)
            if price is None:
                return (float("inf"), o.instance_type, o.subnet_id)
            if by_priority and o.priority is not None:
                return (o.priority, o.instance_type, o.subnet_id)
            if market == "spot":
                price *= 1.1 - 0.1 * self._market.depth(pool)
            return (price, o.instance_type, o.subnet_id)

        everything = [(config, o) for config in request.launch_template_configs for o in config.overrides]
        return sorted(everything, key=rank)

    def _zone(self, override: api.Override) -> str:
        subnet = self._account.subnets.get(override.subnet_id)
        return subnet.availability_zone if subnet else override.availability_zone

    def _problem(self, config: api.TemplateConfig, override: api.Override, market: str) -> tuple[str, str] | None:
        """(code, message) of why this cannot be launched, as EC2 says it."""
        data = self._account.templates[config.launch_template_specification.launch_template_name][1]
        live = [m for m in self.all.values() if m.is_live]
        return self._refusals.of_launch(data, override, market, live)

    def _launch(
        self, config: api.TemplateConfig, override: api.Override, market: str, request: api.CreateFleet
    ) -> api.Ec2Instance:
        account, now = self._account, self._clock.now()
        data = account.templates[config.launch_template_specification.launch_template_name][1]
        subnet = account.subnets[override.subnet_id]
        image = account.images[override.image_id or data.image_id]
        number = len(self.all) + 1
        name = f"i-0{hashlib.sha256(f'{self._seed}/{number}'.encode()).hexdigest()[:16]}"
        address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        groups = {g for i in data.network_interfaces for g in i.groups}
        found = [t for s in request.tag_specifications if s.resource_type == "instance" for t in s.tags]
        seen = api.Ec2Instance(
            instance_id=name,
            instance_type=override.instance_type,
            image_id=image.image_id,
            state=api.InstanceState(name="pending"),
            launch_time=now,
            placement=self._placement(data, subnet, number),
            capacity_reservation_id=reservation_of(data),
            capacity_reservation_specification=data.capacity_reservation_specification,
            network_interfaces=tuple(
                api.InstanceInterface(network_interface_id=f"eni-{name[2:]}-{at}", interface_type=i.interface_type or "interface")
                for at, i in enumerate(data.network_interfaces)
            ),
            subnet_id=subnet.subnet_id,
            private_dns_name=f"ip-{address.replace('.', '-')}.{account.region}.compute.internal",
            private_ip_address=address,
            architecture=image.architecture,
            instance_lifecycle="spot" if market == "spot" else "",
            spot_instance_request_id=f"sir-{name[3:11]}" if market == "spot" else "",
            security_groups=tuple(api.GroupIdentifier(group_id=g) for g in sorted(groups)),
            tags=tuple(found),
        )
        pool = (override.instance_type, subnet.availability_zone, market)
        root = {"/dev/xvda": DEFAULT_DISK_GIB} if not data.block_device_mappings else {}
        disks = {d.device_name: d.ebs.volume_size for d in data.block_device_mappings if d.ebs and d.ebs.volume_size}
        self.all[name] = Machine(seen, pool, data.user_data, now, disks={**root, **disks})
        if seen.capacity_reservation_id:
            account.hold(seen.capacity_reservation_id)
        self._market.held[pool] = self._market.held.get(pool, 0) + 1
        account.take_address(subnet.subnet_id)
        wait_s = self._faults.launch_s + self._faults.launch_jitter_s * chance(self._seed, "launch", name)
        self._later(wait_s, self._run, name)
        return seen

    def _placement(self, data: api.LaunchTemplateData, subnet: api.Subnet, number: int) -> api.Placement:
        wanted = data.placement or api.TemplatePlacement()
        group = self._account.groups_of_placement.get(wanted.group_id)
        partition = wanted.partition_number
        if group is not None and group.partition_count and not partition:
            partition = number % group.partition_count + 1
        return api.Placement(
            availability_zone=subnet.availability_zone,
            availability_zone_id=subnet.availability_zone_id,
            tenancy=wanted.tenancy or "default",
            group_id=wanted.group_id,
            partition_number=partition,
        )

    # --- life -------------------------------------------------------------------------------------------------------

    def _later(self, delay_s: float, do: Callable[[str], None], name: str) -> None:
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle | None = None

        def fire() -> None:
            if timer is not None:
                self._timers.discard(timer)
            do(name)

        timer = loop.call_later(delay_s, fire)
        self._timers.add(timer)

    def _run(self, name: str) -> None:
        machine = self.all[name]
        if machine.seen.state.name != "pending":
            return
        self._enter(machine, "running")
        machine.running_since = self._clock.now()
        for tell in self.on_running:
            tell(machine)
        rate = self._faults.interruptions_per_hour
        if machine.pool[2] == "spot" and rate > 0:
            # An even spread over twice the mean, from the machine's own chance.
            self._later(2 * chance(self._seed, "life", name) * HOUR.total_seconds() / rate, self.interrupt, name)

    def interrupt(self, name: str) -> None:
        """The cloud wants the machine back: a notice now, the end two minutes later. Nothing happens to one that is going."""
        machine = self.all[name]
        if not machine.is_live or machine.noticed:
            return
        machine.noticed = True
        detail = {"instance-id": name, "instance-action": "terminate"}
        self._queue.publish("EC2 Spot Instance Interruption Warning", detail)
        self._later(self._faults.notice_s, self.end, name)

    def end(self, name: str) -> None:
        """Shutting-down now, terminated later. Nothing happens to one that is going."""
        machine = self.all[name]
        if not machine.is_live:
            return
        machine.billed_until = self._clock.now()
        self._enter(machine, "shutting-down")
        self._later(self._faults.terminate_s, self._ended, name)

    def _ended(self, name: str) -> None:
        machine = self.all[name]
        machine.ended = self._clock.now()
        self._enter(machine, "terminated")
        self._market.held[machine.pool] -= 1
        self._account.take_address(machine.seen.subnet_id, -1)
        if machine.seen.capacity_reservation_id in self._account.reservations:
            self._account.hold(machine.seen.capacity_reservation_id, -1)
        for tell in self.on_terminated:
            tell(machine)

    def _enter(self, machine: Machine, state: str) -> None:
        machine.seen = replace(machine.seen, state=api.InstanceState(name=state))
        if state != "running":
            detail = {"instance-id": machine.seen.instance_id, "state": state}
            self._queue.publish("EC2 Instance State-change Notification", detail)

    # --- calls ------------------------------------------------------------------------------------------------------

    def describe(self, request: api.DescribeInstances) -> api.InstancesPage:
        if request.instance_ids and request.max_results:
            text = "The parameter instancesSet cannot be used with the parameter maxResults"
            raise AwsError("DescribeInstances", "InvalidParameterCombination", text)
        shown = [m for m in self.all.values() if self._is_shown(m)]
        missing = sorted(set(request.instance_ids) - {m.seen.instance_id for m in shown})
        if missing:
            raise AwsError("DescribeInstances", "InvalidInstanceID.NotFound", _do_not_exist(missing))
        found = [m.seen for m in shown if not request.instance_ids or m.seen.instance_id in request.instance_ids]
        found = [
            i
            for i in found
            if matches(
                request.filters,
                {"instance-state-name": i.state.name, "instance-id": i.instance_id, "instance-type": i.instance_type},
                api.tags_of(i.tags),
                "DescribeInstances",
            )
        ]
        size = request.max_results or len(found) or 1
        start = int(request.next_token or 0)
        page = found[start : start + size]
        more = str(start + size) if start + size < len(found) else ""
        return api.InstancesPage(reservations=tuple(api.Reservation(instances=(i,)) for i in page), next_token=more)

    def _is_shown(self, machine: Machine) -> bool:
        now = self._clock.now()
        if machine.ended is not None and machine.ended + SHOWN_AFTER_END < now:
            return False
        return machine.asked + timedelta(seconds=self._faults.describe_lag_s) <= now

    def terminate(self, request: api.TerminateInstances) -> api.TerminateAnswer:
        missing = sorted(set(request.instance_ids) - set(self.all))
        if request.dry_run and not missing:
            raise AwsError("TerminateInstances", *WOULD_HAVE_WORKED)
        if missing:
            raise AwsError("TerminateInstances", "InvalidInstanceID.NotFound", _do_not_exist(missing))
        changes = []
        for name in request.instance_ids:
            before = self.all[name].seen.state
            self.end(name)
            changes.append(api.StateChange(instance_id=name, previous_state=before, current_state=self.all[name].seen.state))
        return api.TerminateAnswer(terminating_instances=tuple(changes))

    def create_tags(self, request: api.CreateTags) -> api.Done:
        missing = sorted(r for r in request.resources if r not in self.all)
        if request.dry_run and not missing:
            raise AwsError("CreateTags", *WOULD_HAVE_WORKED)
        if missing:
            raise AwsError("CreateTags", "InvalidInstanceID.NotFound", _do_not_exist(missing))
        for name in request.resources:
            machine = self.all[name]
            merged = {**api.tags_of(machine.seen.tags), **api.tags_of(request.tags)}
            machine.seen = replace(machine.seen, tags=tags.as_tags(merged))
        return api.Done()

    def describe_status(self, request: api.DescribeInstanceStatus) -> api.InstanceStatusesPage:
        """Running machines only, as EC2 does without being asked for all."""
        known = {"instance-status.status", "system-status.status", "event.code"}
        for f in request.filters:
            if f.name not in known:
                raise AwsError("DescribeInstanceStatus", "InvalidParameterValue", f"The filter '{f.name}' is invalid")
        found = []
        for name, machine in self.all.items():
            if machine.seen.state.name != "running":
                continue
            states = {what: "impaired" if what in machine.impaired else "ok" for what in ("instance", "system")}
            has = {"instance-status.status": [states["instance"]], "system-status.status": [states["system"]]}
            has["event.code"] = machine.events
            if all(set(has[f.name]) & set(f.values) for f in request.filters):
                found.append(
                    api.InstanceStatus(
                        instance_id=name,
                        instance_status=_summary(states["instance"], machine.impaired.get("instance")),
                        system_status=_summary(states["system"], machine.impaired.get("system")),
                        events=tuple(api.StatusEvent(code=code, description="planned") for code in machine.events),
                    )
                )
        return api.InstanceStatusesPage(instance_statuses=tuple(found))

    # --- accounts ---------------------------------------------------------------------------------------------------

    def bills(self) -> tuple[Bill, ...]:
        """Every machine that ever ran, in the order they were bought."""
        now = self._clock.now()
        found = []
        for m in self.all.values():
            if m.running_since is None:
                continue
            until = m.billed_until or now
            named = api.tags_of(m.seen.tags)
            found.append(
                Bill(
                    instance_id=m.seen.instance_id,
                    instance_type=m.pool[0],
                    zone=m.pool[1],
                    capacity_type=m.pool[2],
                    node_pool=named.get(tags.NODE_POOL, ""),
                    node_claim=named.get(tags.NODE_CLAIM, ""),
                    start=m.running_since,
                    end=m.billed_until,
                    hours=(until - m.running_since) / HOUR,
                    usd=self._market.cost(m.pool, m.running_since, until),
                    usd_per_hour=self._market.price(m.pool, until) or 0.0,
                )
            )
        return tuple(found)


def _place(override: api.Override, template_id: str) -> api.FleetTemplateAndOverrides:
    """As EC2 names it: the template by its id only."""
    return api.FleetTemplateAndOverrides(
        launch_template_specification=api.UsedTemplate(launch_template_id=template_id), overrides=override
    )


def _summary(status: str, since: datetime | None) -> api.StatusSummary:
    if since is None:
        return api.StatusSummary(status=status, details=(api.StatusDetail(name="reachability", status="passed"),))
    detail = api.StatusDetail(name="reachability", status="failed", impaired_since=since)
    return api.StatusSummary(status=status, details=(detail,))


def _do_not_exist(names: list[str]) -> str:
    if len(names) == 1:
        return f"The instance ID '{names[0]}' does not exist"
    return f"The instance IDs '{', '.join(names)}' do not exist"
