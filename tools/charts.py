"""Write what in the charts, and what of them in the package, is made from something else; tests compare.

    python -m tools.charts

charts/kubewright-crd/templates has the definitions of `kubewright.api.crds`, kept when the release goes; the files in
src/kubewright/install/manifests are the chart `charts/kubewright`, rendered by helm (built from its Go module).
"""

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import yaml

from kubewright.api import crds
from kubewright.install import manifests
from tests.plane.binaries import ROOT, ensure

CHARTS = ROOT / "charts"
DEFINITIONS = CHARTS / "kubewright-crd" / "templates"
RENDERED = ROOT / "src" / "kubewright" / "install" / "manifests"
KUBE_VERSION = "1.36.3"
_HELM_ONLY = ("helm.sh/chart", "app.kubernetes.io/managed-by")


def definitions() -> Mapping[str, str]:
    """File name → template of the chart of definitions."""
    found = {}
    for name, crd in sorted(crds.CRDS.items()):
        metadata = {
            **crd["metadata"],
            "annotations": {**crd["metadata"].get("annotations", {}), "helm.sh/resource-policy": "keep"},
        }
        text = yaml.dump({**crd, "metadata": metadata}, Dumper=manifests.PlainDumper, sort_keys=True, width=120)
        keep = "    helm.sh/resource-policy: keep\n"
        more = "    {{- with .Values.additionalAnnotations }}\n    {{- toYaml . | nindent 4 }}\n    {{- end }}\n"
        # Texts in the schemas may hold braces that are not meant for Helm.
        escaped = text.replace("{{", '{{ "{{" }}')
        found[f"{name}.yaml"] = escaped.replace(keep, keep + more, 1)
    return found


def helm(*arguments: str) -> str:
    """What helm prints. Raises CalledProcessError, with what it said, if it refuses."""
    done = subprocess.run([ensure("helm"), *arguments], capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, arguments, done.stdout, done.stderr)
    return done.stdout


def template(chart: str, *arguments: str, namespace: str = "kube-system") -> list[dict[str, Any]]:
    """The objects that helm makes of a chart."""
    text = helm(
        "template", "kubewright", str(CHARTS / chart), f"--namespace={namespace}", f"--kube-version={KUBE_VERSION}", *arguments
    )
    return [one for one in yaml.safe_load_all(text) if one]


def rendered(cloud: str) -> str:
    """The chart for one of `manifests.CLOUDS` with the stand-ins, without what only Helm needs."""
    objects = template(
        "kubewright",
        f"--set=settings.clusterName={manifests.CLUSTER},settings.cloud={cloud}",
        namespace=manifests.NAMESPACE,
    )
    for one in objects:
        for name in _HELM_ONLY:
            one["metadata"]["labels"].pop(name)
        if one["kind"] == "Deployment":
            one["spec"]["template"]["spec"]["containers"][0]["image"] = manifests.IMAGE
    return manifests.show(objects)


def main() -> int:
    for old in DEFINITIONS.glob("*.yaml"):
        old.unlink()
    for name, text in definitions().items():
        (DEFINITIONS / name).write_text(text, encoding="utf-8")
    for cloud in manifests.CLOUDS:
        (RENDERED / f"{cloud}.yaml").write_text(rendered(cloud), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
