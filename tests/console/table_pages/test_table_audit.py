"""What the tabs of a table change is in the audit log, by the API's operation, and without the values that are set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from app.http.parts import Parts
from app.main import create_app
from app.services.operating.audit_log import last_lines
from app.settings import Settings
from tests.api.conftest import DATABASES, LOOPBACK, TABLES, new_table
from tests.console.conftest import Browser
from tests.console.merged import MergedTable
from tests.console.table_pages.test_table_settings import fields_of

BASE = "/console/tables/shop/wide"


def test_each_change_of_a_tab_is_one_line(tmp_path: Path, sqlite_template: Path) -> None:
    (tmp_path / "catalog.sqlite").write_bytes(sqlite_template.read_bytes())
    log = str(tmp_path / "audit.log")
    app = create_app(Settings(KEYFOLD_DATA=tmp_path, workers=0, audit_log=log))
    with TestClient(app, LOOPBACK) as client:
        client.post(DATABASES, json={"name": "shop"})
        table_id = client.post(TABLES, json=new_table()).json()["id"]
        parts: Parts = app.state.parts
        table = MergedTable(client, f"{TABLES}/wide", table_id, parts.database, parts.warehouse)
        table.merge({"id": 1})
        table.merge({"id": 2})
        before = len(last_lines(log, 1000))
        _change_everything(Browser(client))
        lines = last_lines(log, 1000)[before:]
    reported = [_own(line) for line in lines]
    assert reported == [
        {"operation": "createTag", "tag": "v1", "snapshot": 1},
        {"operation": "deleteTag", "tag": "v1"},
        {"operation": "rollbackTable", "to": {"number": 1}, "made": 3},
        {"operation": "alterTable", "changes": [{"action": "setOption", "key": "target-file-size"}]},
        {"operation": "alterTable", "changes": [{"action": "addColumn", "fieldNames": ["more"]}]},
    ]


def _change_everything(browser: Browser) -> None:
    browser.get(f"{BASE}/snapshots")
    browser.send(f"{BASE}/snapshots/tags", tag="v1", snapshot="1")
    browser.get(f"{BASE}/snapshots")
    browser.send(f"{BASE}/snapshots/tags/delete", tag="v1")
    browser.get(f"{BASE}/snapshots/rollback?to=1")
    browser.send(f"{BASE}/snapshots/rollback", to="1", typed="no")
    browser.send(f"{BASE}/snapshots/rollback", to="1", typed="wide", **{"from": "2"})
    fields = fields_of(browser.get(f"{BASE}/settings").text)
    browser.post(f"{BASE}/settings/check", **{**fields, "set.target-file-size": "1 mb"})
    browser.post(f"{BASE}/settings", **fields)
    browser.post(f"{BASE}/settings", **{**fields, "set.target-file-size": "big"})
    browser.post(f"{BASE}/settings", **{**fields, "set.target-file-size": "1 mb"})
    fields = fields_of(browser.get(f"{BASE}/settings").text)
    browser.send(f"{BASE}/settings/columns", what="add", column="more", text="INT", seen=fields["seen"])


def _own(line: dict[str, Any]) -> dict[str, Any]:
    """A line without who and when, which is the same in all of them."""
    assert (line["database"], line["table"], line["outcome"]) == ("shop", "wide", "done")
    return {name: line[name] for name in ("operation", "tag", "snapshot", "to", "made", "changes") if name in line}
