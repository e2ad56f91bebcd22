"""Clients that generators make of the OpenAPI documents, type-checked and run against a real service."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.api.openapi import COMMITTED
from tests.service import Client, serving

HERE = Path(__file__).parent
DDL = """CREATE TABLE orders (
  id BIGINT NOT NULL, edited TIMESTAMP(3), status STRING, total BIGINT, PRIMARY KEY (id) NOT ENFORCED
) WITH ('merge-engine' = 'partial-update', 'fields.edited.sequence-group' = 'status',
        'record.absent-columns' = 'unchanged')"""
NO_NETWORK = ("ENOTFOUND", "EAI_AGAIN", "ETIMEDOUT", "ECONNREFUSED", "No matching distribution", "NewConnectionError")
INSTALL_SECONDS, RUN_SECONDS = 300, 120


def run(command: Sequence[str | Path], folder: Path, seconds: int = RUN_SECONDS) -> str:
    """What a command writes; fails with it if the command does."""
    done = subprocess.run(
        [str(one) for one in command],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, f"{command[0]}\n{done.stdout[-6000:]}"
    return done.stdout


def installed(command: Sequence[str | Path], folder: Path) -> None:
    """Runs a command that needs a registry of packages; without one the test is skipped."""
    try:
        run(command, folder, INSTALL_SECONDS)
    except AssertionError as failed:
        if any(sign in str(failed) for sign in NO_NETWORK):
            pytest.skip(f"no registry of packages answers: {str(failed)[-300:]}")
        raise


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, spark_remote: str) -> Iterator[tuple[str, str, Client]]:
    """The URL of a real service, an admin's token, and a client that has it."""
    with serving(tmp_path_factory.mktemp("service"), spark_remote=spark_remote) as (running, client):
        made = client.post("/v1/tokens", json={"name": "admin", "role": "admin", "on": ["*"]}).raise_for_status()
        token = made.json()["token"]
        client.headers["Authorization"] = f"Bearer {token}"
        yield running.url, token, client


def of_a_table(client: Client, database: str, integers: str, target: Path) -> None:
    """Writes the document of a table of the database to ``target``."""
    client.create_database(database)
    path = f"/v1/catalog/databases/{database}/tables"
    client.post(f"{path}:fromDdl", json={"ddl": DDL}).raise_for_status()
    document = client.get(f"{path}/orders/openapi.json", params={"integers": integers}).raise_for_status()
    target.write_bytes(document.content)


def test_the_committed_document_is_what_this_service_answers(service: tuple[str, str, Client]) -> None:
    assert service[2].get("/openapi.json").json() == json.loads(COMMITTED.read_text())


def test_the_python_client_goes_the_whole_way(service: tuple[str, str, Client], tmp_path: Path) -> None:
    """openapi-python-client in an environment of its own, for it wants an older typer than we have."""
    url, token, client = service
    sources = HERE / "python"
    run([sys.executable, "-m", "venv", tmp_path / "generator"], tmp_path)
    binaries = tmp_path / "generator" / "bin"
    installed([binaries / "python", "-m", "pip", "install", "-q", "-r", sources / "requirements.txt"], tmp_path)
    of_a_table(client, "python-typed", "number", tmp_path / "orders.json")
    for document, name in ((COMMITTED, "keyfold_api"), (tmp_path / "orders.json", "orders_client")):
        generate = [binaries / "openapi-python-client", "generate", "--path", document, "--output-path", name]
        run([*generate, "--meta", "none", "--config", sources / "config.yml"], tmp_path)
    programs = ("session.py", "table.py")
    for program in programs:
        shutil.copy(sources / program, tmp_path)
    check = [sys.executable, "-m", "mypy", "--config-file", HERE / "mypy.ini", "--no-incremental"]
    run([*check, *programs], tmp_path)
    for program in programs:
        assert run([sys.executable, program, url, token], tmp_path).endswith("done\n")


@pytest.mark.skipif(shutil.which("npm") is None, reason="there is no npm (of Node 20.19 or newer)")
def test_the_typescript_client_goes_the_whole_way(service: tuple[str, str, Client], tmp_path: Path) -> None:
    """@hey-api/openapi-ts, checked by ``tsc --strict``; ids beyond 2^53 go round without loss."""
    url, token, client = service
    project = tmp_path / "project"
    kept = shutil.ignore_patterns("node_modules")
    shutil.copytree(HERE / "typescript", project, ignore=kept)
    installed(["npm", "ci", "--ignore-scripts"], project)
    of_a_table(client, "typescript-typed", "text", project / "orders.json")
    tools = project / "node_modules" / ".bin"
    for document, name in ((COMMITTED, "generated"), (project / "orders.json", "orders")):
        run([tools / "openapi-ts", "-i", document, "-o", name, "-c", "@hey-api/client-fetch"], project)
    run([tools / "tsc", "-p", "."], project)
    for program in ("session.js", "table.js"):
        assert run(["node", f"built/{program}", url, token], project).endswith("done\n")


def test_the_lock_names_no_registry() -> None:
    """Whoever installs has one of their own."""
    lock = (HERE / "typescript" / "package-lock.json").read_text()
    assert '"resolved"' not in lock
    assert "omit-lockfile-registry-resolved=true" in (HERE / "typescript" / ".npmrc").read_text().split(os.linesep)
