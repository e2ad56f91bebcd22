"""The JSON of every route, member by member, as it was recorded: what clients read does not change by accident."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from tests.api.walk import BODIES, DOCUMENT, LAST, OPERATIONS, filled_catalog, query

RECORDED = Path(__file__).with_name("answers.json")
# What differs from run to run: ids, times, sizes of files, images that are made by then, folders, versions.
_VARIES = (
    (re.compile(r"\b[0-9a-f]{32}\b"), "<id>"),
    (re.compile(r"\b1[0-9]{12}\b"), "0"),
    (re.compile(r"\bkf_[\w-]{43}(?![\w-])"), "<token>"),
    (re.compile(r'("requestId": )"[^"]*"'), r'\1"<request>"'),
    (re.compile(r'"file://[^"<]*'), '"file://'),
    (re.compile(r"part-([0-9]{5})-[0-9a-f]{8}\.parquet"), r"part-\1-<attempt>.parquet"),
    (re.compile(r'"((?:[a-zA-Z]*(?:Bytes|SizeInBytes))|durationMillis|behindMillis|made)": [0-9]+'), r'"\1": 0'),
    (re.compile(r'"overdue": \{[^}]*\}'), '"overdue": null'),  # by how long the walk took until then
)


def answers(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with filled_catalog(folder) as (client, fill):
        operations = [(DOCUMENT[path][method]["operationId"], path, method) for path, method in OPERATIONS]
        for operation, path, method in sorted(operations, key=lambda one: LAST.index(one[0]) if one[0] in LAST else -1):
            answer = client.request(method, fill(path), params=query(path), json=BODIES.get(operation))
            if operation == "getTableDocument":  # test_table_document.py; it would be most of the record
                continue
            reported = answer.text if "ndjson" in answer.headers.get("content-type", "") else _json(answer.content)
            found[operation] = {"status": answer.status_code, "body": reported}
    text = json.dumps(found, indent=1, ensure_ascii=False)
    for pattern, instead in _VARIES:
        text = pattern.sub(instead, text)
    return dict(json.loads(text))


def _json(content: bytes) -> Any:
    return json.loads(content) if content else None


def _written(found: dict[str, Any]) -> str:
    """The record: a line for each member of a body, so that a difference is read where it is."""
    text = []
    for operation, answer in found.items():
        body = json.dumps(answer["body"], ensure_ascii=False)
        if isinstance(answer["body"], dict):
            members = (f'  "{name}": {json.dumps(value, ensure_ascii=False)}' for name, value in answer["body"].items())
            body = "{\n" + ",\n".join(members) + "\n }"
        text.append(f' "{operation}": {{"status": {answer["status"]}, "body": {body}}}')
    return "{\n" + ",\n".join(text) + "\n}\n"


def test_the_answers_are_those_that_were_recorded(tmp_path: Path) -> None:
    """``KEYFOLD_RECORD=1`` records them anew: look at the difference before it is committed."""
    found = answers(tmp_path)
    if os.environ.get("KEYFOLD_RECORD"):
        RECORDED.write_text(_written(found))
    recorded = json.loads(RECORDED.read_text())
    assert found.keys() == recorded.keys()
    for operation, answer in found.items():
        assert answer == recorded[operation], operation
        assert json.dumps(answer) == json.dumps(recorded[operation]), f"{operation}: the order of the members"
