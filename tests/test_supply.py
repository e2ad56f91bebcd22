"""What an installation consists of: a list in CycloneDX, and whether a package has a known vulnerability."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.environments import made_by_make

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements-serve.lock"
LINES = [Requirement(line.split(" #")[0]) for line in LOCK.read_text().splitlines() if re.match(r"[a-z]", line)]
LOCKED = {line.name: str(line.specifier)[2:] for line in LINES if line.marker is None or line.marker.evaluate()}
pytestmark = pytest.mark.slow(reason="installs pip-audit and cyclonedx-bom where they are not")


@pytest.fixture(scope="module")
def tools() -> Path:
    return made_by_make(".venv-audit/.installed").parent / "bin"


def test_the_list_has_every_locked_package_in_its_version(tools: Path, tmp_path: Path) -> None:
    listed = tmp_path / "sbom.json"
    # The tool checks what it writes in `make sbom`: that takes it longer than the list.
    make_list = [tools / "cyclonedx-py", "environment", "--no-validate", sys.executable, "--output-file", listed]
    subprocess.run(make_list, check=True)
    components: list[dict[str, Any]] = json.loads(listed.read_text())["components"]
    versions = {re.sub(r"[-_.]+", "-", component["name"]).lower(): component["version"] for component in components}
    assert len(LOCKED) > 50
    assert {name: versions.get(name) for name in LOCKED} == LOCKED


def test_no_locked_package_has_a_known_vulnerability(tools: Path) -> None:
    audit = [tools / "pip-audit", "--requirement", LOCK, "--no-deps", "--disable-pip", "--format", "json"]
    done = subprocess.run(audit, capture_output=True, text=True, check=False)
    if not done.stdout.strip():
        pytest.skip(f"the database of vulnerabilities does not answer: {done.stderr.strip().splitlines()[-1]}")
    packages = json.loads(done.stdout)["dependencies"]
    if all("skip_reason" in package for package in packages):
        pytest.skip(f"the database of vulnerabilities knows none of the packages: {packages[0]['skip_reason']}")
    assert {
        package["name"]: [fault["id"] for fault in package["vulns"]] for package in packages if package.get("vulns")
    } == {}
