"""The cluster's default spread constraints, as `--scheduler-config` has them. Source: spec/scheduling 6.10."""

from typing import Any

import yaml

from kubewright.api import labels
from kubewright.api.core import TopologySpreadConstraint

_FIELDS = {"maxSkew", "topologyKey", "whenUnsatisfiable", "minDomains", "nodeAffinityPolicy", "nodeTaintsPolicy"}
_ACTIONS = ("DoNotSchedule", "ScheduleAnyway")
_EXAMPLE = (
    "podTopologySpread: {defaultConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone,"
    " whenUnsatisfiable: ScheduleAnyway}]}"
)


def read(text: str) -> tuple[TopologySpreadConstraint, ...]:
    """The constraints in `text`, YAML or JSON; none for "".

    Raises:
        ValueError: names the constraint by its index, the field, what was found and what to write.
    """
    if not text:
        return ()
    try:
        config = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"it is not YAML ({error}); write for example {_EXAMPLE}") from None
    spread = _only(config, "scheduler-config", {"podTopologySpread"}).get("podTopologySpread", {})
    found = _only(spread, "podTopologySpread", {"defaultConstraints"}).get("defaultConstraints", [])
    if not isinstance(found, list):
        raise ValueError(  # noqa: TRY004 (callers catch one kind)
            f"podTopologySpread.defaultConstraints: found {found!r}; write a list, for example {_EXAMPLE}"
        )
    constraints = tuple(_constraint(one, f"podTopologySpread.defaultConstraints[{i}]") for i, one in enumerate(found))
    seen: dict[tuple[str, str], int] = {}
    for index, one in enumerate(constraints):
        pair = (one.topology_key, one.when_unsatisfiable)
        if pair in seen:
            raise ValueError(
                f"podTopologySpread.defaultConstraints[{index}]: topologyKey {pair[0]!r} with whenUnsatisfiable {pair[1]!r}"
                f" stands in [{seen[pair]}] already; leave one of them out"
            )
        seen[pair] = index
    return constraints


def _only(value: Any, where: str, known: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: found {value!r}; write for example {_EXAMPLE}")  # noqa: TRY004 (callers catch one kind)
    for key in sorted(value.keys() - known, key=str):
        raise ValueError(f"{where}.{key}: there is no such field; known are {', '.join(sorted(known))}")
    return value


def _constraint(value: Any, where: str) -> TopologySpreadConstraint:
    for derived in ("labelSelector", "matchLabelKeys"):
        if isinstance(value, dict) and derived in value:
            raise ValueError(f"{where}.{derived}: a default has none, it is taken from each pod's owner; leave it out")
    one = _only(value, where, _FIELDS)
    skew, key, action, least = one.get("maxSkew"), one.get("topologyKey"), one.get("whenUnsatisfiable"), one.get("minDomains")
    if type(skew) is not int or skew <= 0:
        raise ValueError(f"{where}.maxSkew: found {skew!r}; write a whole number greater than 0")
    if not isinstance(key, str) or not key or labels.qualified_name_problems(key):
        raise ValueError(f"{where}.topologyKey: found {key!r}; write a label key, for example topology.kubernetes.io/zone")
    if action not in _ACTIONS:
        raise ValueError(f"{where}.whenUnsatisfiable: found {action!r}; write {' or '.join(_ACTIONS)}")
    if least is not None and (type(least) is not int or least <= 0):
        raise ValueError(f"{where}.minDomains: found {least!r}; write a whole number greater than 0, or leave it out")
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if one.get(policy) not in (None, "Honor", "Ignore"):
            raise ValueError(f"{where}.{policy}: found {one[policy]!r}; write Honor or Ignore")
    return TopologySpreadConstraint(
        topology_key=key,
        max_skew=skew,
        when_unsatisfiable=str(action),
        min_domains=least,
        node_affinity_policy=one.get("nodeAffinityPolicy"),
        node_taints_policy=one.get("nodeTaintsPolicy"),
    )
