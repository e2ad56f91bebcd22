"""What schemathesis finds against a served Keyfold: nothing, by all of its checks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service import Client, TableClient, keyfold, serving

SEED = 12  # the same walk each time: what another one finds is no surprise of who changes something else
# Of requests made up, apart from the examples and the bounds of every parameter, which all come. They are the same in
# each run as far as they come: who looks for new faults, after a new route say, takes minutes.
SECONDS = int(os.environ.get("KEYFOLD_SCHEMATHESIS_SECONDS", "30"))
CONFIGURATION = Path(__file__).with_name("schemathesis.toml")
SCHEMA = {
    "fields": [{"name": "id", "type": "BIGINT NOT NULL"}, {"name": "status", "type": "STRING"}],
    "primaryKeys": ["id"],
    "options": {"merge.max-staleness": "1 d"},
}
# The first ends the token that all other requests are made with; the second is rows:explain, at a path that is also the
# key of a row to the methods that write one, as its Allow says.
LEFT_OUT = ("revokeToken", "explainRowByPath")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, str]]:
    """A client of a service that asks for tokens, and one that may do everything."""
    data = tmp_path_factory.mktemp("walked") / "data"
    made = keyfold("token", "create", "walker", "--role", "admin", "--data", data)
    token = re.findall(r"\bkf_[\w-]{43}", made.stdout + made.stderr)[0]
    bounds = {"KEYFOLD_WORKERS": "0", "KEYFOLD_FAILURES_PER_MINUTE": "0"}
    with serving(data, **bounds) as (_, client):
        client.headers["Authorization"] = f"Bearer {token}"
        yield client, token


def filled(client: Client, database: str) -> str:
    """The path of a table as that of the document's examples, with a row."""
    client.create_database(database)
    client.create_table(database, "orders", SCHEMA).raise_for_status()
    table = TableClient(client, database, "orders")
    table.post_batch([{"id": 7, "status": "new"}]).raise_for_status()
    return table.path


def found(client: Client, path: str, token: str, seconds: int, folder: Path) -> str:
    """What schemathesis prints; its exit status says whether it found anything."""
    schemathesis = str(Path(sys.executable).with_name("schemathesis"))
    document = str(client.base_url).rstrip("/") + path
    command = [schemathesis, "--config-file", str(CONFIGURATION), "run", document, "--checks", "all", "--no-color"]
    command += ["--max-time", str(seconds), "--seed", str(SEED), "--suppress-health-check", "all"]
    command += ["-H", f"Authorization: Bearer {token}"]
    for operation in LEFT_OUT:
        command += ["--exclude-operation-id", operation]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    assert ran.returncode == 0, ran.stdout[-20_000:] + ran.stderr[-5_000:]
    return ran.stdout


@pytest.mark.slow(reason="half a minute of requests")
def test_schemathesis_finds_nothing_in_any_operation(service: tuple[Client, str], tmp_path: Path) -> None:
    client, token = service
    filled(client, "shop")
    reported = found(client, "/openapi.json", token, SECONDS, tmp_path)
    tested = re.search(r"Tested: (\d+)", reported)
    assert tested is not None
    assert int(tested[1]) > 60
    assert "Stateful" in reported


@pytest.mark.slow(reason="a quarter of a minute of requests")
def test_schemathesis_finds_nothing_in_the_operations_of_one_table(service: tuple[Client, str], tmp_path: Path) -> None:
    client, token = service
    found(client, f"{filled(client, 'another')}/openapi.json", token, SECONDS // 2, tmp_path)
