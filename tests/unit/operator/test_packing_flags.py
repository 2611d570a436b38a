"""Flags about what is bought."""

import pytest

from kubewright.errors import ConfigError
from kubewright.operator.options import parse
from kubewright.settings import NodeCount, Packing, Settings


def test_seconds_become_steps_here_and_only_here() -> None:
    settings = parse(["--packing-budget", "1s", "--packing-budget-most=4s"], {}).settings
    assert settings.packing_steps == 20_000
    assert settings.packing_steps_most == 80_000


def test_what_people_want_of_plans_is_read_from_flags_and_environment() -> None:
    told = ["--packing", "first-fit", "--packing-node-cost", "0.02", "--packing-node-cpu=0", "--packing-workload-share", "1"]
    told += ["--packing-nodes", "fewer", "--packing-nodes-within", "0.03", "--packing-slack", "0.1"]
    environment = {"KUBEWRIGHT_LAUNCH_PRICE_SHARE": "0.25", "KUBEWRIGHT_LAUNCH_LEAST_POOLS": "5"}
    settings = parse(told, environment).settings
    assert settings == Settings(
        packing=Packing.FIRST_FIT,
        packing_node_usd=0.02,
        packing_node_cpu=0,
        packing_workload_share=1.0,
        packing_nodes=NodeCount.FEWER,
        packing_nodes_within=0.03,
        packing_slack=0.1,
        launch_price_share=0.25,
        launch_least_pools=5,
    )


def test_plans_are_improved_by_default() -> None:
    assert parse([], {}).settings.packing is Packing.IMPROVE


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("packing", "best", "none of first-fit, improve"),
        ("packing-workload-share", "0", "greater than 0 and at most 1"),
        ("packing-workload-share", "half", "not a number"),
        ("packing-node-cpu", "-1", "at least 0"),
        ("packing-nodes", "some", "none of nothing, fewer, more"),
        ("packing-slack", "1", "less than 1"),
        ("launch-price-share", "-0.1", "at least 0"),
    ],
)
def test_what_cannot_be_read_stops_the_start_with_a_text_that_says_why(flag, value, words) -> None:
    with pytest.raises(ConfigError, match=words) as error:
        parse([f"--{flag}={value}"], {})
    assert flag in str(error.value)
