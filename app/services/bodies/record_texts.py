"""The original texts of the records of an uploaded body, if they are easy to find: they are shown with their faults."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Iterator
from typing import Final

from app.services.bodies.formats import CSV, JSON, NDJSON
from app.services.bodies.json_bodies import parse_json
from app.storage.staging.spool import Content

# At most this much of a body is read, from its beginning.
_MOST_BYTES: Final = 2**25
_MOST_JSON_BYTES: Final = 2**23


def record_texts(content: Content, media_type: str, rows: Collection[int]) -> dict[int, str]:
    """Return the texts of the records ``rows`` (from 0) that are near the beginning of the body; empty for binary
    formats.
    """
    if not rows:
        return {}
    if media_type == JSON:
        return _of_json(bytes(content), rows) if len(content) <= _MOST_JSON_BYTES else {}
    begin = content[:_MOST_BYTES].decode("utf-8", "replace")
    texts = _lines(begin) if media_type in NDJSON else _csv_records(begin) if media_type == CSV else iter(())
    last = max(rows)
    by_row = {}
    for row, text in enumerate(texts):
        if row in rows:
            by_row[row] = text
        if row >= last:
            break
    return by_row


def _of_json(content: bytes, rows: Collection[int]) -> dict[int, str]:
    body = parse_json(content)
    listed = body.get("records") if isinstance(body, dict) else None
    items = listed if isinstance(listed, list) else []
    return {row: json.dumps(items[row], ensure_ascii=False, default=str) for row in rows if row < len(items)}


def _lines(text: str) -> Iterator[str]:
    return (line for line in io.StringIO(text) if line.strip())


def _csv_records(text: str) -> Iterator[str]:
    """Yield the records after the header, with all the lines that each of them has."""
    taken: list[str] = []

    def lines() -> Iterator[str]:
        for line in io.StringIO(text, newline=""):
            taken.append(line)
            yield line

    reader = csv.reader(lines())
    try:
        next(reader, None)
        taken.clear()
        for fields in reader:
            if fields:
                yield "".join(taken).rstrip("\r\n")
            taken.clear()
    except csv.Error:
        return
