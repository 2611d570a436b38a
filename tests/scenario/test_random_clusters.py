"""Laws of disruption on the whole operator: random clusters, every write of anybody looked at as it lands."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubewright.sim.apiserver.kinds import Kind
from kubewright.sim.faults import Kill, Process, Side
from tests.conftest import FOUND
from tests.scenario.world import (
    NODE_POOL,
    ORDER,
    POD,
    Item,
    World,
    budget,
    deployment,
    is_clean,
    names,
    node_class,
    play,
    pool,
    reason,
    relabel,
    status,
)

PDBS = ("policy/v1", "PodDisruptionBudget")
HOMELESS_S = 15
"""A pod that had a home to go to waits for the scheduler and its container, for nothing else."""


class Watchman:
    """Looks at a world that nobody but the operator changes, whenever something was written, and notes what should never be."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.wrong: list[str] = []
        self.reasons: Counter[str] = Counter()
        """Of orders begun."""
        self._going: set[str] = set()
        self._known = names(world.claims())
        self._pending: dict[str, float] = {}
        world.store.on_written(self._written)

    def _written(self, _: str, kind: Kind, key: str) -> None:
        if kind.kind == "NodeClaim":
            self._claims()
        elif kind.kind == "Pod":
            self._pods(key)

    def _claims(self) -> None:
        claims = self._world.claims()
        counted = [c for c in claims if status(c, "Initialized") == "True" and status(c, "InstanceTerminating") != "True"]
        going = {
            c["metadata"]["name"]
            for c in counted
            if ORDER in c["metadata"].get("annotations", {}) or "deletionTimestamp" in c["metadata"]
        }
        for claim in counted:
            name = claim["metadata"]["name"]
            if name in going - self._going and ORDER in claim["metadata"].get("annotations", {}):
                self._budget(claim, counted, going)
                self.reasons[json.loads(claim["metadata"]["annotations"][ORDER])["reason"]] += 1
        self._going = going
        for claim in claims:
            bought_for_pods = "kubewright.sh/replaces" not in claim["metadata"].get("annotations", {})
            if bought_for_pods and claim["metadata"]["name"] not in self._known:
                self.wrong.append(f"{claim['metadata']['name']} was bought for pods that a disruption left without a home")
        self._known |= names(claims)

    def _budget(self, claim: Item, counted: list[Item], going: set[str]) -> None:
        owner = claim["metadata"]["labels"]["karpenter.sh/nodepool"]
        mine = names(c for c in counted if c["metadata"]["labels"]["karpenter.sh/nodepool"] == owner)
        why = json.loads(claim["metadata"]["annotations"][ORDER])["reason"]
        (found,) = [p for p in self._world.find(NODE_POOL) if p["metadata"]["name"] == owner]
        for one in found["spec"]["disruption"]["budgets"]:
            text = str(one["nodes"])
            most = -(-int(text[:-1]) * len(mine) // 100) if text.endswith("%") else int(text)
            if why in one.get("reasons", (why,)) and len(mine & going) > most:
                self.wrong.append(f"{len(mine & going)} of {len(mine)} nodes of {owner} go ({why}), the budget is {text}")

    def _pods(self, key: str) -> None:
        now = self._world.seconds()
        pod = next((p for p in self._world.find(POD) if f"{p['metadata']['namespace']}/{p['metadata']['name']}" == key), None)
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            self._pending.pop(key, None)
        elif pod.get("status", {}).get("phase") != "Running":
            self._pending.setdefault(key, now)
        else:
            since = self._pending.pop(key, now)
            if now - since > HOMELESS_S:
                self.wrong.append(f"pod {key} waited {now - since:.0f} s for a home")

    def guards_hold(self) -> None:
        """No PodDisruptionBudget is below what it wants."""
        for one in self._world.find(PDBS):
            found = one.get("status", {})
            if found.get("currentHealthy", 0) < found.get("desiredHealthy", 0):
                self.wrong.append(f"{one['metadata']['name']} has {found['currentHealthy']} of {found['desiredHealthy']} pods")


def usd_per_hour(world: World) -> float:
    now = world.now()
    return sum(world.cloud.ec2.market.price(i.pool, now) or 0.0 for i in world.cloud.ec2.machines.all.values() if i.is_live)


workloads = st.fixed_dictionaries(
    {
        "cpu": st.sampled_from(("250m", "500m", "1", "1.5", "3")),
        "before": st.integers(1, 8),
        "after": st.integers(0, 8),
        "guard": st.sampled_from((None, {"maxUnavailable": 1}, {"minAvailable": "50%"}, {"maxUnavailable": "34%"})),
    }
)
clusters = st.fixed_dictionaries(
    {
        "workloads": st.lists(workloads, min_size=1, max_size=4),
        "budgets": st.sampled_from(
            (
                [{"nodes": "1"}],
                [{"nodes": "50%"}],
                [{"nodes": "100%"}, {"nodes": "1", "reasons": ["Drifted"]}],
                [{"nodes": "30%"}, {"nodes": "2"}],
            )
        ),
        "consolidate_after": st.sampled_from(("0s", "30s", "Never")),
        "drifts": st.booleans(),
        "killed": st.one_of(st.none(), st.builds(Kill, st.integers(60, 200), st.sampled_from(Side))),
    }
)
SEVERAL_SIZES = [
    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
    {
        "key": "node.kubernetes.io/instance-type",
        "operator": "In",
        "values": ["m5.large", "m5.xlarge", "m5.2xlarge", "m6i.xlarge"],
    },
]


def live_through(cluster: Mapping[str, Any]) -> Counter[str]:
    """A cluster comes up, changes, and is left alone until the operator has nothing to do; what it did meanwhile, by reason."""
    process = Process(cluster["killed"])
    done: Counter[str] = Counter()

    async def story(world: World) -> None:
        of_pool = {"consolidate_after": cluster["consolidate_after"], "budgets": cluster["budgets"]}
        world.apply(node_class(), pool(requirements=SEVERAL_SIZES, **of_pool))
        apps = {f"app-{i}": one for i, one in enumerate(cluster["workloads"])}
        for app, one in apps.items():
            world.apply(deployment(app, one["before"], one["cpu"]))
            if one["guard"] is not None:
                world.apply(budget(app, **one["guard"]))
        for app, one in apps.items():
            await world.until_running(one["before"], app, 900)
        for app, one in apps.items():
            world.scale(app, one["after"])
        await world.until(lambda: all(len(world.running(a)) == o["after"] for a, o in apps.items()), 900)
        watchman = Watchman(world)
        before = usd_per_hour(world)
        if cluster["drifts"]:
            relabel(world)
        last, since = names(world.claims()), world.seconds()

        def is_still() -> bool:
            nonlocal last, since
            watchman.guards_hold()
            assert not watchman.wrong, watchman.wrong
            now = names(world.claims())
            if now != last or not is_clean(world):
                last, since = now, world.seconds()
            return world.seconds() - since > 900

        await world.until(is_still, 6 * 3600, "nothing is left to do")
        assert all(len(world.running(a)) == o["after"] for a, o in apps.items())
        assert len(world.claims()) == len(world.cloud.alive()) == len(world.nodes())
        assert usd_per_hour(world) <= before + 1e-9
        if cluster["drifts"]:
            left = [c for c in world.claims() if c["metadata"]["labels"].get("team") != "blue"]
            assert all(reason(c, "kubewright.sh/Disruptable").startswith("Pdb") for c in left), "only a budget that never opens"
        done.update(watchman.reasons)

    play(story, process=process)
    assert not [w for w in process.writes if w.startswith("delete Pod")], "pods are asked, never deleted"
    done["killed"] = bool(process.killed_at)
    done["evictions"] = sum(1 for w in process.landed if w.startswith("evict "))
    return done


def test_disruption_breaks_no_budget_leaves_no_pod_homeless_and_ends(record_property):
    done: Counter[str] = Counter()

    @settings(deadline=None, max_examples=22, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(clusters)
    def law(cluster: Mapping[str, Any]) -> None:
        done.update(live_through(cluster))

    law()
    record_property(
        FOUND, f"random clusters under disruption, orders by reason, evictions and kills: {dict(sorted(done.items()))}"
    )
    for what in ("Drifted", "Empty", "Underutilized", "evictions", "killed"):
        assert done[what] > 0, f"none of the clusters was tried by {what}"
