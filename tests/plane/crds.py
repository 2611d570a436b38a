"""Karpenter's own CustomResourceDefinitions, found in its Go modules at run time and never copied into this repository."""

import subprocess
from functools import lru_cache
from pathlib import Path

from tests.plane.binaries import ROOT, BuildFailed, require_go

_KARPENTER = ("golang/karpenter", "sigs.k8s.io/karpenter")
_KARPENTER_AWS = ("golang/karpenter-aws", "github.com/aws/karpenter-provider-aws")


def core() -> list[Path]:
    """NodePool, NodeClaim, NodeOverlay and CapacityBuffer, as files.

    Raises:
        BuildFailed: there is no Go, or the module cannot be fetched.
    """
    return _files(_folder(*_KARPENTER) / "pkg/apis/crds")


def kwok() -> list[Path]:
    """KWOKNodeClass, as a file. Raises BuildFailed as `core` does."""
    return _files(_folder(*_KARPENTER) / "kwok/apis/crds")


def kwok_instance_types() -> Path:
    """What Karpenter's kwok provider sells unless it is told otherwise. Raises BuildFailed as `core` does."""
    return _folder(*_KARPENTER) / "kwok/cloudprovider/instance_types.json"


def aws() -> list[Path]:
    """EC2NodeClass, as a file. The AWS module also carries copies of the core kinds, which are left out.

    Raises BuildFailed as `core` does.
    """
    return [file for file in _files(_folder(*_KARPENTER_AWS) / "pkg/apis/crds") if file.name.startswith("karpenter.k8s.aws_")]


def _files(folder: Path) -> list[Path]:
    files = sorted(folder.glob("*.yaml"))
    if not files:
        raise BuildFailed(f"no CustomResourceDefinition in {folder}: the module is not laid out as expected")
    return files


@lru_cache
def _folder(within: str, module: str) -> Path:
    """Where `module` lies, in the version that `within`/go.mod names, checked against its go.sum."""
    _go(within, "mod", "download", module)
    return Path(_go(within, "list", "-m", "-f", "{{.Dir}}", module).strip())


def _go(within: str, *arguments: str) -> str:
    go = require_go("find Karpenter's CustomResourceDefinitions")
    done = subprocess.run([go, *arguments], cwd=ROOT / within, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildFailed(f"go {' '.join(arguments)} in {within} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout
