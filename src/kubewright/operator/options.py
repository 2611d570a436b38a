"""Flags and environment, with the reference's names, as Settings and what else a process needs to know.

A flag wins over its variable, a variable over the default. Unlike the reference, a variable that cannot be read stops the start
with a clear text instead of silently meaning its default. Source: spec/scheduling 12.3.
"""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import msgspec

from kubewright.api import duration, quantity
from kubewright.catalogue import prices
from kubewright.errors import ConfigError
from kubewright.operator import spread
from kubewright.settings import FeatureGates, MinValuesPolicy, NodeCount, Packing, PreferencePolicy, PriceRow, Settings

LOG_LEVELS = ("", "debug", "info", "error")
STEPS_PER_S = 20_000
"""What the improver does in a second on the machines this was measured on; only here seconds become steps."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What `kubewright run` was asked for."""

    settings: Settings = Settings()
    metrics_port: int = 8080
    health_probe_port: int = 8081
    kube_client_qps: float = 200
    kube_client_burst: int = 300
    leader_election: bool = True
    leader_election_name: str = "karpenter-leader-election"
    leader_election_namespace: str = ""
    observability: bool = True
    """Whether metrics of every pod, node and condition are kept."""
    take_over: bool = False
    """Whether to start although a Karpenter is scaled up or EKS Auto Mode manages nodes."""
    shadow: bool = False
    """Decide and write nothing."""
    log_level: str = "info"
    log_output_paths: str = "stdout"
    log_error_output_paths: str = "stderr"
    kubeconfig: str = ""
    """Path; "" for KUBECONFIG, the home directory, or in-cluster, in that order."""
    context: str = ""
    record: str = ""
    """Directory for a record of every pass; "" for none."""
    record_files: int = 200
    record_bytes: int = 256 * 2**20
    """Of the directory together; the oldest records go."""
    provider: Mapping[str, str] = {}
    """Flags that are the provider's to read, by name."""
    warnings: tuple[str, ...] = ()
    """Things that were given and are not heeded; to be logged at the start."""


class _Flag(msgspec.Struct, frozen=True):
    name: str
    read: Callable[[str], object]
    field: str = ""
    """Of Options, "settings.x" for one of Settings, "" for one that is known and means nothing here."""
    why_ignored: str = ""
    is_boolean: bool = False

    @property
    def variable(self) -> str:
        return self.name.upper().replace("-", "_")


def _text(value: str) -> str:
    return value


def _boolean(value: str) -> bool:
    if value not in ("true", "false"):
        raise ValueError(f"{value!r} is not a boolean; write true or false")
    return value == "true"


def _disabled(value: str) -> bool:
    return not _boolean(value)


def _integer(value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"{value!r} is not a whole number") from None


def _port(value: str) -> int:
    number = _integer(value)
    if not 0 <= number <= 65535:
        raise ValueError(f"{value!r} is not a port; write a number from 0 to 65535")
    return number


def _positive(value: str) -> int:
    number = _integer(value)
    if number <= 0:
        raise ValueError(f"{value!r} must be greater than 0")
    return number


def _bytes(value: str) -> int:
    try:
        number = quantity.parse(value) // quantity.ONE
    except ValueError:
        raise ValueError(f"{value!r} is not an amount of bytes; write for example 256Mi") from None
    if number <= 0:
        raise ValueError(f"{value!r} must be greater than 0")
    return number


def _share(value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        raise ValueError(f"{value!r} is not a number") from None
    if not 0 <= number < 1:
        raise ValueError(f"{value!r} must be at least 0 and less than 1 (0.075 is 7.5 %)")
    return number


def _above_zero(value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        raise ValueError(f"{value!r} is not a number") from None
    if not 0 < number < float("inf"):
        raise ValueError(f"{value!r} must be greater than 0")
    return number


def _duration(value: str) -> timedelta:
    try:
        found = duration.parse(value)
    except ValueError:
        raise ValueError(f"{value!r} is not a duration; write for example 10s or 1m30s") from None
    if found <= timedelta():
        raise ValueError(f"{value!r} must be greater than 0")
    return found


def _seconds_of_steps(value: str) -> int:
    return int(_duration(value).total_seconds() * STEPS_PER_S)


def _scheduler_config(value: str) -> str:
    spread.read(value)
    return value


def _prices(value: str) -> tuple[PriceRow, ...]:
    try:
        return prices.read(Path(value).read_text(encoding="utf-8"), value)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ValueError(f"price file {value}: it cannot be read ({reason})") from None
    except ConfigError as error:
        raise ValueError(str(error)) from None


def _one_of(*allowed: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        if value not in allowed:
            raise ValueError(f"{value!r} is none of {', '.join(a or 'nothing' for a in allowed)}")
        return value

    return read


def _preference(value: str) -> PreferencePolicy:
    return PreferencePolicy(_one_of(*PreferencePolicy)(value))


def _min_values(value: str) -> MinValuesPolicy:
    return MinValuesPolicy(_one_of(*MinValuesPolicy)(value))


def _packing(value: str) -> Packing:
    return Packing(_one_of(*Packing)(value))


def _nodes(value: str) -> NodeCount:
    return NodeCount(_one_of(*NodeCount)(value))


def _from_zero(value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        raise ValueError(f"{value!r} is not a number") from None
    if not 0 <= number < float("inf"):
        raise ValueError(f"{value!r} must be at least 0")
    return number


def _part(value: str) -> float:
    number = _from_zero(value)
    if not 0 < number <= 1:
        raise ValueError(f"{value!r} must be greater than 0 and at most 1 (0.5 is half of a workload, 1 is no limit)")
    return number


def _count(value: str) -> int:
    number = _integer(value)
    if number < 0:
        raise ValueError(f"{value!r} must be at least 0")
    return number


def _gates(value: str) -> FeatureGates:
    """`A=true,B=false`; gates left out keep their default, unknown ones are looked at by `_unknown_gates`."""
    chosen: dict[str, bool] = {}
    for part in filter(None, (p.strip() for p in value.split(","))):
        name, equals, text = part.partition("=")
        if not equals:
            raise ValueError(f"feature gate {part!r}: write {name}=true or {name}=false")
        if name in _GATES:
            chosen[_GATES[name]] = _boolean(text.strip())
    return FeatureGates(**chosen)


_GATES = {"".join(w.title() for w in f.name.split("_")): f.name for f in msgspec.structs.fields(FeatureGates)}

FLAGS: Sequence[_Flag] = (
    _Flag("cluster-name", _text, "settings.cluster_name"),
    _Flag("vm-memory-overhead-percent", _share, "settings.vm_memory_overhead_percent"),
    _Flag("batch-max-duration", _duration, "settings.batch_max_duration"),
    _Flag("batch-idle-duration", _duration, "settings.batch_idle_duration"),
    _Flag("preference-policy", _preference, "settings.preference_policy"),
    _Flag("min-values-policy", _min_values, "settings.min_values_policy"),
    _Flag("ignore-dra-requests", _boolean, "settings.ignore_dra_requests", is_boolean=True),
    _Flag("scheduler-config", _scheduler_config, "settings.scheduler_config"),
    _Flag("feature-gates", _gates, "settings.feature_gates"),
    _Flag("price-file", _prices, "settings.prices"),
    _Flag("packing", _packing, "settings.packing"),
    _Flag("packing-budget", _seconds_of_steps, "settings.packing_steps"),
    _Flag("packing-budget-most", _seconds_of_steps, "settings.packing_steps_most"),
    _Flag("packing-node-cost", _from_zero, "settings.packing_node_usd"),
    _Flag("packing-node-cpu", _count, "settings.packing_node_cpu"),
    _Flag("packing-workload-share", _part, "settings.packing_workload_share"),
    _Flag("packing-nodes", _nodes, "settings.packing_nodes"),
    _Flag("packing-nodes-within", _share, "settings.packing_nodes_within"),
    _Flag("packing-slack", _share, "settings.packing_slack"),
    _Flag("launch-price-share", _from_zero, "settings.launch_price_share"),
    _Flag("launch-least-pools", _count, "settings.launch_least_pools"),
    _Flag("freeze", _boolean, "settings.disruption.frozen", is_boolean=True),
    _Flag("consolidation-balance", _above_zero, "settings.disruption.balance"),
    _Flag("settled-after", _duration, "settings.disruption.settled_after"),
    _Flag("drift-surge", _integer, "settings.disruption.surge"),
    _Flag("drift-failed-joins", _positive, "settings.disruption.failed_joins"),
    _Flag("unused-after", _duration, "settings.purchases.unused_after"),
    _Flag("spend-cap", _from_zero, "settings.purchases.spend_cap_usd_per_hour"),
    _Flag("purchases-per-hour", _count, "settings.purchases.per_hour"),
    _Flag("metrics-port", _port, "metrics_port"),
    _Flag("health-probe-port", _port, "health_probe_port"),
    _Flag("kube-client-qps", _positive, "kube_client_qps"),
    _Flag("kube-client-burst", _positive, "kube_client_burst"),
    _Flag("disable-leader-election", _disabled, "leader_election", is_boolean=True),
    _Flag("leader-election-name", _text, "leader_election_name"),
    _Flag("leader-election-namespace", _text, "leader_election_namespace"),
    _Flag("disable-cluster-state-observability", _disabled, "observability", is_boolean=True),
    _Flag("take-over", _boolean, "take_over", is_boolean=True),
    _Flag("shadow", _boolean, "shadow", is_boolean=True),
    _Flag("log-level", _one_of(*LOG_LEVELS), "log_level"),
    _Flag("log-output-paths", _text, "log_output_paths"),
    _Flag("log-error-output-paths", _text, "log_error_output_paths"),
    _Flag("record", _text, "record"),
    _Flag("record-files", _positive, "record_files"),
    _Flag("record-bytes", _bytes, "record_bytes"),
    _Flag("kubeconfig", _text, "kubeconfig"),
    _Flag("context", _text, "context"),
    _Flag("karpenter-service", _text, why_ignored="there is no webhook to name a Service for"),
    _Flag("enable-profiling", _boolean, why_ignored="there is no pprof endpoint", is_boolean=True),
    _Flag("disable-controller-warmup", _boolean, why_ignored="a standby always keeps its caches warm", is_boolean=True),
    _Flag("memory-limit", _integer, why_ignored="it tunes Go's garbage collector; set the container's limit instead"),
    _Flag("cpu-requests", _integer, why_ignored="it scales Go's concurrency; nothing here depends on it"),
)
PROVIDER = "provider"
_PROVIDER_FLAGS = (
    "cluster-endpoint",
    "cluster-ca-bundle",
    "isolated-vpc",
    "eks-control-plane",
    "interruption-queue",
    "reserved-enis",
    "disable-dry-run",
    "enable-zonal-shift",
    "ami-refresh-interval",
    "subnet-refresh-interval",
    "aws-feature-gates",
    "zonal-shift-evacuation",
    "replace-on-rebalance",
)
PROVIDER_VARIABLES = tuple(name.upper().replace("-", "_") for name in _PROVIDER_FLAGS)
"""Variables that the AWS provider reads."""
_BY_NAME = {flag.name: flag for flag in (*FLAGS, *(_Flag(name, _text, PROVIDER) for name in _PROVIDER_FLAGS))}
_NOT_FROM_ENVIRONMENT = frozenset(
    {
        *("kubeconfig", "context", "packing", "packing-budget", "record", "record-files", "record-bytes", "take-over", "shadow"),
        *("packing-budget-most", "packing-node-cost", "packing-node-cpu", "packing-workload-share", "packing-nodes"),
        *("packing-nodes-within", "packing-slack", "launch-price-share", "launch-least-pools"),
        *("freeze", "consolidation-balance", "price-file", "settled-after", "drift-surge", "drift-failed-joins"),
        *("unused-after", "spend-cap", "purchases-per-hour", "zonal-shift-evacuation", "replace-on-rebalance"),
    }
)
"""Too general as bare variables (KUBECONFIG is read by the client); ours have the prefix KUBEWRIGHT_."""


def parse(arguments: Sequence[str], environment: Mapping[str, str]) -> Options:
    """What a command line and an environment ask for.

    Flags are `--name value` or `--name=value`, booleans also bare `--name`; one dash is taken too, as Go does. Unknown flags and
    feature gates, and flags that mean nothing here, are warned about.

    Raises:
        ConfigError: names the flag or variable, what was found, and what to write instead.
    """
    chosen: dict[str, tuple[str, str]] = {}
    for flag in _BY_NAME.values():
        variable = flag.variable if flag.name not in _NOT_FROM_ENVIRONMENT else f"KUBEWRIGHT_{flag.variable}"
        if environment.get(variable):
            chosen[flag.name] = (f"environment variable {variable}", environment[variable])
    warnings = _unknown_variables(environment)
    for name, written in _flags(arguments, warnings):
        chosen[name] = (f"--{name}", written)
    values: dict[str, object] = {}
    settings: dict[str, object] = {}
    disruption: dict[str, object] = {}
    purchases: dict[str, object] = {}
    provider: dict[str, str] = {}
    for name, (where, text) in sorted(chosen.items()):
        flag = _BY_NAME[name]
        if flag.field == PROVIDER:
            provider[name] = text
            continue
        try:
            value = flag.read(text)
        except ValueError as error:
            raise ConfigError(f"validating cli flags / env vars, {where}: {error}") from None
        if flag.why_ignored:
            warnings.append(f"{where} is not heeded: {flag.why_ignored}")
        elif flag.field.startswith("settings.purchases."):
            purchases[flag.field.removeprefix("settings.purchases.")] = value
        elif flag.field.startswith("settings.disruption."):
            disruption[flag.field.removeprefix("settings.disruption.")] = value
        elif flag.field.startswith("settings."):
            settings[flag.field.removeprefix("settings.")] = value
        else:
            values[flag.field] = value
        if name == "feature-gates":
            warnings += _unknown_gates(where, text)
    knobs = msgspec.structs.replace(Settings().disruption, **disruption)
    caps = msgspec.structs.replace(Settings().purchases, **purchases)
    built = msgspec.structs.replace(Settings(), disruption=knobs, purchases=caps, **settings)
    if built.batch_idle_duration > built.batch_max_duration:
        raise ConfigError(
            f"validating cli flags / env vars, batch-idle-duration {duration.show(built.batch_idle_duration)} is longer than"
            f" batch-max-duration {duration.show(built.batch_max_duration)}: make it at most as long"
        )
    return msgspec.structs.replace(Options(), settings=built, provider=provider, warnings=tuple(warnings), **values)


def _flags(arguments: Sequence[str], warnings: list[str]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    rest = list(arguments)
    while rest:
        written = rest.pop(0)
        if not written.startswith("-") or written in ("-", "--"):
            raise ConfigError(f"{written!r} is not a flag; all options have the form --name value")
        name, equals, value = written.lstrip("-").partition("=")
        flag = _BY_NAME.get(name)
        if flag is None:
            near = difflib.get_close_matches(name, _BY_NAME, n=1)
            warnings.append(f"--{name} is not known and not heeded" + (f"; did you mean --{near[0]}?" if near else ""))
            if not equals and rest and not rest[0].startswith("-"):
                rest.pop(0)
        elif equals:
            found.append((name, value))
        elif flag.is_boolean and not (rest and rest[0] in ("true", "false")):
            found.append((name, "true"))
        elif rest:
            found.append((name, rest.pop(0)))
        else:
            raise ConfigError(f"flag needs an argument: --{name}")
    return found


def _unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Variables with our prefix that nothing reads. Those by which Kubernetes tells of a Service are nobody's mistake."""
    known = sorted({*_ALSO_READ, *(f"{_PREFIX}{_BY_NAME[name].variable}" for name in _NOT_FROM_ENVIRONMENT)})
    found = []
    for name in sorted(environment):
        if name.startswith(_PREFIX) and name not in known and not _SERVICE_LINK.search(name):
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            found.append(f"environment variable {name} is not known and not heeded{hint}")
    return found


_PREFIX = "KUBEWRIGHT_"
_ALSO_READ = frozenset(f"KUBEWRIGHT_{name}" for name in ("CATALOGUE", "CLOUD", "PYTHON", "TEST_PROCESSES", "WITH_GO"))
"""What the command line, the scripts and the tests read."""
_SERVICE_LINK = re.compile(r"_(PORT|SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$")


def _unknown_gates(where: str, text: str) -> list[str]:
    names = [part.partition("=")[0].strip() for part in text.split(",") if part.strip()]
    known = ", ".join(sorted(_GATES))
    return [f"{where}: there is no feature gate {name!r}; known are {known}" for name in names if name not in _GATES]
