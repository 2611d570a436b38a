"""Random scheduling problems in the oracle's JSON: small, over every feature, and made smaller where they fail.

One generator serves a command's seeds (`problem`), hypothesis (`problems`) and `smaller`: all it does is choose numbers.
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.conformance.problems import cluster, machines
from tests.conformance.problems.features import FEATURES
from tests.conformance.problems.shapes import ARCH, CT, HOST, POOL, TYPE, UNSCHEDULABLE, WELL_KNOWN, ZONE, J, key_of
from tests.conformance.problems.source import Drawn, Numbers, Replayed, Seeded, Source, smaller
from tests.conformance.problems.workloads import Workloads

__all__ = ["ARCH", "CT", "FEATURES", "HOST", "POOL", "TYPE", "ZONE", "Made", "made", "problem", "problems", "replayed", "shrunk"]

_ALONE = (
    ("min-values", "min-values-relaxed"),
    ("real-catalogue", "hugepages"),
    ("real-catalogue", "extended-resource"),
    ("real-catalogue", "reserved"),
    ("real-catalogue", "dry-offering"),
    ("real-catalogue", "attach-limit-new"),
)
"""Features of which a problem has the first only."""


class Made(NamedTuple):
    asked: dict[str, Any]
    features: dict[str, frozenset[str]]
    """Feature → keys of the pods that show whether it works: those that have it, or all, where it is the cluster's."""


def problem(seed: int, without: Collection[str] = ()) -> tuple[dict[str, Any], frozenset[str]]:
    """A problem and the features in it; the same for the same seed. `without` are features that it shall not have."""
    found = made(Seeded(seed), without)
    return found.asked, frozenset(found.features)


@st.composite
def problems(draw: st.DrawFn, without: Sequence[str] = ()) -> Made:
    """Problems for hypothesis, which makes failing ones smaller."""
    return made(Drawn(lambda bound: draw(st.integers(0, bound - 1))), without)


def replayed(choices: Sequence[int]) -> Made:
    return made(Replayed(choices))


def shrunk(seed: int, fails: Any) -> Made:
    """The smallest problem found on the way from the one of `seed` for which `fails` still holds."""
    numbers = Seeded(seed)
    made(numbers)
    return replayed(smaller(numbers.made, lambda choices: bool(fails(replayed(choices)))))


def made(numbers: Numbers, without: Collection[str] = ()) -> Made:
    source = Source(numbers)
    names = list(FEATURES)
    wanted = {names[source.below(len(names))] for _ in range(source.between(2, 8))} - set(without)
    for first, second in _ALONE:
        if first in wanted:
            wanted.discard(second)
    if "daemon-company" in wanted:
        wanted.add("daemon")
    pools = cluster.pools(source, wanted)
    nodes = cluster.Nodes(source, wanted, [p["metadata"]["name"] for p in pools])
    nodes.make()
    objects: list[J] = [*cluster.namespaces(), *pools, *cluster.storage(source), *nodes.objects]
    if "daemon" in wanted:
        objects.append(cluster.daemon(source, shy="daemon-company" in wanted and source.chance(20)))
    workloads = Workloads(source, wanted)
    for node, app in nodes.running:
        workloads.running(node, app)
    for _ in range(source.between(1, 4)):
        workloads.workload()
    if "default-spread" in wanted:
        workloads.workload(defaulted=True)
    objects += workloads.objects
    if "bystander" in wanted:
        container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "100m", "memory": "100Mi"}}}
        objects += cluster.bystanders(source, container)
    asked: dict[str, Any] = {
        "objects": objects,
        "instanceTypes": machines.real(source) if "real-catalogue" in wanted else machines.synthetic(source, wanted),
        "wellKnownLabels": list(WELL_KNOWN),
        "preferencePolicy": "Ignore" if "ignore-preferences" in wanted else "Respect",
        "minValuesPolicy": "BestEffort" if "min-values-relaxed" in wanted else "Strict",
    }
    if "default-spread" in wanted:
        key, when = source.one(ZONE, HOST), source.one("DoNotSchedule", "ScheduleAnyway")
        asked["defaultConstraints"] = [{"topologyKey": key, "maxSkew": source.one(1, 2), "whenUnsatisfiable": when}]
    pending = frozenset(key_of(o) for o in objects if o["kind"] == "Pod" and UNSCHEDULABLE in o["status"].get("conditions", ()))
    pending -= {f"default/by-{kind}" for kind in ("nominated", "daemon", "mirror", "opted-out")}
    # Nobody has to stand for a feature of pods where none of the problem's has it.
    owned = {f: frozenset(workloads.marked[f]) for f in sorted(wanted) if f in workloads.marked}
    whole = {f: pending for f in sorted(wanted) if f not in owned and f not in _OF_PODS}
    return Made(asked, dict(sorted({**owned, **whole}.items())))


_OF_PODS = frozenset({"default-spread", "namespaces", "namespace-selector"})
"""Features that only pods can have, and that may have come to nothing."""
