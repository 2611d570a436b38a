import subprocess
import sys

import pytest

from kubewright.cloud.aws import catalogue
from kubewright.errors import ConfigError
from tests.unit.cloud.world import World, story

KNOWN = catalogue.embedded()


def test_it_holds_more_than_1200_priced_types_and_says_where_they_are_from():
    assert len(KNOWN.prices("us-east-1")) > 1200
    assert "moto" in KNOWN.source
    assert "price list" in KNOWN.source
    assert KNOWN.date == "2026-07-06"


@pytest.mark.parametrize(
    ("name", "price"),
    [
        ("m5.large", 0.096),
        ("c4.large", 0.1),
        ("t3.micro", 0.0104),
        ("p5.48xlarge", 55.04),
        ("m7g.metal", 2.6112),
        ("g5.xlarge", 1.006),
    ],
)
def test_prices_are_the_list_prices(name, price):
    """Source: AWS EC2 on-demand pricing, us-east-1, Linux, July 2026."""
    assert KNOWN.prices("us-east-1")[name] == pytest.approx(price, abs=1e-6)


def test_a_region_without_prices_of_its_own_has_those_of_us_east_1():
    assert KNOWN.prices("eu-west-1") == KNOWN.prices("us-east-1")


@pytest.mark.parametrize("region", ["us-east-1", "us-west-2", "eu-west-1"])
def test_every_zone_sells_most_types(region):
    offered = KNOWN.region(region)
    assert len(offered.zones) >= 3
    assert "m5.large" in offered.sold
    assert offered.zones_of("m5.large")
    assert offered.zones_of("zz9.huge") == ()


def test_the_file_is_small_and_survives_a_round_trip_to_the_byte():
    data = catalogue.dump(KNOWN)
    assert len(data) < 400_000
    assert catalogue.dump(catalogue.read(data)) == data


def test_a_broken_file_says_what_to_do():
    with pytest.raises(ConfigError, match="kubewright catalogue refresh"):
        catalogue.read(b"not gzip", "my.gz")


def test_an_unknown_region_says_which_are_known():
    with pytest.raises(ConfigError, match=r"'mars-1'.*us-east-1"):
        KNOWN.region("mars-1")


def test_refresh_writes_what_the_cloud_answers_in_the_same_format():
    async def tell(world: World):
        return catalogue.read(await catalogue.refresh(world.ec2, "us-west-2", "2026-11-29"))

    found = story(tell, whole=True)
    assert found.date == "2026-11-29"
    assert found.on_demand["us-west-2"]["m5.large"] == 0.096
    assert found.region("us-west-2").zones_of("m5.large") == KNOWN.region("us-west-2").zones_of("m5.large")
    assert found.branch_interfaces["m5.large"] == 9


def test_importing_the_provider_does_not_import_boto3():
    code = "import sys, kubewright.cloud.aws.provider, kubewright.cloud.aws.boto; assert 'boto3' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
