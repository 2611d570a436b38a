"""Our reading of Karpenter's CRDs against a real API server: with Karpenter's own CRDs, and with the ones we print."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubewright.api import crds, quantity, schema
from tests.parity.api.mutants import EC2_NODE_CLASS, NODE_CLAIM, NODE_POOL, Mutant, Obj, all_mutants
from tests.plane import crds as published
from tests.plane.plane import Plane

pytestmark = pytest.mark.needs_go

KINDS = {
    "NodePool": ("/apis/karpenter.sh/v1/nodepools", "nodepools.karpenter.sh"),
    "NodeClaim": ("/apis/karpenter.sh/v1/nodeclaims", "nodeclaims.karpenter.sh"),
    "EC2NodeClass": ("/apis/karpenter.k8s.aws/v1/ec2nodeclasses", "ec2nodeclasses.karpenter.k8s.aws"),
}


def karpenters_files() -> list[Path]:
    """The AWS provider's copies of the core CRDs (they restrict AWS's label domain) and its own."""
    folder = published.aws()[0].parent
    return sorted(folder.glob("*.yaml"))


@pytest.fixture(scope="module", params=["Karpenter's CRDs", "our CRDs"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    files = karpenters_files()
    if request.param == "our CRDs":
        ours = tmp_path_factory.mktemp("crds") / "crds.yaml"
        ours.write_text(crds.render(), encoding="utf-8")
        files = [ours]
    with Plane(kwok=False) as plane:
        plane.apply(*files)
        for base in (NODE_POOL, NODE_CLAIM, EC2_NODE_CLASS):
            plane.create(KINDS[base["kind"]][0], base)
        yield plane


def test_every_mutant_is_accepted_or_refused_alike_and_in_the_same_words(server: Plane) -> None:
    """200 NodePools and NodeClaims and 100 EC2NodeClasses; the answers are compared as sets, since the server's order varies."""
    stored = {kind: server.get(f"{url}/base")["metadata"]["resourceVersion"] for kind, (url, _) in KINDS.items()}
    mutants = all_mutants()
    assert sum(m.new["kind"] != "EC2NodeClass" for m in mutants) == 200
    differ = [(m.name, ours, theirs) for m in mutants if (ours := verdict(m)) != (theirs := answer(server, m, stored))]
    assert differ == []
    accepted = sum(not verdict(m) for m in mutants)
    assert len(mutants) / 10 < accepted < len(mutants) / 2, "the mutants must try both answers"


def test_defaults_are_the_servers(server: Plane) -> None:
    for base in (NODE_POOL, NODE_CLAIM, EC2_NODE_CLASS):
        url, name = KINDS[base["kind"]]
        for spec in (base["spec"], smallest(base)):
            found = server.request(
                "POST", f"{url}?dryRun=All", base | {"metadata": {"name": "new"}, "spec": spec}
            ).body_or_raise()
            assert schema.default_and_prune(base | {"spec": spec}, crds.schema_of(name))["spec"] == found["spec"]


def test_unknown_fields_are_the_servers(server: Plane) -> None:
    obj = NODE_POOL | {"metadata": {"name": "new", "unheard": 1}, "extra": {}, "spec": NODE_POOL["spec"] | {"foo": {"bar": 1}}}
    url, name = KINDS["NodePool"]
    answered = server.request("POST", f"{url}?dryRun=All&fieldValidation=Strict", obj).body
    paths = schema.unknown_fields(obj, crds.schema_of(name))
    assert paths
    for path in paths:
        assert f'unknown field "{path}"' in answered["message"]
    assert answered["message"].count("unknown field") == len(paths)


def test_our_crds_say_the_same_as_karpenters() -> None:
    """Field paths, types, defaults, enums, patterns, bounds, required lists, messages of rules in order, columns, names."""
    compared = 0
    for file in karpenters_files():
        theirs = yaml.safe_load(file.read_text(encoding="utf-8"))
        del theirs["metadata"]["annotations"]
        ours = crds.CRDS[theirs["metadata"]["name"]]
        assert dict(leaves(ours, "")) == dict(leaves(theirs, ""))
        compared += 1
    assert compared == len(crds.CRDS)


def test_quantities_are_read_and_printed_as_the_server_does(server: Plane) -> None:
    chance = random.Random(1)
    suffixes = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E2", "e-4", "e+5"]
    wholes = ["0", "1", "5", "8", "999", "1000", "1024", "00012", "123456", "1000000000", "999999999999999999"]
    signs, fractions = ["", "", "+"], ["", "", ".5", ".001", "."]
    texts = ["".join(map(chance.choice, (signs, wholes, fractions, suffixes))) for _ in range(400)]
    texts += [".", "+", "Gi", "m", ".5", ".5Ei", "e3", " 1Gi "]
    # from 1000E on the server loses the suffix and prints 1: nothing to be equal to
    texts = [text for text in texts if quantity.parse(text) < 10**21 * quantity.ONE]
    # an emptyDir's limit is kept as it is read; amounts in resource lists are rounded up to thousandths besides
    volumes = [{"name": f"v{n}", "emptyDir": {"sizeLimit": text}} for n, text in enumerate(texts)]
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "b"}], "volumes": volumes}}
    found = server.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", pod).body_or_raise()["spec"]["volumes"]
    assert {v["name"]: v["emptyDir"]["sizeLimit"] for v in found if v["name"].startswith("v")} == {
        v["name"]: quantity.canonical(v["emptyDir"]["sizeLimit"]) for v in volumes
    }


@pytest.mark.parametrize("text", ["1e", "1.2.3", "", "0x1", "1K", "1 Gi", "1e+", "1i", "1Ki1", "1m3", "--1", "1Gib", "Ei", ".Pi"])
def test_what_is_no_quantity_to_us_is_none_to_the_server(server: Plane, text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        quantity.parse(text)
    volumes = [{"name": "v", "emptyDir": {"sizeLimit": text}}]
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "b"}], "volumes": volumes}}
    assert server.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", pod).status == 400


def verdict(mutant: Mutant) -> list[str]:
    root = crds.schema_of(KINDS[mutant.new["kind"]][1])
    old = schema.default_and_prune(mutant.old, root) if mutant.old else None
    return sorted({str(p) for p in schema.validate(schema.default_and_prune(mutant.new, root), old, root)})


def answer(server: Plane, mutant: Mutant, stored: dict[str, str]) -> list[str]:
    url = KINDS[mutant.new["kind"]][0]
    if mutant.old is None:
        found = server.request("POST", f"{url}?dryRun=All", mutant.new | {"metadata": {"name": "new"}})
    else:
        meta = {"name": "base", "resourceVersion": stored[mutant.new["kind"]]}
        found = server.request("PUT", f"{url}/base?dryRun=All", mutant.new | {"metadata": meta})
    if found.status < 300:
        return []
    causes = {f"{c['field']}: {c['message']}" for c in (found.body.get("details") or {}).get("causes", [])}
    assert causes, found.body
    # what the scale subresource adds is no business of the schema
    return sorted(c for c in causes if not c.startswith(".spec.replicas: "))


def smallest(base: Obj) -> Obj:
    """A spec with nothing but what is required."""
    if base["kind"] == "EC2NodeClass":
        return {k: v for k, v in base["spec"].items() if k == "role" or k.endswith("SelectorTerms")} | {"blockDeviceMappings": []}
    core = {"nodeClassRef": base["spec"].get("template", base)["spec"]["nodeClassRef"], "requirements": []}
    return {"template": {"spec": core}} if base["kind"] == "NodePool" else core


def leaves(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    """(path, value) of everything but descriptions and the CEL texts, which are ours."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "description" and isinstance(value, str):
                continue
            if key == "x-kubernetes-validations":
                yield f"{path}/rules", [rule["message"] for rule in value]
            elif key == "required":
                yield f"{path}/required", sorted(value)
            else:
                yield from leaves(value, f"{path}/{key}")
    elif isinstance(node, list) and node and isinstance(node[0], dict):
        for index, value in enumerate(node):
            yield from leaves(value, f"{path}/{index}")
    else:
        yield path, node
