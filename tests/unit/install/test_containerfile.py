"""The Containerfile, read and not built: small, wheels only, not root, and nothing it copies is missing."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
LINES = (ROOT / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
STEPS = [tuple(line.split(None, 1)) for line in LINES if line.strip() and not line.startswith("#")]
FIRST_OF_LAST = max(i for i, (word, _) in enumerate(STEPS) if word == "FROM")


def test_what_it_copies_is_there():
    for word, rest in STEPS:
        if word == "COPY" and "--from=" not in rest:
            assert (ROOT / rest.split()[0]).exists(), rest


def test_nothing_is_compiled_or_installed_by_a_system_package_manager_and_every_wheel_is_pinned():
    text = " ".join(rest for _, rest in STEPS)
    assert not re.search(r"\b(apt|apt-get|apk|dnf|gcc|make|build-essential)\b", text)
    (pip,) = [rest for word, rest in STEPS if word == "RUN" and " install " in rest]
    assert "--require-hashes" in pip
    assert "--only-binary :all:" in pip


def test_the_image_runs_as_nobody_in_particular_and_writes_nothing():
    last = STEPS[FIRST_OF_LAST:]
    assert ("USER", "65532:65532") in last
    assert not [step for step in last if step[0] == "RUN"], "the image itself is only copied together"
    assert any(word == "ENV" and "PYTHONDONTWRITEBYTECODE=1" in rest for word, rest in last)
    assert last[-2:] == [("ENTRYPOINT", '["python", "-m", "kubewright"]'), ("CMD", '["run"]')]


def test_what_it_installs_is_what_the_package_needs_and_not_the_tools_of_its_makers():
    locked = {
        m[1].lower() for m in re.finditer(r"^([A-Za-z0-9_.-]+)==", (ROOT / "requirements/aws.txt").read_text(), re.MULTILINE)
    }
    assert {"aiohttp", "boto3", "msgspec", "structlog"} <= locked
    assert not {"pytest", "mypy", "ruff", "hypothesis"} & locked
