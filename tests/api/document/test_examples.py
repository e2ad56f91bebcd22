"""The examples of the OpenAPI document are what the service answers."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient
from jsonschema import Draft202012Validator

import app.api.document
from app.api.shared.deps import Parts
from app.main import create_app
from app.services.access.tokens import create_token
from app.services.upkeep.late_counting import count_late_records
from app.settings import Settings
from tests.api.conftest import LOOPBACK
from tests.api.openapi import served
from tests.api.story import ASKED, NAMES, STORY, Step
from tests.services.builders import in_process, merge_staged

RECORDED = Path(app.api.document.__file__).with_name("examples.json")
REFUSED = {"retryBatch"}  # 409: nobody damages a batch for an example
UNTOLD = {"getTableDocument"}  # it would be as large as all others together
_SECRET = "kf_" + "x" * 43
# What differs from run to run becomes what might be.
_VARIES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\b1[0-9]{12}\b"), "1772355600000"),
    (re.compile(r"\bkf_[\w-]{43}(?![\w-])"), _SECRET),
    (re.compile(r'file://[^"]*?warehouse'), "file:///var/lib/keyfold/warehouse"),
    (re.compile(r'"((?:[a-zA-Z]*(?:Bytes|SizeInBytes)))": [0-9]+'), r'"\1": 4096'),
    (re.compile(r"part-([0-9]{5})-[0-9a-f]{8}\.parquet"), r"part-\1-5eed0000.parquet"),
    (re.compile(r'"spaceAmplification": [0-9.]+'), '"spaceAmplification": 1.95'),
    (re.compile(r'"durationMillis": [0-9]+'), '"durationMillis": 350'),
    (re.compile(r'"behindMillis": [0-9]+'), '"behindMillis": 1500'),
    (re.compile(r'"made": [0-9]+'), '"made": 1'),
    (re.compile(r'"requestId": "[^"]*"'), '"requestId": "5e1c2a90d3b7-1"'),
)
_ID = re.compile(r"\b[0-9a-f]{32}\b")


class _Telling:
    """Asks step by step, and remembers what the paths of later ones name."""

    def __init__(self, client: TestClient, merge: Callable[[str], str]) -> None:
        self.client, self.merge = client, merge
        self.names: dict[str, Any] = dict(NAMES)
        self.table_ids: dict[str, str] = {}

    def ask(self, step: Step) -> dict[str, Any]:
        path, method, operation = ASKED[step.operation]
        given = {**self.names, **step.parameters}
        places: dict[str, dict[str, Any]] = {"path": {}, "query": {}, "header": {}}
        for one in operation.get("parameters", []):
            if one["in"] == "path" or one["name"] in step.parameters or one["name"].lower() in step.parameters:
                places[one["in"]][one["name"]] = given[one["name"]]
        body = {} if step.request is None else {"json": step.request}
        answer = self.client.request(
            method, path.format_map(places["path"]), params=places["query"], headers=places["header"], **body
        )
        assert answer.status_code < 300 or step.operation in REFUSED, (step.operation, answer.text)
        assert str(answer.status_code) in operation["responses"], (step.operation, answer.text)
        media_type = answer.headers.get("content-type", "")
        reported = json.loads(answer.content) if "json" in media_type and "ndjson" not in media_type else answer.text
        self._remember(step, reported)
        if isinstance(reported, dict) and "overdue" in reported:
            reported["overdue"] = None  # a batch is overdue after two seconds, which a slow machine takes
        if step.operation in UNTOLD:
            reported = None
        if step.merged:
            self.names["merge_id"] = self.merge(self.table_ids[given["table"]])
        asked = dict(sorted(item for place in places.values() for item in place.items()))
        return {
            **({"parameters": asked} if asked else {}),
            **({"request": step.request} if step.request is not None else {}),
            "status": answer.status_code,
            **({"mediaType": media_type, "body": reported} if reported else {}),
        }

    def _remember(self, step: Step, reported: Any) -> None:
        if step.operation == "createTable":
            self.names["table_id"] = reported["id"]
            self.table_ids["orders"] = reported["id"]
        elif step.operation == "createTablesFromDdl":
            self.table_ids["payments"] = reported["tables"][0]["id"]
        elif step.operation in ("postBatch", "patchRowByPath", "deleteRowByPath"):
            self.names["batch_id"] = reported["id"]
        elif step.operation == "listSetAsideEvents":
            self.names["event_id"] = reported["events"][0]["id"]
        elif step.operation == "forgetRows":
            self.names["forgetting_id"] = reported["id"]
        elif step.operation == "postMerge":
            self.names["merge_id"] = reported["id"]


def _told(folder: Path) -> dict[str, Any]:
    opened = create_app(Settings(KEYFOLD_DATA=folder, workers=0))
    with TestClient(opened, LOOPBACK, raise_server_exceptions=False) as client:
        parts: Parts = opened.state.parts
        client.headers["Authorization"] = f"Bearer {create_token(parts.database, 'admin')}"
        telling = _Telling(client, lambda table: assert_merged(parts, table))
        found = [(step, telling.ask(step)) for step in STORY]
    text = json.dumps({step.operation: one for step, one in found if step.reported}, indent=1, ensure_ascii=False)
    for pattern, instead in _VARIES:
        text = pattern.sub(instead, text)
    numbers = itertools.count(1)
    ids: dict[str, str] = {}
    return dict(json.loads(_ID.sub(lambda one: ids.setdefault(one[0], f"5eed{next(numbers):028x}"), text)))


def assert_merged(parts: Parts, table_id: str) -> str:
    merged = merge_staged(parts.database, parts.warehouse, table_id)
    assert merged.snapshot_id is not None
    count_late_records(in_process(parts.database, parts.warehouse), [merged])  # as a worker does behind its merges
    return merged.id


def test_the_examples_are_what_the_service_answers(tmp_path: Path) -> None:
    """``KEYFOLD_RECORD=1`` records them anew: look at the difference, then run ``make openapi``."""
    found = _told(tmp_path)
    if os.environ.get("KEYFOLD_RECORD"):
        RECORDED.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    recorded = json.loads(RECORDED.read_text())
    for operation, example in found.items():
        assert example == recorded.get(operation), operation
    assert found.keys() == recorded.keys()


def test_every_operation_has_an_example() -> None:
    assert {step.operation for step in STORY if step.reported} == ASKED.keys()


def _contents() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, (_, _, operation) in ASKED.items():
        for part in [operation.get("requestBody", {}), *operation["responses"].values()]:
            for media_type, content in part.get("content", {}).items():
                if "example" in content:
                    yield f"{name} {media_type}", content


def test_every_example_is_what_its_schema_says() -> None:
    components = served()["components"]
    checked = 0
    for name, content in _contents():
        validator = Draft202012Validator({**content["schema"], "components": components})
        faults = [fault.message for fault in validator.iter_errors(content["example"])]
        assert not faults, (name, faults)
        checked += 1
    assert checked > len(ASKED)


def test_every_answer_with_a_body_has_an_example_of_it() -> None:
    for name, (_, _, operation) in ASKED.items():
        contents = [
            content
            for status, answer in operation["responses"].items()
            if status < "3"
            for content in answer.get("content", {}).values()
        ]
        if contents and name not in REFUSED | UNTOLD:
            assert any("example" in content for content in contents), name
