"""Price files: three ways to write one list, and what is said about those that cannot be used."""

import json
import re

import pytest
import yaml

from kubewright.catalogue.prices import own_prices, read
from kubewright.errors import ConfigError
from kubewright.settings import PriceRow
from tests.builders import S_TYPES

ROWS = [
    {"instanceType": "m5.xlarge", "usdPerHour": 0.15},
    {"family": "m6i", "discount": "12.5%", "zone": "us-west-2a"},
    {"instanceType": "m5.xlarge", "capacityType": "spot", "usdPerHour": 0.05},
    {"name": "ri", "family": "m5", "instanceType": "m5.xlarge", "usdPerHour": 0.12, "upToInstances": 10, "paidAnyway": True},
    {"discount": "28%", "upToUsdPerHour": 12.5},
]
READ = (
    PriceRow(instance_type="m5.xlarge", usd_per_hour=0.15),
    PriceRow(family="m6i", discount=0.125, zone="us-west-2a"),
    PriceRow(instance_type="m5.xlarge", capacity_type="spot", usd_per_hour=0.05),
    PriceRow(name="ri", family="m5", instance_type="m5.xlarge", usd_per_hour=0.12, up_to_instances=10, paid_anyway=True),
    PriceRow(name="row 5", discount=0.28, up_to_usd_per_hour=12.5),
)


def as_csv(rows):
    columns = sorted({key for row in rows for key in row})
    lines = [",".join(columns), *(",".join(str(row.get(c, "")) for c in columns) for row in rows)]
    return "\n".join(lines) + "\n"


def test_yaml_json_and_csv_say_the_same():
    assert read(yaml.safe_dump({"prices": ROWS}), "p.yaml") == READ
    assert read(json.dumps({"prices": ROWS}), "p.json") == READ
    assert [r for r in read(as_csv(ROWS), "p.csv") if r.name != "line 6"] == list(READ[:4])
    assert read(as_csv(ROWS), "p.csv")[4].name == "line 6"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"instanceType": "m5.xlarge", "usdPerHour": "cheap"}, "field usdPerHour: found 'cheap'; write a number"),
        ({"instanceType": "m5.xlarge", "usdPerHour": -1}, "field usdPerHour: found -1; write a number that is not negative"),
        ({"instanceType": "m5.xlarge", "usdPerHour": float("nan")}, "field usdPerHour: found 'NaN'; write a number"),
        ({"instanceType": "m5.xlarge"}, "field usdPerHour: found None; write what a machine costs an hour, or a discount"),
        ({"family": "m5", "discount": 28}, "field discount: found 28; write a percentage from 0% to 100%, with its sign"),
        ({"family": "m5", "discount": "128%"}, "field discount: found '128%'; write a percentage"),
        (
            {"instanceType": "a.b", "usdPerHour": 1, "discount": "1%"},
            "field discount: found '1%'; write it or usdPerHour, not both",
        ),
        ({"family": "m5", "usdPerHour": 1}, "field instanceType: found None; write the machine that costs so much"),
        ({"instancetype": "a.b", "usdPerHour": 1}, "write one of name, .*did you mean instanceType[?]"),
        ({"instanceType": 5, "usdPerHour": 1}, "field instanceType: found 5; write text"),
        (
            {"family": "m5", "instanceType": "c5.large", "discount": "1%", "upToInstances": 1},
            "found 'c5.large'; write a size of family m5",
        ),
        ({"family": "m5", "instanceType": "m5.large", "usdPerHour": 1}, "field family: found 'm5'; write it only where a bound"),
        (
            {"discount": "5%", "capacityType": "on demand"},
            "field capacityType: found 'on demand'; write one of on-demand, reserved, spot",
        ),
        (
            {"discount": "5%", "upToInstances": 1, "upToUsdPerHour": 1},
            "field upToUsdPerHour: found 1.0; write it or upToInstances",
        ),
        ({"discount": "100%", "upToUsdPerHour": 1}, "write the price that uses it up, and paidAnyway: true"),
        ({"discount": "5%", "paidAnyway": True}, "field paidAnyway: found True; write it only beside upToInstances"),
        ({"discount": "5%", "upToInstances": 1, "paidAnyway": "maybe"}, "field paidAnyway: found 'maybe'; write true or false"),
    ],
)
def test_what_is_wrong_is_named_with_file_row_field_and_mend(row, said):
    with pytest.raises(ConfigError) as caught:
        read(json.dumps({"prices": [ROWS[0], row]}), "own.json")
    assert re.search("price file own.json, row 2, .*" + said, str(caught.value)), str(caught.value)


def test_everything_that_is_wrong_is_said_at_once():
    with pytest.raises(ConfigError) as caught:
        read(as_csv([{"family": "m5", "discount": 5}, {"usdPerHour": "x", "instanceType": "a.b"}]), "own.csv")
    assert [line.partition(", field")[0] for line in str(caught.value).splitlines()] == [
        "price file own.csv, line 2",
        "price file own.csv, line 3",
    ]


@pytest.mark.parametrize(
    ("text", "file", "said"),
    [
        ("prices: [", "p.yaml", "it cannot be read"),
        ("- a", "p.yaml", "found list at the top|found 'list' at the top"),
        ("price: []", "p.yaml", "found .'price'. at the top; write a mapping with one list, prices:"),
        ("prices: [5]", "p.yaml", "row 1: found 5; write fields"),
        ("", "p.csv", "it is empty; write a first line that names the columns"),
        ("", "p.txt", "its name must end in .yaml, .yml, .json or .csv"),
        ('a\n"x', "p.csv", "this is not CSV"),
    ],
)
def test_a_file_that_is_no_price_list_is_told_what_one_is(text, file, said):
    with pytest.raises(ConfigError, match=said):
        read(text, file)


def test_two_prices_for_one_machine_are_refused_with_the_first():
    with pytest.raises(
        ConfigError, match=r"row 2, field instanceType: found 'a\.b'; write a machine that row 1 has no price for"
    ):
        read(json.dumps({"prices": [{"instanceType": "a.b", "usdPerHour": n} for n in (1, 2)]}), "p.json")


def test_own_prices_reach_the_offerings_they_are_about_and_leave_the_rest_alone():
    priced = own_prices(
        (
            PriceRow(instance_type="s2", zone="a", usd_per_hour=0.01),
            PriceRow(family="s2", discount=0.5),
            PriceRow(instance_type="s4", capacity_type="spot", usd_per_hour=0.03),
            PriceRow(instance_type="s2", discount=0.9, up_to_instances=3),
        )
    )
    assert priced is not None
    s2, s4, s8 = (priced(kind) for kind in S_TYPES[:3])
    assert {(o.zone, o.capacity_type): o.price for o in s2.offerings} == {
        ("a", "on-demand"): 0.01,
        ("b", "on-demand"): 0.05,
        ("c", "on-demand"): 0.05,
        **{(z, "spot"): pytest.approx(0.04) for z in "abc"},
    }
    assert {o.price for o in s4.offerings} == {0.2, 0.03}
    assert s8 is S_TYPES[2]
    assert [o.price_overlaid for o in s4.offerings] == [o.capacity_type == "spot" for o in s4.offerings]
    assert own_prices((PriceRow(discount=0.1, up_to_instances=3),)) is None
