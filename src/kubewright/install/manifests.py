"""The installation as plain YAML, for those without Helm.

What Helm would make of the chart `charts/kubewright` lies beside this module, rendered by `python -m tools.charts` with the
names below in the places of what people choose. Nothing of it is written twice: a test renders the chart again and compares.
"""

import functools
from collections.abc import Mapping
from importlib import resources
from typing import Any

import yaml

from kubewright.errors import ConfigError

NAMESPACE, CLUSTER, IMAGE = "namespace-of-kubewright", "name-of-the-cluster", "image-of-kubewright"
"""What stands in the rendered files for what people choose."""
CLOUDS = ("aws", "other")


class PlainDumper(yaml.SafeDumper):
    """YAML without anchors, which people find hard to read."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is PyYAML's
        return True


@functools.cache
def rendered(cloud: str) -> list[dict[str, Any]]:
    """The objects for one of `CLOUDS`, still with the stand-ins. Shared; do not change."""
    text = resources.files("kubewright.install").joinpath("manifests", f"{cloud}.yaml").read_text(encoding="utf-8")
    return list(yaml.safe_load_all(text))


def manifests(
    *,
    namespace: str,
    cluster_name: str,
    image: str,
    cloud: str = "aws",
    replicas: int = 2,
    environment: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Every object of an installation, in the order in which they can be applied.

    `cloud` is aws or the name of a third-party provider. `environment` adds or replaces variables of the container; "" takes one
    away. The custom resource definitions are not among them: see `api.crds`.

    Raises:
        ConfigError: the cluster has no name, and the AWS provider needs one.
    """
    if cloud == "aws" and not cluster_name:
        raise ConfigError(
            "--cluster-name: found nothing; the AWS provider needs the name of the cluster, for instance my-cluster"
        )
    chosen = {NAMESPACE: namespace, CLUSTER: cluster_name, IMAGE: image}
    objects = [_replaced(one, chosen) for one in rendered("aws" if cloud == "aws" else "other")]
    changes = {"KUBEWRIGHT_CLOUD": cloud, "CLUSTER_NAME": cluster_name, **(environment or {})}
    for one in objects:
        if one["kind"] == "Deployment":
            one["spec"]["replicas"] = replicas
            container = one["spec"]["template"]["spec"]["containers"][0]
            container["env"] = _changed(container["env"], changes)
    return objects


def show(objects: list[dict[str, Any]]) -> str:
    """The objects as one YAML stream, the same bytes every time."""
    return "".join("---\n" + yaml.dump(one, Dumper=PlainDumper, sort_keys=False, width=120) for one in objects)


def _replaced(node: Any, chosen: Mapping[str, str]) -> Any:
    match node:
        case dict():
            return {key: _replaced(value, chosen) for key, value in node.items()}
        case list():
            return [_replaced(value, chosen) for value in node]
        case str():
            return chosen.get(node, node)
        case _:
            return node


def _changed(variables: list[dict[str, Any]], changes: Mapping[str, str]) -> list[dict[str, Any]]:
    kept = [one for one in variables if one["name"] not in changes]
    return kept + [{"name": name, "value": value} for name, value in sorted(changes.items()) if value]
