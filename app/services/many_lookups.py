"""Lookups of many keys at once, all of one snapshot (design §6: ``rows:batchGet``)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.core.plan.answers import joined_key, key_texts, to_json
from app.core.plan.fold import finish
from app.core.table.keys import Key, keys_from_json, tokens_of
from app.services.lookups import answer_of_both, folded, runs_of, states_of, wanted_columns
from app.services.views import View
from app.storage.arrow import rows_stream
from app.storage.images import ABSENT, Answer, Images


@dataclass(frozen=True)
class AskedKeys:
    """What one request asks of a table: its view, the keys in their order, the columns to answer."""

    view: View
    keys: Sequence[Key]
    columns: Sequence[str]


def read_keys(view: View, keys: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> AskedKeys:
    """The JSON objects ``keys`` of a request.

    Raises ``Invalid`` for all keys and columns that the schema does not have.
    """
    wanted = wanted_columns(view, columns)
    return AskedKeys(view, keys_from_json(view.table.schema, keys, "/keys"), wanted)


def found_as_json(images: Images, asked: AskedKeys) -> bytes:
    """The answers as JSON, in the order of the keys and without a gap: each key, whether it is found, its row."""
    schema = asked.view.table.schema
    texts = [key_texts(schema, key) for key in asked.keys]
    answers = _answers(asked.view, images, asked.keys, [joined_key(one) for one in texts])
    # Names may hold a percent sign; values are put in by place.
    shape = b"{" + b",".join(to_json(name).replace(b"%", b"%%") + b":%b" for name in schema.primary_key) + b"}"
    shown = [_shown(asked, answer.body) for answer in answers]
    rows = b",".join(
        [
            b'{"key":%b,"found":false,"row":null}' % (shape % tuple(text))
            if body is None
            else b'{"key":%b,"found":true,"row":%b}' % (shape % tuple(text), body)
            for text, body in zip(texts, shown, strict=True)
        ]
    )
    return b'{"rows":[%b],"snapshotId":%b}' % (rows, to_json(asked.view.snapshot_id))


def _shown(asked: AskedKeys, body: bytes | None) -> bytes | None:
    """A row with the columns that are asked for."""
    if body is None or asked.columns is asked.view.columns:
        return body
    row = json.loads(body)
    return to_json({name: row[name] for name in asked.columns})


def found_as_arrow(images: Images, asked: AskedKeys) -> bytes:
    """The answers as an Arrow stream, a row for each key in order: whether it is found, then the key columns and those
    that are asked for. Where there is no row they are null, but for the key.
    """
    schema, plan = asked.view.table.schema, asked.view.plan
    states = states_of(asked.view, images, asked.keys)
    rows = [None if state is None else finish(plan, state) for state in states]
    names = dict.fromkeys([*schema.primary_key, *asked.columns])
    values = {name: [None if row is None else row[name] for row in rows] for name in names}
    for place, name in enumerate(schema.primary_key):
        values[name] = [key[place] for key in asked.keys]
    return rows_stream([schema.by_name[name] for name in names], [row is not None for row in rows], values)


def _answers(view: View, images: Images, keys: Sequence[Key], texts: Sequence[bytes]) -> list[Answer]:
    """The answer for each key: finished bytes where one run alone has it, else made of its state rows."""
    tokens = tokens_of(view.table.schema, keys)
    found, again = [ABSENT] * len(keys), {place for place, token in enumerate(tokens) if view.may_be_staged(token)}
    for run, places in runs_of(view, keys):
        written = view.readable[run.schema_id]
        if written is None:
            again.update(places)
            continue
        asked = ([tokens[place] for place in places], [texts[place] for place in places])
        answers = images.answers(view.table.id, run, written, view.plan, *asked)
        for place, answer in zip(places, answers, strict=True):
            both = None if answer is None else answer_of_both(view.plan, found[place], answer)
            if both is None:
                again.add(place)
            else:
                found[place] = both
    combined = sorted(again)
    for place, state in zip(combined, states_of(view, images, [keys[place] for place in combined]), strict=True):
        found[place] = folded(view, state)
    return found
