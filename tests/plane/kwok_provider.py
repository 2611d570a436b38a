"""The example of a third-party provider, found as an installed package would be: by its entry point."""

import tomllib
from pathlib import Path

from tests.plane.binaries import ROOT

EXAMPLE = ROOT / "examples" / "kwok"


def python_path(folder: Path) -> str:
    """A PYTHONPATH on which kubewright and the example are installed; `folder` gets what an installation would write.

    Nothing is built or downloaded: the entry points are those of the example's pyproject.toml.
    """
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n", encoding="utf-8"
    )
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return f"{ROOT / 'src'}:{EXAMPLE / 'src'}:{folder}"
