"""Lookups of many keys at once, all of one snapshot (``rows:batchGet``)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from app.core.plan.merging.fold import combine_all
from app.core.plan.merging.merge_plan import MergePlan
from app.core.plan.records.answers import joined_keys, key_texts, to_json, weight
from app.core.plan.records.integers import as_text, body_as_text, integers_of
from app.core.table.history import Run
from app.core.table.keys import Key, keys_from_json
from app.core.table.options.entries import Integers
from app.core.types.datatype import DataType
from app.files.tokens import Tokens, tokens_of_keys
from app.services.rows.lookups import answer_of_both, folded, lifted, runs_of, states_of, wanted_columns
from app.services.rows.scans import Scan
from app.services.rows.views import View
from app.services.shared.answer_bytes import AnswerBytes
from app.storage.images import ABSENT, Answer, Images, ReadBytes, TooMuchAtOnce
from app.storage.scans.by_keys import KeyRows, StagedRows, keys_stream, rows_of_keys
from app.storage.scans.merging import Source
from app.telemetry.entries import Counted

_FEWER = "request fewer keys at a time, or fewer columns"
Made = TypeVar("Made")
ImageAnswer = Answer | bytes
"""What images say of a key: of a row perhaps its JSON alone."""


@dataclass(frozen=True)
class KeysRequest:
    """One request: the table's view, the keys in their order, the columns to answer."""

    view: View
    keys: Sequence[Key]
    columns: Sequence[str]
    integers: Integers = Integers.NUMBER


def read_keys(
    view: View,
    keys: Sequence[Mapping[str, Any]],
    columns: Sequence[str] | None = None,
    integers: Integers | None = None,
) -> KeysRequest:
    """Return the request with the JSON objects ``keys``; ``integers`` is the form of BIGINT in the answer.

    Raise ``Invalid`` for all keys and columns that the schema does not have.
    """
    wanted = wanted_columns(view, columns)
    schema = view.table.schema
    return KeysRequest(view, keys_from_json(schema, keys, "/keys"), wanted, integers_of(schema, integers))


class _Wanted(NamedTuple):
    """The keys of a request, each once, with their texts and how often each occurs; ``places`` has the index of each
    key of the request.
    """

    keys: Sequence[Key]
    texts: Sequence[bytes]
    times: Sequence[int]
    places: Sequence[int]


def _once(keys: Sequence[Key], texts: Sequence[bytes]) -> _Wanted:
    first: dict[bytes, int] = {}
    places = [first.setdefault(text, len(first)) for text in texts]
    if len(first) == len(keys):
        return _Wanted(keys, texts, [1] * len(keys), places)
    counted = Counter(places)
    of_text = dict(zip(texts, keys, strict=True))
    return _Wanted([of_text[text] for text in first], [*first], [counted[place] for place in range(len(first))], places)


def rows_as_json(images: Images, request: KeysRequest) -> bytes:
    """Return the answers as JSON, one for each key in order: the key, whether it was found, its row.

    Raise ``TooLarge`` before the answer exceeds ``MOST_ANSWER_BYTES``.
    """
    schema = request.view.table.schema
    texts = key_texts(schema, request.keys)
    wanted = _once(request.keys, joined_keys(texts))
    bodies = _bodies(images, request, wanted)
    # Names may hold a percent sign; values are put in by place.
    key = b'{"key":{' + b",".join(to_json(name).replace(b"%", b"%%") + b":%b" for name in schema.primary_key) + b"},"
    hit, miss = key + b'"found":true,"row":%b}', key + b'"found":false,"row":null}'
    if request.integers is Integers.TEXT:
        bodies = [None if body is None else body_as_text(schema, body) for body in bodies]
        texts = [_texts_of(entry[0], parts) for entry, parts in zip(schema.key_types, texts, strict=True)]
    rows = [bodies[place] for place in wanted.places]
    items = [miss % parts[:-1] if parts[-1] is None else hit % parts for parts in zip(*texts, rows, strict=True)]
    return b'{"rows":[%b],"snapshotId":%b}' % (b",".join(items), to_json(request.view.snapshot_id))


def _texts_of(data_type: DataType, numbers: list[bytes]) -> list[bytes]:
    """Return the values of a key column as JSON, with whole numbers as text."""
    if as_text(data_type) is None:
        return numbers
    return [number if number == b"null" else b'"%b"' % number for number in numbers]


def _bodies(images: Images, request: KeysRequest, wanted: _Wanted) -> list[bytes | None]:
    """Yield the row of each key as JSON; None if there is none."""
    whole, size = request.columns is request.view.columns, AnswerBytes(_FEWER)
    bodies: list[bytes | None] = []
    answers = _in_pieces(request.view, images, wanted.keys, wanted.texts, partial(folded, request.view))
    for answer, times in zip(answers, wanted.times, strict=True):
        body = answer if isinstance(answer, bytes) else answer.body
        body = body if whole or body is None else _shown(request, body)
        size.add(0 if body is None else times * len(body))
        bodies.append(body)
    return bodies


def _shown(request: KeysRequest, body: bytes) -> bytes:
    """Return a row with the requested columns."""
    row = json.loads(body)
    return to_json({name: row[name] for name in request.columns})


def rows_as_arrow(images: Images, request: KeysRequest) -> bytes:
    """Return the answers as an Arrow stream, a row for each key in order: whether it was found, then the key columns
    and the requested columns. Without a row these are null. Raise as ``rows_as_json``.
    """
    schema = request.view.table.schema
    wanted = _once(request.keys, joined_keys(key_texts(schema, request.keys)))
    columns = tuple(schema.by_name[name] for name in dict.fromkeys([*schema.primary_key, *request.columns]))
    source = Scan(request.view, columns).source(images.warehouse)

    def read_all(keys: Sequence[Key], _: Sequence[bytes], read: ReadBytes | None) -> Iterator[KeyRows]:
        yield _rows_of(request.view, images, source, keys, read)

    size, pieces, first = AnswerBytes(_FEWER), list[KeyRows](), 0
    for piece in _pieces(wanted.keys, read_all, wanted.texts):
        last = first + len(piece.places)
        size.add(piece.size_bytes(wanted.times[first:last]))
        pieces.append(piece)
        first = last
    keys = {name: [key[place] for key in request.keys] for place, name in enumerate(schema.primary_key)}
    return keys_stream(columns, pieces, wanted.places, keys)


def _rows_of(view: View, images: Images, source: Source, keys: Sequence[Key], read: ReadBytes | None) -> KeyRows:
    tokens = tokens_of_keys(view.table.schema, keys)
    of_runs = []
    for run, places in runs_of(view, keys, view.runs):
        rows = images.columns(view.table.id, run, np.unique(tokens[places]), read)
        if rows is not None:
            of_runs.append((run.schema_id, rows))
    staged: dict[int, Mapping[str, Any]] = {}
    for place, token in enumerate(tokens.tolist() if view.stages else ()):
        records = lifted(view, images.warehouse, keys[place]) if view.may_be_staged(token) else []
        state = combine_all(view.plan, records)
        if state is not None:
            staged[place] = state
            if read is not None:  # nothing else counts them
                read.add(weight([*state.values()]))
    of_keys = StagedRows.from_rows(tokens[np.array([*staged], dtype=np.int64)], [*staged.values()])
    return rows_of_keys(source, of_runs, of_keys, keys, tokens)


def _of_both(plan: MergePlan, older: ImageAnswer, newer: ImageAnswer | None) -> ImageAnswer | None:
    """Return ``answer_of_both``; None also if an image does not have it."""
    answers = [Answer(answer, True) if isinstance(answer, bytes) else answer for answer in (older, newer)]
    return None if answers[0] is None or answers[1] is None else answer_of_both(plan, answers[0], answers[1])


def rows_exist(view: View, images: Images, keys: Sequence[Key]) -> list[bool]:
    """Return for each key whether it has a row."""

    def is_live(state: Mapping[str, Any] | None) -> bool:
        return state is not None and view.plan.row.is_live(state)

    answers = _in_pieces(view, images, keys, joined_keys(key_texts(view.table.schema, keys)), is_live)
    return [
        answer if isinstance(answer, bool) else isinstance(answer, bytes) or answer.body is not None
        for answer in answers
    ]


def _pieces(
    keys: Sequence[Key],
    read_all: Callable[[Sequence[Key], Sequence[bytes], ReadBytes | None], Iterator[Made]],
    texts: Sequence[bytes],
) -> Iterator[Made]:
    """Yield the results of ``read_all`` for all keys, in pieces that fit the memory bound."""
    place, count = 0, len(keys)
    while place < len(keys):
        piece = slice(place, place + count)
        try:
            # A single row is read at any size, as a lookup of it is.
            answers = read_all(keys[piece], texts[piece], ReadBytes() if count > 1 else None)
        except TooMuchAtOnce:
            count = max(1, count // 4)
            continue
        yield from answers
        place += count


def _in_pieces(
    view: View,
    images: Images,
    keys: Sequence[Key],
    texts: Sequence[bytes],
    made: Callable[[Mapping[str, Any] | None], Made],
) -> Iterator[ImageAnswer | Made]:
    """Yield the answer for each key: from images, if a single run has it or its row wins as a whole; else ``made``
    from its state row.
    """

    def read_all(some: Sequence[Key], their: Sequence[bytes], read: ReadBytes | None) -> Iterator[ImageAnswer | Made]:
        answers = _image_answers(view, images, some, their, read)
        combined = [some[place] for place, one in enumerate(answers) if one is None]
        states = states_of(view, images, combined, read)
        images.metrics.count(Counted.LOOKED_UP, "many", "miss", amount=len(combined))
        images.metrics.count(Counted.LOOKED_UP, "many", "hit", amount=len(some) - len(combined))
        return (made(next(states)) if answer is None else answer for answer in answers)

    return _pieces(keys, read_all, texts)


def _image_answers(
    view: View, images: Images, keys: Sequence[Key], texts: Sequence[bytes], read: ReadBytes | None
) -> list[ImageAnswer | None]:
    """Return the images' answer for each key; None if only state rows have the answer."""
    tokens = tokens_of_keys(view.table.schema, keys)
    staged = (place for place, token in enumerate(tokens.tolist()) if view.may_be_staged(token)) if view.stages else ()
    answers: list[ImageAnswer | None] = [ABSENT] * len(keys)
    for place in staged:
        answers[place] = None
    for run, places in runs_of(view, keys, view.deciding or view.runs):
        _ask(view, images, run, _Query(tokens, texts, answers, read), places)
    return answers


class _Query(NamedTuple):
    """Keys, as tokens and texts, and the answer for each so far; None if only state rows have it."""

    tokens: Tokens
    texts: Sequence[bytes]
    answers: list[ImageAnswer | None]
    read: ReadBytes | None


def _ask(view: View, images: Images, run: Run, query: _Query, places: Sequence[int]) -> None:
    """Look up the keys without an answer in a run's images, and note its answers."""
    known = query.answers
    if view.deciding is None:
        wanted = places if None not in known else [place for place in places if known[place] is not None]
    else:
        wanted = [place for place in places if known[place] is ABSENT]
    written = view.readable[run.schema_id]
    if not wanted:
        return
    if written is None:
        answers: Sequence[ImageAnswer | None] = [None] * len(wanted)
    else:
        every = len(wanted) == len(known)
        keys = (
            (query.tokens, query.texts) if every else (query.tokens[wanted], [query.texts[place] for place in wanted])
        )
        answers = images.answers(view.table.id, run, written, view.plan, *keys, query.read)
    for place, answer in zip(wanted, answers, strict=True):
        before = known[place]
        if before is ABSENT:
            known[place] = answer
        elif answer is not ABSENT and before is not None:
            known[place] = _of_both(view.plan, before, answer)
