"""Lookups of many keys at once, all of one snapshot (design §6: ``rows:batchGet``)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from app.core.plan.answers import joined_keys, key_texts, to_json
from app.core.plan.fold import finish
from app.core.plan.merge_plan import MergePlan
from app.core.table.history import Run
from app.core.table.keys import Key, keys_from_json
from app.services.lookups import answer_of_both, folded, runs_of, states_of, wanted_columns
from app.services.views import View
from app.storage.arrow import rows_stream
from app.storage.images import ABSENT, Answer, Images
from app.storage.tokens import Tokens, tokens_of_keys
from app.telemetry.entries import Counted


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
    texts = key_texts(schema, asked.keys)
    answers = _answers(asked.view, images, asked.keys, joined_keys(texts))
    # Names may hold a percent sign; values are put in by place.
    key = b'{"key":{' + b",".join(to_json(name).replace(b"%", b"%%") + b":%b" for name in schema.primary_key) + b"},"
    hit, miss = key + b'"found":true,"row":%b}', key + b'"found":false,"row":null}'
    bodies = [answer if isinstance(answer, bytes) else answer.body for answer in answers]
    if asked.columns is not asked.view.columns:
        bodies = [None if body is None else _shown(asked, body) for body in bodies]
    told = [miss % one[:-1] if one[-1] is None else hit % one for one in zip(*texts, bodies, strict=True)]
    return b'{"rows":[%b],"snapshotId":%b}' % (b",".join(told), to_json(asked.view.snapshot_id))


def _shown(asked: AskedKeys, body: bytes) -> bytes:
    """A row with the columns that are asked for."""
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


Made = TypeVar("Made")
Told = Answer | bytes
"""What images say of a key: of a row perhaps its JSON alone."""


def _of_both(plan: MergePlan, older: Told, newer: Told | None) -> Told | None:
    """As ``answer_of_both``; None also where an image does not say it."""
    answers = [Answer(one, True) if isinstance(one, bytes) else one for one in (older, newer)]
    return None if answers[0] is None or answers[1] is None else answer_of_both(plan, answers[0], answers[1])


def _answers(view: View, images: Images, keys: Sequence[Key], texts: Sequence[bytes]) -> list[Told]:
    """The answer for each key: finished bytes where one run alone has it, or its row wins whole, else made of its state
    rows.
    """
    return _completed(view, images, keys, texts, partial(folded, view))


def rows_found(view: View, images: Images, keys: Sequence[Key]) -> list[bool]:
    """Of each key whether it has a row, whatever the row holds."""

    def is_live(state: Mapping[str, Any] | None) -> bool:
        return state is not None and view.plan.row.is_live(state)

    texts = joined_keys(key_texts(view.table.schema, keys))
    found = _completed(view, images, keys, texts, is_live)
    return [one if isinstance(one, bool) else isinstance(one, bytes) or one.body is not None for one in found]


def _completed(
    view: View,
    images: Images,
    keys: Sequence[Key],
    texts: Sequence[bytes],
    made: Callable[[Mapping[str, Any] | None], Made],
) -> list[Told | Made]:
    """What images say of each key, and what is ``made`` of its state row where they do not say it."""
    told = _told(view, images, keys, texts)
    combined = [keys[place] for place, one in enumerate(told) if one is None]
    images.metrics.count(Counted.LOOKED_UP, "many", "miss", amount=len(combined))
    images.metrics.count(Counted.LOOKED_UP, "many", "hit", amount=len(keys) - len(combined))
    rest = iter([made(state) for state in states_of(view, images, combined)])
    return [next(rest) if one is None else one for one in told]


def _told(view: View, images: Images, keys: Sequence[Key], texts: Sequence[bytes]) -> list[Told | None]:
    """What images say of each key; None where only state rows tell."""
    tokens = tokens_of_keys(view.table.schema, keys)
    staged = (place for place, token in enumerate(tokens.tolist()) if view.may_be_staged(token)) if view.stages else ()
    told: list[Told | None] = [ABSENT] * len(keys)
    for place in staged:
        told[place] = None
    for run, places in runs_of(view, keys, view.deciding or view.runs):
        _ask(view, images, run, _Asked(tokens, texts, told), places)
    return told


class _Asked(NamedTuple):
    """Keys, as tokens and texts, and what has been told of each; None where only state rows tell."""

    tokens: Tokens
    texts: Sequence[bytes]
    told: list[Told | None]


def _ask(view: View, images: Images, run: Run, asked: _Asked, places: Sequence[int]) -> None:
    """Ask a run for those of its keys of which it is not yet known what the answer is, and note what it tells."""
    told = asked.told
    if view.deciding is None:
        wanted = places if None not in told else [place for place in places if told[place] is not None]
    else:
        wanted = [place for place in places if told[place] is ABSENT]
    written = view.readable[run.schema_id]
    if not wanted:
        return
    if written is None:
        answers: Sequence[Told | None] = [None] * len(wanted)
    else:
        every = len(wanted) == len(told)
        keys = (asked.tokens, asked.texts) if every else (asked.tokens[wanted], [asked.texts[one] for one in wanted])
        answers = images.answers(view.table.id, run, written, view.plan, *keys)
    for place, answer in zip(wanted, answers, strict=True):
        before = told[place]
        if before is ABSENT:
            told[place] = answer
        elif answer is not ABSENT and before is not None:
            told[place] = _of_both(view.plan, before, answer)
