"""What an instance type costs: on-demand list prices and the spot market, kept fresh in the background.

Source: spec/aws 6.3. Not known: savings plans, reserved instances, Windows.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from kubewright.cloud.aws import api, retry

REFRESH_EVERY = timedelta(hours=12)
"""Source: spec/aws 6.3."""
SPOT_REFRESH_EVERY = timedelta(minutes=5)
"""Ours: the market moves within the hour, and one paged call tells it all."""


LINUX = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
"""Product descriptions; without them prices of other systems are answered, too."""


class _PricePerUnit(msgspec.Struct, frozen=True):
    usd: str = msgspec.field(default="0", name="USD")
    cny: str = msgspec.field(default="0", name="CNY")


class _Dimension(msgspec.Struct, frozen=True, rename="camel"):
    price_per_unit: _PricePerUnit = _PricePerUnit()


class _Term(msgspec.Struct, frozen=True, rename="camel"):
    price_dimensions: dict[str, _Dimension] = {}


class _Terms(msgspec.Struct, frozen=True):
    on_demand: dict[str, _Term] = msgspec.field(default={}, name="OnDemand")


class _Attributes(msgspec.Struct, frozen=True, rename="camel"):
    instance_type: str = ""


class _Product(msgspec.Struct, frozen=True):
    attributes: _Attributes = _Attributes()


class _PriceListEntry(msgspec.Struct, frozen=True):
    product: _Product = _Product()
    terms: _Terms = _Terms()


_ENTRY = msgspec.json.Decoder(_PriceListEntry)


def read_product(text: str) -> tuple[str, float] | None:
    """(instance type, price per hour) of one price-list document; None when it has no price above zero."""
    entry = _ENTRY.decode(text)
    for _, term in sorted(entry.terms.on_demand.items()):
        for _, dimension in sorted(term.price_dimensions.items()):
            price = float(dimension.price_per_unit.usd) or float(dimension.price_per_unit.cny)
            if entry.product.attributes.instance_type and price > 0:
                return entry.product.attributes.instance_type, price
    return None


class Prices(msgspec.Struct, frozen=True):
    """One consistent view of all prices, in USD per hour; replaced whole when anything changes."""

    on_demand: Mapping[str, float]
    spot: Mapping[tuple[str, str], float] | None = None
    """(instance type, zone) → price; None before the first answer, when spot counts as dear as on-demand."""

    def of(self, instance_type: str, zone: str, capacity_type: str) -> float | None:
        """The price, or None when nobody named one; such an offering cannot be bought."""
        if capacity_type == "spot" and self.spot is not None:
            return self.spot.get((instance_type, zone))
        return self.on_demand.get(instance_type)


async def spot_prices(ec2: api.Ec2Api, now: datetime) -> dict[tuple[str, str], float]:
    """The spot market now; later rows win. Source: spec/aws 6.3."""
    found: dict[tuple[str, str], float] = {}
    request = api.DescribeSpotPriceHistory(start_time=now, product_descriptions=LINUX, max_results=2000)
    async for page in retry.pages(ec2.describe_spot_price_history, request):
        found.update({(row.instance_type, row.availability_zone): float(row.spot_price) for row in page.spot_price_history})
    return found
