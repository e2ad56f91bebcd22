"""What schemathesis finds against a served Keyfold: nothing, by all of its checks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service import Client, serving

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


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The URL of a service that asks for tokens, and one that may do everything."""
    data = tmp_path / "data"
    command = [sys.executable, "-m", "app.cli", "token", "create", "walker", "--role", "admin", "--data", str(data)]
    made = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    token = re.findall(r"\bkf_[\w-]{43}", made.stdout + made.stderr)[0]
    bounds = {"KEYFOLD_WORKERS": "0", "KEYFOLD_FAILURES_PER_MINUTE": "0"}
    with serving(data, **bounds) as (running, client):
        client.headers["Authorization"] = f"Bearer {token}"
        fill(client)
        yield running.url, token


def fill(client: Client) -> None:
    """The table of the document's examples, with a row."""
    client.create_database("shop")
    client.create_table("shop", "orders", SCHEMA).raise_for_status()
    records = {"records": [{"id": 7, "status": "new"}]}
    client.post("/v1/catalog/databases/shop/tables/orders/batches", json=records).raise_for_status()


def found(document: str, token: str, seconds: int, folder: Path) -> str:
    """What schemathesis prints; its exit status says whether it found anything."""
    schemathesis = str(Path(sys.executable).with_name("schemathesis"))
    command = [schemathesis, "--config-file", str(CONFIGURATION), "run", document, "--checks", "all", "--no-color"]
    command += [
        "--max-time",
        str(seconds),
        "--seed",
        str(SEED),
        "--suppress-health-check",
        "all",
        "-H",
        f"Authorization: Bearer {token}",
    ]
    for operation in LEFT_OUT:
        command += ["--exclude-operation-id", operation]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    assert ran.returncode == 0, ran.stdout[-20_000:] + ran.stderr[-5_000:]
    return ran.stdout


@pytest.mark.slow(reason="half a minute of requests")
def test_schemathesis_finds_nothing_in_any_operation(service: tuple[str, str], tmp_path: Path) -> None:
    url, token = service
    reported = found(f"{url}/openapi.json", token, SECONDS, tmp_path)
    tested = re.search(r"Tested: (\d+)", reported)
    assert tested is not None
    assert int(tested[1]) > 60
    assert "Stateful" in reported


@pytest.mark.slow(reason="a quarter of a minute of requests")
def test_schemathesis_finds_nothing_in_the_operations_of_one_table(service: tuple[str, str], tmp_path: Path) -> None:
    url, token = service
    found(f"{url}/v1/catalog/databases/shop/tables/orders/openapi.json", token, SECONDS // 2, tmp_path)
