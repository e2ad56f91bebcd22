"""Names that look like ways out of a path, or like the end of a header, over a real server."""

from __future__ import annotations

from urllib.parse import quote, unquote

import httpx
import pytest

from tests.service import Client, Service

NAMES = [
    *("..%2f..%2f", "%2e%2e", "%252e%252e%252f", "%00", "%0d%0aX-Hostile: yes", "%250d%250a", "line\u2028feed", "%"),
    "a%20b+c",
    *("\u2029", "a b+c", "ü\U0001f600", "'\"<>", "a?b#c", ";x=1", "\u202e"),
]


def asked(client: Client, method: str, path: str, **given: object) -> httpx.Response:
    answer = client.request(method, path, **given)  # type: ignore[arg-type]  # what httpx takes
    answer.raise_for_status()
    assert "x-hostile" not in answer.headers
    assert all(value.isascii() and value.isprintable() for value in answer.headers.values())
    return answer


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_one_segment_wherever_it_goes(opened: tuple[Service, Client], name: str) -> None:
    service, client = opened
    folder = service.data
    schema = {"fields": [{"name": "id", "type": "STRING"}, {"name": "n", "type": "INT"}], "primaryKeys": ["id"]}
    before = {path for path in folder.rglob("*") if path.is_dir()}
    client.create_database(name)
    made = client.create_table(name, name, schema).raise_for_status().json()
    assert made["path"].endswith(f"/warehouse/{made['id']}")
    table = f"/v1/catalog/databases/{quote(name, safe='')}/tables/{quote(name, safe='')}"
    key = f"\n/{name}"  # which a name of a table cannot hold
    put = asked(client, "PUT", f"{table}/rows/{quote(key, safe='')}", json={"n": 2})
    assert asked(client, "GET", put.headers["location"]).json()["records"] == 1
    posted = asked(client, "POST", f"{table}/batches", json={"records": [{"id": "b", "n": 1}]})
    assert asked(client, "GET", posted.headers["location"]).json()["id"] == posted.json()["id"]
    page = asked(client, "GET", f"{table}/rows:scan?limit=1&columns=id")
    link = page.headers["link"]
    assert unquote(link[1:].split("/rows:scan")[0]) == unquote(table)
    rows = page.content + asked(client, "GET", link[1 : link.index(">")]).content
    assert len(rows.split(b"\n")) == 3
    assert asked(client, "GET", f"{table}/rows/{quote(key, safe='')}").json() == {"id": key, "n": 2}
    asked(client, "DELETE", table)
    made_of_ids = {folder / "warehouse" / made["id"], folder / "warehouse" / made["id"] / "staging"}
    assert {path for path in folder.rglob("*") if path.is_dir()} - before <= made_of_ids | {folder / "keys_in_flight"}
