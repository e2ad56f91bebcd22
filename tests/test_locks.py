"""The lock files name all that the project needs: what an image installs is what a checkout installs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def names_in(requirements: list[str]) -> set[str]:
    found = (re.match(r"[\w.-]+", line) for line in requirements if not line.startswith(("#", " ")))
    return {re.sub(r"[-_.]+", "-", one[0]).lower() for one in found if one and one[0] != "keyfold"}


@pytest.mark.parametrize(
    ("lock", "extras"),
    [("requirements.lock", ("spark", "otlp", "docs", "dev")), ("requirements-serve.lock", ("spark",))],
)
def test_a_lock_names_every_requirement(lock: str, extras: tuple[str, ...]) -> None:
    needed = [*PROJECT["dependencies"], *(one for extra in extras for one in EXTRAS[extra])]
    assert names_in(needed) - names_in((ROOT / lock).read_text().splitlines()) == set()
