"""Manifests that are wrong in one way each: the answer names the file, the line, the field, and what to write instead."""

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubewright.api import customs, manifests, olds
from kubewright.api.findings import Finding
from kubewright.errors import ManifestError

BROKEN = Path(__file__).parent / "broken"

EXPECTED: list[tuple[str, str, str | None]] = [
    # file, field, lines to write (None: words must do)
    ("weight-as-text", "spec.weight", "weight: 10"),
    ("weight-too-large", "spec.weight", "weight: 100"),
    ("misspelt-field", "spec.wieght", "weight: 10"),
    ("misplaced-field", "spec.taints", "template:\n        spec:\n          taints:"),
    ("unknown-field", "spec.template.spec.colour", None),
    ("bad-quantity", "spec.limits.memory", "memory: 1000G"),
    ("negative-limit", "spec.limits.cpu", "cpu: '10'"),
    ("unreadable-limit", "spec.limits.cpu", "cpu: '1'"),
    ("limit-as-fraction", "spec.limits.cpu", "cpu: 1500m"),
    ("bad-enum", "spec.disruption.consolidationPolicy", "consolidationPolicy: WhenEmpty"),
    ("bad-operator", "spec.template.spec.requirements[0].operator", "operator: "),
    ("bad-duration", "spec.template.spec.expireAfter", "expireAfter: 720h"),
    ("bad-schedule", "spec.disruption.budgets[0].schedule", "schedule: 0 9 * * mon-fri"),
    ("budget-without-duration", "spec.disruption.budgets", "duration: 8h"),
    ("contradiction-in-notin", "spec.template.spec.requirements[1]", "operator: Exists"),
    ("contradiction-bounds", "spec.template.spec.requirements[1]", "operator: Exists"),
    ("contradiction-exists", "spec.template.spec.requirements[1]", "operator: Exists"),
    ("contradiction-label", "spec.template.spec.requirements[0]", "operator: Exists"),
    ("restricted-label", "spec.template.spec.requirements[0].key", None),
    ("gt-without-number", "spec.template.spec.requirements", "values:\n                - '1'"),
    ("duplicate-taint", "spec.template", None),
    ("no-node-class", "spec.template.spec.nodeClassRef", "name: default"),
    ("static-with-weight", "spec", None),
    ("wrong-version", "apiVersion", "apiVersion: karpenter.sh/v1"),
    ("misspelt-kind", "kind", "kind: NodePool"),
    ("no-name", "metadata.name", "name: my-nodepool"),
    ("bad-name", "metadata.name", "name: my-pool"),
    ("class-without-role", "spec", "role: KarpenterNodeRole-my-cluster"),
    ("class-bad-alias", "spec.amiSelectorTerms[0].alias", "alias: al2023@latest"),
    ("class-subnet-as-text", "spec.subnetSelectorTerms[0]", None),
    ("class-volume-size", "spec.blockDeviceMappings[0].ebs.volumeSize", "volumeSize: 100Gi"),
    ("class-kubelet-key", "spec.kubelet.kubeReserved", "cpu: 100m"),
    ("deployment-replicas", "spec.replicas", "replicas: 1"),
    ("deployment-selector", "spec.selector", "app: web"),
    ("deployment-typo", "spec.template.spec.containers[0].imagePullPolice", "imagePullPolicy: Always"),
    ("deployment-quantity", "spec.template.spec.containers[0].resources.requests.memory", "memory: 512M"),
    ("deployment-over-limit", "spec.template.spec.containers[0].resources.requests.cpu", "cpu: '1'"),
    ("deployment-label", "spec.template.metadata.labels.tier", "tier: front-end"),
    ("deployment-toleration", "spec.template.spec.tolerations[0].operator", "operator: Equal"),
    ("deployment-label-number", "spec.template.metadata.labels.version", "version: '2'"),
    ("pdb-both", "spec.maxUnavailable", "minAvailable: 1"),
    ("job-restart", "spec.template.spec.restartPolicy", "restartPolicy: OnFailure"),
    ("written-twice", "spec.weight", None),
    ("not-yaml", "", None),
    ("old-expire-after", "spec.disruption.expireAfter", "spec:\n      template:\n        spec:\n          expireAfter: 360h"),
    ("old-when-underutilized", "spec.disruption.consolidationPolicy", "consolidationPolicy: WhenEmptyOrUnderutilized"),
    ("old-kubelet", "spec.template.spec.kubelet", "kind: EC2NodeClass\n    spec:\n      kubelet:\n        maxPods: 20"),
    ("old-class-reference", "spec.template.spec.nodeClassRef.apiVersion", "group: karpenter.k8s.aws"),
    ("old-reference-name-only", "spec.template.spec.nodeClassRef", "group: karpenter.k8s.aws"),
    ("old-v1beta1-pool", "apiVersion", "apiVersion: karpenter.sh/v1"),
    ("old-ttl-after-empty", "spec.ttlSecondsAfterEmpty", "consolidationPolicy: WhenEmpty\n        consolidateAfter: 30s"),
    ("old-ttl-until-expired", "spec.ttlSecondsUntilExpired", "expireAfter: 720h"),
    ("old-provisioner", "kind", "kind: NodePool"),
    ("old-node-template", "kind", "kind: EC2NodeClass"),
    ("old-machine", "kind", "kind: NodeClaim"),
    ("old-no-ami-terms", "spec.amiSelectorTerms", "alias: bottlerocket@latest"),
    ("old-al2-alias", "spec.amiSelectorTerms[0].alias", "alias: al2023@latest"),
    ("old-al2-family", "spec.amiFamily", "amiFamily: AL2023"),
    ("old-annotation", "spec.template.metadata.annotations.karpenter.sh/do-not-evict", "karpenter.sh/do-not-disrupt: 'true'"),
    ("old-node-selector", "spec.template.spec.nodeSelector.karpenter.sh/provisioner-name", "karpenter.sh/nodepool: default"),
]


def problems(*names: str) -> tuple[str, ...]:
    with pytest.raises(ManifestError) as caught:
        manifests.load([BROKEN / f"{name}.yaml" for name in names])
    return caught.value.problems


def test_every_broken_file_is_expected_to_be() -> None:
    assert {path.stem for path in BROKEN.iterdir()} == {name for name, _, _ in EXPECTED}


@pytest.mark.parametrize(("name", "field", "mend"), EXPECTED)
def test_a_broken_manifest_is_answered_by_file_field_and_mend(name: str, field: str, mend: str | None) -> None:
    found = problems(name)
    text = (BROKEN / f"{name}.yaml").read_text(encoding="utf-8")
    named = [p for p in found if re.match(rf"{re.escape(str(BROKEN / name))}\.yaml:\d+: ", p) and f" {field}" in p]
    assert named, found
    line = int(named[0].split(":")[1])
    assert 1 <= line <= text.count("\n") + 1
    if mend is not None:
        assert any(mend in p.split("; write\n", 1)[-1] for p in named if "; write\n" in p), named


@pytest.mark.parametrize("name", [name for name, _, mend in EXPECTED if mend is not None])
def test_what_is_to_be_written_is_yaml(name: str) -> None:
    for problem in problems(name):
        if "; write\n" in problem:
            assert isinstance(yaml.safe_load(problem.split("; write\n", 1)[1]), dict)


@pytest.mark.parametrize("name", [name for name, _, _ in EXPECTED if name.startswith("old-")])
def test_an_old_manifest_once_mended_is_good(name: str) -> None:
    document = yaml.safe_load((BROKEN / f"{name}.yaml").read_text(encoding="utf-8"))
    mended, found = olds.mend(document)
    if (mended["apiVersion"], mended["kind"]) in customs.KINDS:
        assert found
        assert manifests.check(mended) == []


def test_the_line_is_that_of_the_field() -> None:
    (found,) = problems("weight-too-large")
    assert found.startswith(f'{BROKEN / "weight-too-large.yaml"}:6: NodePool "default": spec.weight: found 1000')


def test_all_problems_of_all_files_are_told_at_once() -> None:
    separately = [p for name, _, _ in EXPECTED for p in problems(name)]
    together = problems(*(name for name, _, _ in EXPECTED))
    assert set(separately) <= set(together)


def test_nothing_is_loaded_when_anything_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: good}\n", encoding="utf-8")
    assert [m.object["metadata"]["name"] for m in manifests.load([tmp_path])] == ["good"]
    (tmp_path / "b.yaml").write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: BAD}\n", encoding="utf-8")
    with pytest.raises(ManifestError):
        manifests.load([tmp_path])


def applied(document: dict[str, Any], finding: Finding) -> dict[str, Any]:
    """What somebody does who is told this: takes out what was found and writes the lines."""
    steps: list[str | int] = [int(n) if n else name for name, n in re.findall(r"([^.\[\]]+)|\[(\d+)\]", finding.field)]
    changed = copy.deepcopy(document)
    if "valid keys" in finding.says or customs.value_at(finding.mend, re.sub(r"\[\d+\]", "[0]", finding.field)) is None:
        remove(changed, finding.field)
    mended: dict[str, Any] = merged(changed, finding.mend, steps)
    return mended


def remove(value: Any, path: str) -> None:
    """Takes out what stands at the path; a key may have dots in it."""
    if isinstance(value, list):
        index, _, rest = path.removeprefix("[").partition("]")
        remove(value[int(index)], rest.removeprefix("."))
    for key in list(value) if isinstance(value, dict) else ():
        if path == key:
            del value[key]
        elif path.startswith((key + ".", key + "[")):
            remove(value[key], path[len(key) :].removeprefix("."))


def merged(value: Any, mend: Any, steps: list[str | int]) -> Any:
    step = steps[0] if steps else None
    if isinstance(value, dict) and isinstance(mend, dict):
        return value | {k: merged(value.get(k), v, steps[1:] if k == step else []) for k, v in mend.items()}
    if isinstance(value, list) and isinstance(mend, list) and isinstance(step, int):
        return [*value[:step], merged(value[step] if len(steps) > 1 else None, mend[0], steps[1:]), *value[step + 1 :]]
    return mend


@pytest.mark.parametrize("name", [name for name, _, mend in EXPECTED if mend is not None])
def test_who_does_what_is_told_has_a_good_manifest(name: str) -> None:
    document = yaml.safe_load((BROKEN / f"{name}.yaml").read_text(encoding="utf-8"))
    found = manifests.check(document)
    for finding in found:
        elsewhere = isinstance(finding.mend, dict) and finding.mend.get("kind") not in (None, document["kind"])
        if finding.mend is None or (elsewhere and finding.field not in ("kind", "apiVersion")):
            remove(document, finding.field)
        elif finding.field == "apiVersion" and "spec" in finding.mend:
            document = finding.mend
            break
        else:
            document = applied(document, finding)
    assert manifests.check(document) == []
