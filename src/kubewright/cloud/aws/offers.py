"""What the region sells and for how much, kept fresh; the last answer holds while AWS gives none. Source: spec/aws 5.1, 6.3."""

import asyncio
from datetime import datetime, timedelta
from fractions import Fraction

import structlog
from msgspec.structs import replace

from kubewright.clock import Clock
from kubewright.cloud.aws import api, catalogue, errors, prices
from kubewright.cloud.aws.capacity import Sizing
from kubewright.cloud.aws.instancetypes import Market
from kubewright.cloud.aws.settings import AwsSettings
from kubewright.settings import Settings

DISCOVER_EVERY = timedelta(hours=12)
"""Source: spec/aws 5.1."""


class Offers:
    """Types and zones are asked when first needed and twice a day, spot prices every few minutes."""

    def __init__(self, ec2: api.Ec2Api, clock: Clock, settings: Settings, aws: AwsSettings, known: catalogue.Catalogue) -> None:
        self._ec2 = ec2
        self._clock = clock
        self._settings = settings
        self._aws = aws
        self._known = known
        self._prices = prices.Prices(known.prices(aws.region))
        self._market: Market | None = None
        self._spot_asked: datetime | None = None
        self._hydrating = asyncio.Lock()
        self._spot_asking = asyncio.Lock()
        self._log = structlog.get_logger("kubewright.aws")

    async def run(self) -> None:
        """Until cancelled."""
        fresh = self._clock.now()
        while True:
            await asyncio.sleep(prices.SPOT_REFRESH_EVERY.total_seconds())
            await self.refresh_spot()
            if self._clock.now() - fresh >= DISCOVER_EVERY:
                fresh = self._clock.now()
                await self.rediscover()

    async def market(self) -> Market:
        """What the region sells; asked once, later by `rediscover`.

        Raises:
            Throttled, AwsError: it was never answered.
        """
        async with self._hydrating:
            if self._market is None:
                try:
                    self._market = await self._discover()
                except errors.AwsError as error:
                    raise errors.of_call(error) from error
            return self._market

    async def prices(self) -> prices.Prices:
        """The prices that hold now; the same object while none changed."""
        async with self._spot_asking:
            if self._spot_asked is None:
                await self.refresh_spot()
        return self._prices

    async def refresh_spot(self) -> None:
        """Ask for spot prices; an answer that changes nothing keeps the lists as they are, a failure keeps the last prices."""
        self._spot_asked = self._clock.now()
        try:
            found = await prices.spot_prices(self._ec2, self._spot_asked)
        except errors.AwsError as error:
            self._log.warning("cannot refresh spot prices, the last ones stay", error=str(error))
            return
        merged = {**(self._prices.spot or {}), **found}
        if merged and merged != self._prices.spot:
            self._prices = replace(self._prices, spot=merged)

    async def rediscover(self) -> None:
        """Ask again what the region sells and at which list prices; a failed look keeps the last answers."""
        try:
            found = await self._discover()
            if found != self._market:
                self._market = found
            if not self._aws.isolated_vpc:
                listed = await catalogue.on_demand_prices(self._ec2, self._aws.region)
                merged = {**self._prices.on_demand, **listed}
                if merged != self._prices.on_demand:
                    self._prices = replace(self._prices, on_demand=merged)
        except errors.AwsError as error:
            self._log.warning("cannot refresh types and list prices, the last ones stay", error=str(error))

    async def _discover(self) -> Market:
        types = await catalogue.describe_types(self._ec2)
        offered = await catalogue.describe_offerings(self._ec2, {})
        overhead = Fraction(str(self._settings.vm_memory_overhead_percent))
        sizing = Sizing(overhead, self._aws.reserved_enis, self._known.branch_interfaces)
        return Market(self._aws.region, types, offered, sizing, self._known.network_mbps)
