"""What schemathesis finds against a served Keyfold: nothing, by all of its checks."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service import Client, serving

SECONDS = 60  # of requests made up, apart from the examples and the bounds of every parameter
CONFIGURATION = Path(__file__).with_name("schemathesis.toml")
SCHEMA = {
    "fields": [{"name": "id", "type": "BIGINT NOT NULL"}, {"name": "status", "type": "STRING"}],
    "primaryKeys": ["id"],
    "options": {"merge.max-staleness": "1 d"},
}
# It ends the token that all other requests are made with.
LEFT_OUT = ("revokeToken",)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The URL of a service that asks for tokens, and one that may do everything."""
    data = tmp_path_factory.mktemp("data")
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


def found(document: str, token: str, *arguments: str, configuration: Path | None = None) -> str:
    """What schemathesis prints; its exit status says whether it found anything."""
    chosen = [] if configuration is None else ["--config-file", str(configuration)]
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        *chosen,
        "run",
        document,
        "--checks",
        "all",
        *arguments,
    ]
    command += ["-H", f"Authorization: Bearer {token}", "--suppress-health-check", "all", "--no-color"]
    for operation in LEFT_OUT:
        command += ["--exclude-operation-id", operation]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert ran.returncode == 0, ran.stdout[-20_000:] + ran.stderr[-5_000:]
    return ran.stdout


@pytest.mark.slow(reason="a minute of requests")
def test_schemathesis_finds_nothing_in_any_operation(service: tuple[str, str]) -> None:
    url, token = service
    told = found(f"{url}/openapi.json", token, "--max-time", str(SECONDS), configuration=CONFIGURATION)
    tested = re.search(r"Tested: (\d+)", told)
    assert tested is not None
    assert int(tested[1]) > 60
    assert "Stateful" in told
