"""The command line, called as from a shell but in this process."""

from pathlib import Path

import msgspec
import pytest

from kubewright.cli.main import main


class Done(msgspec.Struct, frozen=True):
    code: int
    out: str
    err: str


class Shell:
    def __init__(self, captured: pytest.CaptureFixture[str]) -> None:
        self._captured = captured

    def __call__(self, *arguments: str | Path) -> Done:
        with pytest.raises(SystemExit) as end:
            main([str(a) for a in arguments])
        told = self._captured.readouterr()
        assert isinstance(end.value.code, int)
        assert "Traceback" not in told.err
        return Done(end.value.code, told.out, told.err)


NODE_CLASS = """
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  role: KarpenterNodeRole-sandbox
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: sandbox}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: sandbox}}]
"""
POOL = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: [{key: kubernetes.io/arch, operator: In, values: [amd64]}]
"""
WEB = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: app, image: "registry.invalid/web:1", resources: {requests: {cpu: "1"}}}]
"""


def scenario(*steps: str) -> str:
    lines = "".join(f"\n- {step}" for step in steps)
    return f"apiVersion: sandbox.kubewright.sh/v1\nkind: Scenario\nmetadata: {{name: story}}\nsteps:{lines}\n"


def written(folder: Path, *documents: str) -> Path:
    path = folder / "all.yaml"
    path.write_text("\n---\n".join(documents), encoding="utf-8")
    return path
