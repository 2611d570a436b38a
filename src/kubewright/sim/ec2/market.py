"""Pools and prices: what is there to buy, and for how much. Spot prices are synthetic. Source: spec/aws C.3."""

from datetime import UTC, datetime, timedelta

from kubewright.cloud.aws.catalogue import Catalogue
from kubewright.sim.ec2.faults import Faults, chance

Pool = tuple[str, str, str]
"""(instance type, zone, capacity type)."""

HOUR = timedelta(hours=1)
_START = datetime(2020, 1, 1, tzinfo=UTC)
_SWING = 0.25
"""How far a price strays from its middle."""
_SHARES = {"c": (0.36, 0.45), "m": (0.36, 0.45), "r": (0.36, 0.45), "t": (0.36, 0.45), "g": (0.4, 0.9), "p": (0.4, 0.9)}


class Market:
    """One region's. `held` counts the machines in each pool; whoever launches or ends one keeps it."""

    def __init__(self, catalogue: Catalogue, region: str, seed: int, faults: Faults) -> None:
        self.offered = catalogue.region(region)
        self.on_demand = catalogue.prices(region)
        self.vcpus = {t.instance_type: t.vcpus for t in catalogue.types}
        self.architectures = {t.instance_type: t.processor_info.supported_architectures for t in catalogue.types}
        self._seed = seed
        self.faults = faults
        self.held: dict[Pool, int] = {}
        self._exhausted: set[Pool] = set()
        self._spot: tuple[int, dict[tuple[str, str], float]] = (-1, {})

    def exhaust(self, instance_type: str = "*", zone: str = "*", capacity_type: str = "*") -> None:
        """Pools run out of capacity until `restock`; `*` is every one."""
        self._exhausted.add((instance_type, zone, capacity_type))

    def restock(self) -> None:
        self._exhausted.clear()

    def has_capacity(self, pool: Pool) -> bool:
        kind, zone, market = pool
        if any((a, b, c) in self._exhausted for a in (kind, "*") for b in (zone, "*") for c in (market, "*")):
            return False
        if self.faults.pool_size and self.held.get(pool, 0) >= self.faults.pool_size:
            return False
        return not self.faults.dry_share or chance(self._seed, "dry", pool) >= self.faults.dry_share

    def depth(self, pool: Pool) -> float:
        """How safe a spot pool is from interruption, 0 to 1; what price-capacity-optimized looks at besides the price."""
        return chance(self._seed, "depth", pool)

    def price(self, pool: Pool, at: datetime) -> float | None:
        """USD per hour; None for a type that nobody has a price for."""
        kind, zone, market = pool
        return self.spot(at).get((kind, zone)) if market == "spot" else self.on_demand.get(kind)

    def spot(self, at: datetime) -> dict[tuple[str, str], float]:
        """All spot prices of that hour."""
        hour = int((at - _START) / HOUR) if self.faults.spot_prices_move else 0
        if self._spot[0] != hour:
            self._spot = (hour, self._spot_of(hour))
        return self._spot[1]

    def _spot_of(self, hour: int) -> dict[tuple[str, str], float]:
        return {
            (kind, zone): self._spot_price(kind, zone, hour)
            for kind in self.offered.sold
            if kind in self.on_demand
            for zone in self.offered.zones_of(kind)
        }

    def _spot_price(self, kind: str, zone: str, hour: int) -> float:
        """Formula: list price * middle of the pool * (1 + swing * mean of three hours' chance), within 10 % and 100 %."""
        listed, family = self.on_demand[kind], kind.partition(".")[0]
        low, high = (1.0, 1.0) if family == "a1" else _SHARES.get(family[0], (0.3, 0.6))
        middle = low + (high - low) * chance(self._seed, "spot", kind, zone)
        stray = 0.0
        if self.faults.spot_prices_move:
            stray = sum(chance(self._seed, "hour", kind, zone, hour - back) - 0.5 for back in range(3)) / 1.5
        return min(listed, round(max(listed * 0.1, listed * middle * (1 + _SWING * stray)), 4))

    def cost(self, pool: Pool, start: datetime, end: datetime) -> float:
        """USD for a machine from `start` to `end`; spot at each hour's own price."""
        if pool[2] != "spot" or not self.faults.spot_prices_move:
            return (self.price(pool, start) or 0.0) * ((end - start) / HOUR)
        total, at = 0.0, start
        while at < end:
            hour = int((at - _START) / HOUR)
            until = min(end, _START + (hour + 1) * HOUR)
            total += self._spot_price(pool[0], pool[1], hour) * ((until - at) / HOUR)
            at = until
        return total
