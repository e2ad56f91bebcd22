"""Paimon's own Python client, unmodified, on a served Keyfold (docs/paimon-clients.md).

It cannot be installed beside the service (tests/acceptance/paimon_client/requirements.txt), so that what is checked
runs in an environment of its own: all files there are one test here, for to load the client takes longer than each.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from app.catalog.database import CatalogDatabase
from app.core.access import Role
from app.services.access.tokens import create_token
from app.settings import Settings
from tests.environments import made_by_make
from tests.service import Client, serving

ROOT = Path(__file__).parents[2]
CHECKS = Path(__file__).parent / "paimon_client"
OF_TOKENS = CHECKS / "check_tokens.py"
DOCUMENT = ROOT / "docs" / "paimon-clients.md"
FIELDS = [{"name": "id", "type": "INT"}, {"name": "name", "type": "STRING"}]
SCHEMA = {"fields": FIELDS, "primaryKeys": ["id"]}


@pytest.fixture(scope="session")
def paimon_python() -> Path:
    """The interpreter that has the client; it is installed first where it is not."""
    return made_by_make(".venv-paimon/.installed").parent / "bin" / "python"


def checked(python: Path, *files: Path, **environment: str) -> None:
    """Runs the tests of ``files`` in the client's environment; what fails there is told here."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    ended = subprocess.run(
        [python, "-m", "pytest", "-c", CHECKS / "pytest.ini", "--confcutdir", CHECKS, *files],
        cwd=CHECKS,
        env=inherited | environment | {"PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout


def test_the_documented_client_prints_what_is_documented(paimon_python: Path, client: Client) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    text = "".join(blocks).replace("http://127.0.0.1:8080", str(client.base_url).rstrip("/"))
    ended = subprocess.run([paimon_python, "-c", text], capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == re.findall(r"^# (.*)$", text, re.MULTILINE)


def test_the_client_does_what_each_check_says(paimon_python: Path, client: Client) -> None:
    checked(paimon_python, *sorted({*CHECKS.glob("check_*.py")} - {OF_TOKENS}), KEYFOLD_URL=str(client.base_url))


def test_the_client_is_reported_what_its_token_is_not_for(paimon_python: Path, tmp_path: Path) -> None:
    database = CatalogDatabase(Settings(KEYFOLD_DATA=tmp_path).catalog_url)
    database.migrate()
    boss, reader = create_token(database, "boss"), create_token(database, "reader", Role.READ, ["shop.*"])
    database.close()
    with serving(tmp_path, workers="0") as (service, client):
        client.headers["Authorization"] = f"Bearer {boss}"
        for name in ("shop", "hidden"):
            client.create_database(name)
            client.create_table(name, "orders", SCHEMA).raise_for_status()
        checked(paimon_python, OF_TOKENS, KEYFOLD_URL=service.url, KEYFOLD_TOKEN=reader)
