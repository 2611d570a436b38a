from datetime import timedelta

import msgspec
import pytest

from kubewright.clock import Clock
from kubewright.errors import ConfigError
from kubewright.operator.deciding import solver_settings
from kubewright.operator.options import FLAGS, Options, parse
from kubewright.settings import DisruptionSettings, MinValuesPolicy, PreferencePolicy, PurchaseSettings, Settings
from kubewright.state.mirror import Mirror
from tests.unit.state.test_mirror import Seller

SPREAD = """
podTopologySpread:
  defaultConstraints:
    - maxSkew: 1
      topologyKey: topology.kubernetes.io/zone
      whenUnsatisfiable: ScheduleAnyway
"""


def test_default_constraints_are_read_and_handed_to_the_solver():
    settings = parse([], {"SCHEDULER_CONFIG": SPREAD}).settings
    (found,) = solver_settings(settings, Seller()).default_constraints
    assert (found.topology_key, found.max_skew, found.when_unsatisfiable) == ("topology.kubernetes.io/zone", 1, "ScheduleAnyway")
    assert solver_settings(Settings(), Seller()).default_constraints == ()


def test_services_are_watched_only_for_default_constraints():
    """An installation without them has no right to list Services."""
    watched = [
        Mirror(None, Seller(), Clock(), settings).surroundings.keys()
        for settings in (Settings(), Settings(scheduler_config=SPREAD))
    ]
    assert watched[1] - watched[0] == {"services"}


def test_unknown_variables_of_ours_are_warned_about_but_not_those_by_which_kubernetes_tells_of_a_service():
    links = {"KUBEWRIGHT_SERVICE_HOST": "10.0.0.1", "KUBEWRIGHT_SERVICE_PORT_HTTP_METRICS": "8080", "KUBEWRIGHT_PORT": "tcp://x"}
    assert parse([], {**links, "KUBEWRIGHT_PORT_8080_TCP_ADDR": "10.0.0.1", "KUBEWRIGHT_CLOUD": "aws"}).warnings == ()
    (warning,) = parse([], {**links, "KUBEWRIGHT_PACKNIG": "improve"}).warnings
    assert "KUBEWRIGHT_PACKNIG is not known and not heeded; did you mean KUBEWRIGHT_PACKING?" in warning


def test_nothing_given_is_the_references_defaults():
    assert parse([], {}) == Options()
    assert Options().settings == Settings()


def test_a_flag_wins_over_its_variable_and_a_variable_over_the_default():
    environment = {"BATCH_MAX_DURATION": "20s", "BATCH_IDLE_DURATION": "2s"}
    found = parse(["--batch-idle-duration=3s"], environment).settings
    assert (found.batch_max_duration, found.batch_idle_duration) == (timedelta(seconds=20), timedelta(seconds=3))


@pytest.mark.parametrize("arguments", [["--log-level", "debug"], ["--log-level=debug"], ["-log-level", "debug"]])
def test_flags_are_taken_in_every_form_that_go_takes(arguments):
    assert parse(arguments, {}).log_level == "debug"


def test_booleans_may_stand_bare():
    assert not parse(["--disable-leader-election", "--log-level", "error"], {}).leader_election
    assert parse(["--disable-leader-election", "false"], {}).leader_election
    assert not parse([], {"DISABLE_LEADER_ELECTION": "true"}).leader_election


def test_policies_and_gates_are_read():
    found = parse(["--preference-policy=Ignore", "--min-values-policy=BestEffort", "--feature-gates=ReservedCapacity=false"], {})
    assert found.settings.preference_policy is PreferencePolicy.IGNORE
    assert found.settings.min_values_policy is MinValuesPolicy.BEST_EFFORT
    assert not found.settings.feature_gates.reserved_capacity
    assert not found.warnings


@pytest.mark.parametrize(
    ("arguments", "environment", "text"),
    [
        (["--log-level", "verbose"], {}, "--log-level: 'verbose' is none of nothing, debug, info, error"),
        ([], {"METRICS_PORT": "http"}, "environment variable METRICS_PORT: 'http' is not a whole number"),
        (["--health-probe-port=70000"], {}, "--health-probe-port: '70000' is not a port"),
        (["--batch-max-duration", "10"], {}, "--batch-max-duration: '10' is not a duration; write for example 10s"),
        (["--batch-max-duration", "-5s"], {}, "must be greater than 0"),
        (["--batch-idle-duration", "11s"], {}, "longer than batch-max-duration 10s"),
        (["--ignore-dra-requests=yes"], {}, "'yes' is not a boolean; write true or false"),
        (["--feature-gates=NodeRepair"], {}, "write NodeRepair=true or NodeRepair=false"),
        (["--metrics-port"], {}, "flag needs an argument: --metrics-port"),
        (["run"], {}, "'run' is not a flag"),
        ([], {"VM_MEMORY_OVERHEAD_PERCENT": "7.5"}, "0.075 is 7.5 %"),
        (
            [],
            {"SCHEDULER_CONFIG": "{podTopologySpread: {defaults: []}}"},
            "SCHEDULER_CONFIG: podTopologySpread.defaults: there is no",
        ),
        (["--scheduler-config", SPREAD.replace("1", "0")], {}, "defaultConstraints[0].maxSkew: found 0; write a whole number"),
        (["--scheduler-config", SPREAD.replace("zone", "zo ne")], {}, "defaultConstraints[0].topologyKey: found"),
        (["--scheduler-config", SPREAD.replace("Anyway", "")], {}, "defaultConstraints[0].whenUnsatisfiable: found 'Schedule'"),
        (["--scheduler-config", SPREAD + SPREAD[SPREAD.index("- max") - 4 :]], {}, "defaultConstraints[1]: topologyKey"),
        (
            ["--scheduler-config", SPREAD + "      labelSelector: {}"],
            {},
            "defaultConstraints[0].labelSelector: a default has none",
        ),
        (["--scheduler-config", "{"], {}, "it is not YAML"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_mend(arguments, environment, text):
    with pytest.raises(ConfigError) as refused:
        parse(arguments, environment)
    assert text in str(refused.value)


def test_what_is_not_heeded_is_warned_about():
    found = parse(["--batch-idle-durtion", "3s", "--log-level=debug"], {"FEATURE_GATES": "NodeRepair=true,Foo=true"})
    assert found.log_level == "debug"
    assert len(found.warnings) == 2
    assert "did you mean --batch-idle-duration?" in found.warnings[0]
    assert "no feature gate 'Foo'" in found.warnings[1]
    assert found.settings.feature_gates.node_repair
    assert "MEMORY_LIMIT is not heeded" in parse([], {"MEMORY_LIMIT": "-1"}).warnings[0]


def test_disruption_has_its_own_knobs():
    found = parse(["--freeze", "--drift-surge=2"], {"KUBEWRIGHT_SETTLED_AFTER": "5m", "FREEZE": "false"}).settings.disruption
    assert (found.frozen, found.surge, found.settled_after) == (True, 2, timedelta(minutes=5))
    with pytest.raises(ConfigError, match="--consolidation-balance: '0' must be greater than 0"):
        parse(["--consolidation-balance=0"], {})


def test_purchases_have_their_caps_and_records_their_bounds():
    found = parse(
        ["--spend-cap=12.5", "--record", "/records"], {"KUBEWRIGHT_PURCHASES_PER_HOUR": "20", "KUBEWRIGHT_RECORD_BYTES": "1Gi"}
    )
    caps = found.settings.purchases
    assert (caps.spend_cap_usd_per_hour, caps.per_hour, caps.unused_after) == (12.5, 20, timedelta(minutes=5))
    assert (found.record, found.record_bytes, found.record_files) == ("/records", 2**30, 200)
    with pytest.raises(ConfigError, match="--record-bytes: 'much' is not an amount of bytes; write for example 256Mi"):
        parse(["--record-bytes=much"], {})


def test_the_providers_flags_are_passed_on():
    assert parse(["--reserved-enis", "2"], {"INTERRUPTION_QUEUE": "q"}).provider == {
        "interruption-queue": "q",
        "reserved-enis": "2",
    }


def test_every_flag_goes_somewhere_that_exists():
    for flag in FLAGS:
        where, _, field = flag.field.rpartition(".")
        nested = {"settings": Settings, "settings.disruption": DisruptionSettings, "settings.purchases": PurchaseSettings}
        owner = nested.get(where, Options)
        names = {f.name for f in msgspec.structs.fields(owner)}
        assert bool(flag.why_ignored) != (field in names), flag.name
