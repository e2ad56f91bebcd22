"""What a table's page gives to be pasted is run as it stands, each in what it is for."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from html import unescape
from pathlib import Path

import pytest

from app.console.parts.snippets import LANGUAGES, Target
from app.core.table.published import Format
from tests.api.conftest import fields_of
from tests.console.merged import FIELDS, HOSTILE
from tests.service import Client, TableClient, serving

PAGE = "/console/tables/shop/{}/code"
ODD = {
    "fields": fields_of(
        **{"a b": "STRING NOT NULL"}, at="TIMESTAMP(3)", **{HOSTILE: "ROW<x ARRAY<DECIMAL(10, 2)>, y BOOLEAN>"}
    ),
    "primaryKeys": ["a b"],
}
RECORDS = [{"id": 9_007_199_254_740_993, "note": HOSTILE, "n": 3}]
ODD_RECORDS = [
    {"a b": 'it\'s $HOME `x` \\ "q" ü/\u2028', "at": "2026-03-01T10:00:00", HOSTILE: {"x": ["1.50"], "y": True}}
]
SECONDS = 120


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, str]]:
    """A service with tokens and two tables of a row each, and a token."""
    with serving(tmp_path_factory.mktemp("data"), workers="0") as (_, client):
        made = client.post("/v1/tokens", json={"name": "boss", "role": "admin", "on": ["*"]}).raise_for_status().json()
        client.headers["Authorization"] = f"Bearer {made['token']}"
        client.create_database("shop")
        tables = (("wide", {"fields": FIELDS, "primaryKeys": ["id"]}, RECORDS), (HOSTILE, ODD, ODD_RECORDS))
        for name, schema, records in tables:
            client.create_table("shop", name, schema).raise_for_status()
            TableClient(client, "shop", name).post_batch(records).raise_for_status()
        yield client, made["token"]


@pytest.fixture(params=["wide", HOSTILE])
def pasted(request: pytest.FixtureRequest, service: tuple[Client, str]) -> dict[str, str]:
    """The texts of a page by their names, as somebody copies them who signed in; ``TOKEN`` and ``TABLE`` beside."""
    client, token = service
    texts = texts_of(signed_in(client, token, PAGE.format(_segment(request.param))))
    return {**texts, "TOKEN": token, "TABLE": request.param}


def _segment(name: str) -> str:
    return "%3Cb%20onx%3D1%3E%22%27%26%7B%7B7%2A7%7D%7D" if name == HOSTILE else name


def signed_in(client: Client, token: str, path: str) -> str:
    """A page, for somebody who signs in first."""
    base = str(client.base_url).rstrip("/")
    person = Client(base_url=base, trust_env=False, headers={"Origin": base, "Sec-Fetch-Site": "same-origin"})
    with person:
        csrf = re.search(r'name="csrf" value="(\w+)"', person.get("/console/sign-in").text)
        assert csrf
        form = {"csrf": csrf[1], "token": token, "next": "/"}
        assert person.post("/console/sign-in", data=form).status_code == 303
        return person.get(path).raise_for_status().text


def texts_of(page: str) -> dict[str, str]:
    """The texts of a page by their names."""
    found = re.findall(r'id="text-(?:snippet-)?([\w-]+)">(.*?)</pre>', page, re.DOTALL)
    return {name: unescape(text) for name, text in found}


def run(command: Sequence[str], token: str, **more: str) -> str:
    """What a command writes; fails with it if the command does."""
    environment = {**os.environ, "KEYFOLD_TOKEN": token, "no_proxy": "*", **more}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def records_of(pasted: dict[str, str]) -> list[dict[str, object]]:
    return RECORDS if pasted["TABLE"] == "wide" else ODD_RECORDS  # type: ignore[return-value]


def test_every_language_is_there(pasted: dict[str, str]) -> None:
    known = {
        *("curl-rows", "curl-row", "curl-post", "python-client", "python", "typescript", "spark", "duckdb"),
        "ddl-flink",
    }
    assert known <= pasted.keys()
    published = {one: {"spark": "a", "duckdb": "b"} for one in Format}
    target = Target("http://x", False, ["1"], {"id": 1}, published, "http://x", "a.b")
    named = [snippet.name for language in LANGUAGES for snippet in language.snippets(target)]
    assert {*named} - pasted.keys() == {f"{engine}-{form}" for engine in ("spark", "duckdb") for form in Format}
    assert not any(pasted["TOKEN"] in text for name, text in pasted.items() if name != "TOKEN")


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl on this machine")
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_curl_reads_a_row_and_posts_a_record(pasted: dict[str, str], service: tuple[Client, str], shell: str) -> None:
    def answered(name: str) -> str:
        return run([shell, "-c", pasted[name].replace("curl ", "curl -fsS ", 1)], pasted["TOKEN"])

    lines = [json.loads(line) for line in answered("curl-rows").split("\n") if line]
    assert records_of(pasted)[0] in lines
    assert json.loads(answered("curl-row")) in lines
    assert json.loads(answered("curl-post"))["records"] == 1


def test_python_reads_a_row_and_posts_a_record(pasted: dict[str, str], tmp_path: Path) -> None:
    program = tmp_path / "pasted.py"
    program.write_text(pasted["python"])
    reported = run([sys.executable, "-I", str(program)], pasted["TOKEN"])
    assert repr(records_of(pasted)[0]) in reported
    begin = pasted["python"].index("# post(")
    program.write_text(pasted["python"][:begin] + re.sub("(?m)^# ", "", pasted["python"][begin:]))
    run([sys.executable, "-I", str(program)], pasted["TOKEN"])


def test_the_client_reads_a_row_and_posts_a_record(pasted: dict[str, str], tmp_path: Path) -> None:
    program = tmp_path / "pasted.py"
    program.write_text(pasted["python-client"])
    assert "None" not in run([sys.executable, "-I", str(program)], pasted["TOKEN"]).splitlines()
    begin = pasted["python-client"].index("    # table.upsert(")
    program.write_text(pasted["python-client"][:begin] + re.sub("(?m)^    # ", "    ", pasted["python-client"][begin:]))
    run([sys.executable, "-I", str(program)], pasted["TOKEN"])


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node on this machine")
def test_typescript_reads_a_row_and_posts_a_record(pasted: dict[str, str], tmp_path: Path) -> None:
    program = tmp_path / "pasted.mjs"  # no type is written in it: it is JavaScript, too
    program.write_text(pasted["typescript"])
    reported = run(["node", str(program)], pasted["TOKEN"])
    assert "9007199254740993" in reported or "1.50" in reported or "[Array]" in reported
    begin = pasted["typescript"].index("// const body")
    program.write_text(pasted["typescript"][:begin] + re.sub("(?m)^// ", "", pasted["typescript"][begin:]))
    assert "staged" in run(["node", str(program)], pasted["TOKEN"])


def test_duckdb_counts_the_rows(pasted: dict[str, str], tmp_path: Path) -> None:
    program = tmp_path / "pasted.py"
    program.write_text(pasted["duckdb"])
    reported = run([sys.executable, "-I", str(program)], pasted["TOKEN"])
    assert "int64" in reported
    assert "9007199254740993" in reported or "HOME" in reported


@pytest.mark.spark
def test_spark_shows_the_rows(pasted: dict[str, str], tmp_path: Path, spark_remote: str) -> None:
    program = tmp_path / "pasted.py"
    program.write_text(pasted["spark"])
    reported = run([sys.executable, "-I", str(program)], pasted["TOKEN"], SPARK_REMOTE=spark_remote)
    assert "9007199254740993" in reported or "HOME" in reported


def test_the_sql_makes_the_same_table(pasted: dict[str, str], service: tuple[Client, str]) -> None:
    client, _ = service
    database = f"copy{len(pasted['TABLE'])}"
    client.create_database(database)
    path = f"/v1/catalog/databases/{database}/tables"
    client.post(f"{path}:fromDdl", json={"ddl": pasted["ddl-flink"]}).raise_for_status()
    there = client.get(f"/v1/catalog/databases/shop/tables/{_segment(pasted['TABLE'])}").json()["schema"]
    assert client.get(f"{path}/{_segment(pasted['TABLE'])}").json()["schema"] == there
