"""The validator refuses what is made wrong on purpose, and our own plans are right by it."""

import copy
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.adapter import answer
from tests.conformance.problems import problem
from tests.conformance.problems.shapes import APPS, CT, DRIVER, HOST, MUST, UNSCHEDULABLE, ZONE, ZONES, key_of, one_of, terms
from tests.conformance.validator import violations

SEEDS = range(20_000, 20_060)
J = dict[str, Any]


def test_plans_for_random_problems_are_valid() -> None:
    wrong = []
    for seed in SEEDS:
        asked, _ = problem(seed)
        found = violations(asked, answer(asked))
        wrong += [(seed, v) for v in found]
    assert wrong == []


def test_the_same_problem_gives_the_same_answer() -> None:
    for seed in SEEDS:
        asked, _ = problem(seed)
        first, second = answer(asked), answer(asked)
        first.pop("seconds")
        second.pop("seconds")
        assert first == second


def test_it_imports_nothing_of_kubewright() -> None:
    code = "import sys, tests.conformance.validator; print([m for m in sys.modules if m.startswith('kubewright')])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]"


class Plan:
    """A small valid plan with something of everything: two new nodes in one zone each, and two existing nodes."""

    def __init__(self) -> None:
        asked, _ = problem(0, without=[])
        self.asked: J = {k: copy.deepcopy(v) for k, v in asked.items() if k in ("wellKnownLabels", "minValuesPolicy")}
        self.asked["instanceTypes"] = [_type("small", 2, 4), _type("large", 8, 32), _type("huge", 32, 128)]
        pool = {
            "limits": {"cpu": "100", "nodes": "10"},
            "template": {
                "metadata": {"labels": {"team": "one"}},
                "spec": {
                    "requirements": [one_of(ZONE, *ZONES), {"key": "size", "operator": "Exists", "minValues": 2}],
                    "taints": [{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}],
                },
            },
        }
        self.pool: J = {"kind": "NodePool", "metadata": {"name": "alpha"}, "spec": pool}
        self.pods = {name: _pod(name, app) for name, app in zip(("a", "b", "c", "d", "e", "f"), APPS * 2, strict=True)}
        self.objects: list[J] = [
            {"kind": "Namespace", "metadata": {"name": "default", "labels": {"team": "one"}}},
            self.pool,
            *(_node(f"node-{i}", zone) for i, zone in enumerate(ZONES[:2])),
            {
                "kind": "CSINode",
                "metadata": {"name": "node-0"},
                "spec": {"drivers": [{"name": DRIVER, "allocatable": {"count": 1}}]},
            },
            {"kind": "StorageClass", "metadata": {"name": "zonal"}, "provisioner": DRIVER, "allowedTopologies": _reach("zone-a")},
            {
                "kind": "PersistentVolume",
                "metadata": {"name": "pv"},
                "spec": {"csi": {"driver": DRIVER}, "nodeAffinity": {"required": terms(one_of(ZONE, "zone-a"))}},
            },
            _claim("bound", volumeName="pv"),
            _claim("waiting", storageClassName="zonal"),
            _claim("another", storageClassName="zonal"),
            *self.pods.values(),
            {**_pod("running", "red"), "status": {"phase": "Running"}},
        ]
        self.objects[-1]["spec"]["nodeName"] = "node-0"
        self.asked["objects"] = self.objects
        self.given: J = {
            "newNodes": [_new("zone-a", "a", "b"), _new("zone-b", "c", "d")],
            "existingNodes": [{"name": "node-0", "pods": ["default/e"]}, {"name": "node-1", "pods": ["default/f"]}],
            "errors": {},
        }

    def spec(self, name: str) -> J:
        spec: J = self.pods[name]["spec"]
        return spec

    def requests(self, name: str) -> J:
        requests: J = self.spec(name)["containers"][0]["resources"]["requests"]
        return requests

    def company(self, name: str, side: str, key: str, **labels: str) -> None:
        term = {"topologyKey": key, "labelSelector": {"matchLabels": labels}}
        self.spec(name).setdefault("affinity", {})[side] = {MUST: [term]}

    def spread(self, key: str, *names: str, **more: object) -> None:
        rule = {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
        for name in names:
            self.spec(name)["topologySpreadConstraints"] = [{**rule, **more}]

    @property
    def new(self) -> list[J]:
        nodes: list[J] = self.given["newNodes"]
        return nodes


def _type(name: str, cpu: int, memory: int) -> J:
    sold = [{"price": cpu, "available": True, "requirements": [one_of(ZONE, z), one_of(CT, "on-demand")]} for z in ZONES]
    reserved = [one_of(ZONE, "zone-a"), one_of(CT, "reserved"), one_of("karpenter.test.sh/reservation-id", "r-1")]
    sold.append({"price": 0.0, "available": True, "reservationCapacity": 1, "requirements": reserved})
    wanted = [one_of("node.kubernetes.io/instance-type", name), one_of(ZONE, *ZONES), one_of("size", name)]
    capacity = {"cpu": str(cpu), "memory": f"{memory}Gi", "pods": "20", "hugepages-2Mi": "1Gi"}
    return {"name": name, "requirements": wanted, "capacity": capacity, "offerings": sold, "attachLimits": {DRIVER: 1}}


def _pod(name: str, app: str) -> J:
    requests = {"cpu": "500m", "memory": "512Mi"}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": app}, "uid": name},
        "spec": {
            "containers": [{"name": "m", "resources": {"requests": requests}}],
            "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        },
        "status": {"phase": "Pending", "conditions": [UNSCHEDULABLE]},
    }


def _node(name: str, zone: str) -> J:
    room = {"cpu": "4", "memory": "16Gi", "pods": "10"}
    labels = {ZONE: zone, HOST: name, "karpenter.sh/nodepool": "alpha", "size": "medium"}
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"providerID": name},
        "status": {"capacity": room, "allocatable": room},
    }


def _new(zone: str, *pods: str) -> J:
    requirements = {ZONE: ["In", zone], CT: ["In", "on-demand"], "size": ["Exists"]}
    return {
        "nodePool": "alpha",
        "pods": [f"default/{p}" for p in pods],
        "instanceTypes": ["small", "large"],
        "requirements": requirements,
    }


def _claim(name: str, **spec: str) -> J:
    return {"kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def _reach(*zones: str) -> list[J]:
    return [{"matchLabelExpressions": [{"key": ZONE, "values": list(zones)}]}]


def _mount(claim: str) -> list[J]:
    return [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]


def _daemon(**spec: object) -> J:
    requests = {"requests": {"memory": "3Gi"}}
    body = {"tolerations": [{"operator": "Exists"}], "containers": [{"name": "d", "resources": requests}], **spec}
    template = {"metadata": {"labels": {"d": "agent"}}, "spec": body}
    return {"kind": "DaemonSet", "metadata": {"name": "agent", "namespace": "default"}, "spec": {"template": template}}


def too_much_cpu(plan: Plan) -> None:
    plan.requests("a")["cpu"] = "1600m"


def too_much_for_the_smaller_of_two_types(plan: Plan) -> None:
    plan.requests("a")["memory"] = "3.9Gi"


def a_resource_that_no_type_has(plan: Plan) -> None:
    plan.requests("a")["example.com/fpga"] = "1"


def too_many_pods(plan: Plan) -> None:
    plan.asked["instanceTypes"][0]["capacity"]["pods"] = "1"


def huge_pages_are_taken_from_memory(plan: Plan) -> None:
    plan.requests("a")["memory"] = plan.requests("b")["memory"] = "1600Mi"


def an_init_container_that_is_larger(plan: Plan) -> None:
    plan.spec("a")["initContainers"] = [{"name": "i", "resources": {"requests": {"cpu": "1700m"}}}]


def a_sidecar_beside_an_init_container(plan: Plan) -> None:
    side = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "800m"}}}
    plan.spec("a")["initContainers"] = [side, {"name": "i", "resources": {"requests": {"cpu": "900m"}}}]


def resources_of_the_whole_pod(plan: Plan) -> None:
    plan.spec("a")["resources"] = {"requests": {"cpu": "1900m"}}


def overhead_of_a_runtime_class(plan: Plan) -> None:
    plan.spec("a")["overhead"] = {"cpu": "1500m"}


def a_running_pod_that_is_being_resized(plan: Plan) -> None:
    held = {"cpu": "3800m"}
    status = {"name": "m", "resources": {"requests": held}, "allocatedResources": held}
    plan.objects[-1]["status"]["containerStatuses"] = [status]


def a_daemon_that_takes_the_room(plan: Plan) -> None:
    plan.objects.append(_daemon())


def a_taint_of_the_pool(plan: Plan) -> None:
    plan.pool["spec"]["template"]["spec"]["taints"].append({"key": "other", "effect": "NoExecute"})


def a_taint_of_an_existing_node(plan: Plan) -> None:
    plan.objects[2]["spec"]["taints"] = [{"key": "other", "value": "x", "effect": "NoSchedule"}]


def another_value_of_the_taint(plan: Plan) -> None:
    plan.spec("a")["tolerations"] = [{"key": "dedicated", "value": "web", "effect": "NoSchedule"}]


def a_node_selector(plan: Plan) -> None:
    plan.spec("a")["nodeSelector"] = {ZONE: "zone-b"}


def a_node_selector_on_a_label_left_open(plan: Plan) -> None:
    plan.spec("a")["nodeSelector"] = {"size": "small"}


def a_required_affinity(plan: Plan) -> None:
    plan.spec("a")["affinity"] = {"nodeAffinity": {MUST: terms(one_of(ZONE, "zone-b"), one_of("team", "two"))}}


def a_number_that_is_too_small(plan: Plan) -> None:
    plan.spec("e")["affinity"] = {"nodeAffinity": {MUST: terms({"key": "cpus", "operator": "Gt", "values": ["4"]})}}


def a_host_port_twice(plan: Plan) -> None:
    plan.spec("a")["containers"][0]["ports"] = [{"hostPort": 80, "hostIP": "10.0.0.1"}]
    plan.spec("b")["containers"][0]["ports"] = [{"hostPort": 80}]


def a_volume_in_another_zone(plan: Plan) -> None:
    plan.spec("c")["volumes"] = _mount("bound")


def a_storage_class_that_does_not_reach(plan: Plan) -> None:
    plan.spec("c")["volumes"] = _mount("waiting")


def a_claim_that_does_not_exist(plan: Plan) -> None:
    plan.spec("a")["volumes"] = _mount("none")


def an_ephemeral_claim_that_does_not_exist(plan: Plan) -> None:
    plan.spec("a")["volumes"] = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]


def too_many_volumes_on_an_existing_node(plan: Plan) -> None:
    plan.spec("e")["volumes"] = _mount("waiting")
    plan.objects[-1]["spec"]["volumes"] = _mount("bound")


def too_many_volumes_on_a_new_node(plan: Plan) -> None:
    plan.spec("a")["volumes"] = _mount("waiting")
    plan.spec("b")["volumes"] = _mount("another")


def anti_affinity_by_host(plan: Plan) -> None:
    plan.company("a", "podAntiAffinity", HOST, app="green")


def anti_affinity_by_zone(plan: Plan) -> None:
    plan.company("c", "podAntiAffinity", ZONE, app="blue")


def anti_affinity_of_a_running_pod(plan: Plan) -> None:
    plan.objects[-1]["spec"]["affinity"] = {
        "podAntiAffinity": {MUST: [{"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "green"}}}]}
    }


def anti_affinity_in_all_namespaces(plan: Plan) -> None:
    plan.company("a", "podAntiAffinity", HOST, app="green")
    plan.spec("a")["affinity"]["podAntiAffinity"][MUST][0]["namespaceSelector"] = {"matchLabels": {"team": "one"}}


def anti_affinity_to_a_daemon(plan: Plan) -> None:
    daemon = _daemon()
    daemon["spec"]["template"]["spec"]["containers"][0]["resources"] = {}
    plan.objects.append(daemon)
    plan.company("a", "podAntiAffinity", HOST, d="agent")


def nobody_to_follow(plan: Plan) -> None:
    plan.company("a", "podAffinity", HOST, app="nobody")


def followed_elsewhere(plan: Plan) -> None:
    plan.company("d", "podAffinity", ZONE, app="green")
    plan.given["newNodes"][0]["pods"].remove("default/b")
    plan.given["existingNodes"][1]["pods"].remove("default/f")
    plan.given["existingNodes"][0]["pods"].append("default/b")


def out_of_balance(plan: Plan) -> None:
    plan.spread(ZONE, "a", "b", "c", "d", "e", "f")
    plan.new[0]["pods"] += ["default/d"]
    plan.new[1]["pods"].remove("default/d")


def too_few_domains(plan: Plan) -> None:
    plan.spread(ZONE, "a", "b", minDomains=3, labelSelector={"matchLabels": {"app": "red"}})
    plan.pods["b"]["metadata"]["labels"]["app"] = "red"


def a_spread_over_a_label_left_open(plan: Plan) -> None:
    plan.spread("size", "a")


def the_default_spread_of_the_cluster(plan: Plan) -> None:
    plan.asked["defaultConstraints"] = [{"topologyKey": HOST, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]
    owner = {"kind": "ReplicaSet", "name": "set", "controller": True}
    for name in ("a", "b"):
        plan.pods[name]["metadata"]["ownerReferences"] = [owner]
        plan.pods[name]["metadata"]["labels"] = {"app": "mine"}
    selector = {"matchLabels": {"app": "mine"}}
    plan.objects.append(
        {"kind": "ReplicaSet", "metadata": {"name": "set", "namespace": "default"}, "spec": {"selector": selector}}
    )


def placed_twice(plan: Plan) -> None:
    plan.new.append(copy.deepcopy(plan.new[0]))


def placed_on_two_nodes(plan: Plan) -> None:
    plan.given["existingNodes"][0]["pods"].append("default/a")


def a_pod_that_nobody_knows(plan: Plan) -> None:
    plan.new[0]["pods"].append("default/nobody")


def a_pod_that_runs_already(plan: Plan) -> None:
    plan.new[0]["pods"].append("default/running")


def a_pod_that_is_nominated(plan: Plan) -> None:
    plan.pods["a"]["status"]["nominatedNodeName"] = "node-0"


def a_pod_that_is_gated(plan: Plan) -> None:
    plan.pods["a"]["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]


def a_pod_of_a_daemon_set(plan: Plan) -> None:
    plan.pods["a"]["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": "d"}]


def no_type_at_all(plan: Plan) -> None:
    plan.new[0]["instanceTypes"] = []


def a_type_that_is_not_for_sale(plan: Plan) -> None:
    for kind in plan.asked["instanceTypes"]:
        kind["offerings"] = [{**o, "available": False} for o in kind["offerings"]]


def a_node_that_nobody_knows(plan: Plan) -> None:
    plan.given["existingNodes"][0]["name"] = "node-9"


def a_node_that_is_going_away(plan: Plan) -> None:
    plan.objects[2]["metadata"]["deletionTimestamp"] = "2025-12-31T00:00:00Z"


def a_pool_that_nobody_knows(plan: Plan) -> None:
    plan.new[0]["nodePool"] = "beta"


def a_static_pool(plan: Plan) -> None:
    plan.pool["spec"]["replicas"] = 2


def too_few_types_for_min_values(plan: Plan) -> None:
    plan.new[0]["instanceTypes"] = ["large"]


def over_the_limit_of_cpu(plan: Plan) -> None:
    plan.pool["spec"]["limits"]["cpu"] = "23"


def over_the_limit_of_nodes(plan: Plan) -> None:
    plan.pool["spec"]["limits"]["nodes"] = "3"


def outside_of_the_pool(plan: Plan) -> None:
    plan.pool["spec"]["template"]["spec"]["requirements"][0]["values"] = ["zone-a"]


def more_than_is_reserved(plan: Plan) -> None:
    for node in plan.new:
        node["requirements"] |= {CT: ["In", "reserved"], ZONE: ["In", "zone-a"]}


MUTATIONS: tuple[Callable[[Plan], None], ...] = (
    too_much_cpu,
    too_much_for_the_smaller_of_two_types,
    a_resource_that_no_type_has,
    too_many_pods,
    huge_pages_are_taken_from_memory,
    an_init_container_that_is_larger,
    a_sidecar_beside_an_init_container,
    resources_of_the_whole_pod,
    overhead_of_a_runtime_class,
    a_running_pod_that_is_being_resized,
    a_daemon_that_takes_the_room,
    a_taint_of_the_pool,
    a_taint_of_an_existing_node,
    another_value_of_the_taint,
    a_node_selector,
    a_node_selector_on_a_label_left_open,
    a_required_affinity,
    a_number_that_is_too_small,
    a_host_port_twice,
    a_volume_in_another_zone,
    a_storage_class_that_does_not_reach,
    a_claim_that_does_not_exist,
    an_ephemeral_claim_that_does_not_exist,
    too_many_volumes_on_an_existing_node,
    too_many_volumes_on_a_new_node,
    anti_affinity_by_host,
    anti_affinity_by_zone,
    anti_affinity_of_a_running_pod,
    anti_affinity_in_all_namespaces,
    anti_affinity_to_a_daemon,
    nobody_to_follow,
    followed_elsewhere,
    out_of_balance,
    too_few_domains,
    a_spread_over_a_label_left_open,
    the_default_spread_of_the_cluster,
    placed_twice,
    placed_on_two_nodes,
    a_pod_that_nobody_knows,
    a_pod_that_runs_already,
    a_pod_that_is_nominated,
    a_pod_that_is_gated,
    a_pod_of_a_daemon_set,
    no_type_at_all,
    a_type_that_is_not_for_sale,
    a_node_that_nobody_knows,
    a_node_that_is_going_away,
    a_pool_that_nobody_knows,
    a_static_pool,
    too_few_types_for_min_values,
    over_the_limit_of_cpu,
    over_the_limit_of_nodes,
    outside_of_the_pool,
    more_than_is_reserved,
)


def test_the_plan_before_it_is_made_wrong_is_valid() -> None:
    plan = Plan()
    assert violations(plan.asked, plan.given) == []
    assert {key_of(p) for p in plan.pods.values()} == {
        p for n in (*plan.given["newNodes"], *plan.given["existingNodes"]) for p in n["pods"]
    }


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda m: m.__name__)
def test_a_valid_plan_made_wrong_is_refused(mutate: Callable[[Plan], None]) -> None:
    plan = Plan()
    mutate(plan)
    assert violations(plan.asked, plan.given)
