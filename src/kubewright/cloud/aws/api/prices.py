"""Spot prices and the price list."""

from datetime import datetime

from kubewright.cloud.aws.api.wire import Aws, Page, PagedRequest


class DescribeSpotPriceHistory(PagedRequest, frozen=True, kw_only=True):
    start_time: datetime
    product_descriptions: tuple[str, ...]
    instance_types: tuple[str, ...] = ()


class SpotPrice(Aws, frozen=True, kw_only=True):
    instance_type: str
    availability_zone: str
    spot_price: str
    """USD per hour, as text."""
    timestamp: datetime | None = None


class SpotPricesPage(Page, frozen=True, kw_only=True):
    spot_price_history: tuple[SpotPrice, ...] = ()


class ProductFilter(Aws, frozen=True, kw_only=True):
    field: str
    value: str
    type: str


class GetProducts(PagedRequest, frozen=True, kw_only=True):
    filters: tuple[ProductFilter, ...]
    service_code: str


class ProductsPage(Page, frozen=True, kw_only=True):
    price_list: tuple[str, ...] = ()
    """Each a JSON document of its own; `prices.read_product` reads it."""
