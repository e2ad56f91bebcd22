"""What tests of forgettings share: tables of people, and a search through everything that is stored."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq

from app.core.table.history import Table
from app.core.table.upkeep.forgetting import Forgetting, ForgettingState
from app.services.rows.lookups import Consistency, Images, find, get_rows, view_at
from app.services.shared.executor import MergeSite
from app.services.upkeep.forgettings import ask_to_forget, end_forgettings
from app.services.upkeep.forgotten_keys import Forgetter
from app.services.upkeep.sweeps import mark_run, sweep
from tests.services.builders import QUIET, create_table, merge, post

ADA, BOB, CYD = "ada@example.org", "bob@example.org", "cyd@example.org"
STREET = "Lovelace Lane"  # what only Ada's records have
COLUMNS = (("mail", "STRING"), ("at", "INT"), ("street", "STRING"), ("visits", "BIGINT"))
CALM = {"num-sorted-run.compaction-trigger": "100", **QUIET}
ENGINES: Mapping[str, Mapping[str, str]] = {
    "deduplicate": {"sequence.field": "at"},
    "partial-update": {
        "merge-engine": "partial-update",
        "fields.at.sequence-group": "street,visits",
        "fields.visits.aggregate-function": "sum",
    },
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.visits.aggregate-function": "sum",
        "fields.street.aggregate-function": "listagg",
    },
    "first-row": {"merge-engine": "first-row"},
}


def people(site: MergeSite, options: Mapping[str, str], name: str = "people", **more: Any) -> Table:
    """A table of the database ``shop`` whose key is a text."""
    return create_table(site.database, {**CALM, **options}, name, COLUMNS, **{"key": ("mail",), **more})


def person(mail: str, at: int, street: str | None = None, visits: int = 1) -> dict[str, Any]:
    return {"mail": mail, "at": at, "street": street or f"street of {mail[:3]} {at}", "visits": visits}


def posted(site: MergeSite, *records: Mapping[str, Any], name: str = "people") -> None:
    post(site.database, site.warehouse, *records, name=name)


def merged(site: MergeSite, table: Table, *records: Mapping[str, Any]) -> None:
    """A batch of ``records``, merged."""
    merge(site, table, *records)


def asked(site: MergeSite, table: Table, *mails: str, reference: str | None = None) -> Forgetting:
    keys = [{"mail": mail} for mail in mails or (ADA,)]
    with site.database.transaction() as repository:
        return ask_to_forget(repository, repository.tables.existing(table.id), keys, "officer", reference)


def forget(site: MergeSite) -> int:
    """What a worker does."""
    return Forgetter(site, partial(mark_run, site.warehouse)).forget()


def forgotten(site: MergeSite, table: Table, *mails: str) -> Forgetting:
    """``mails`` are asked to be forgotten, and are."""
    one = asked(site, table, *mails)
    assert forget(site) == 1
    return known(site, one)


def known(site: MergeSite, one: Forgetting) -> Forgetting:
    with site.database.reading() as repository:
        return repository.forgettings.get(one.table_id, one.id)


def gone(site: MergeSite, one: Forgetting, images: Images | None = None) -> Forgetting:
    """After sweeps that find everything old enough. Lookups asked for ``images``, which may still be made, of files
    that are gone by now; a service removes them with the next sweep.
    """
    if images is not None:
        images.close()
        with site.database.reading() as repository:
            images.keep_only(repository.snapshots.live_run_ids())
    for _ in range(2):  # what the first has joined is garbage for the second
        for path in Path(site.warehouse.path()).rglob("*"):
            os.utime(path, (time.time() - 7200,) * 2)
        sweep(site.database, site.warehouse, grace=timedelta(0))
    end_forgettings(site, timedelta(0))
    return known(site, one)


def check_gone(site: MergeSite, one: Forgetting, folder: Path, images: Images | None = None) -> None:
    """The forgetting comes to its end, and no file below ``folder`` holds what is Ada's."""
    assert gone(site, one, images).state is ForgettingState.GONE
    assert traces(folder, ADA, STREET) == []


def row(site: MergeSite, images: Images, table: Table, mail: str, *, latest: bool = True) -> dict[str, Any] | None:
    consistency = Consistency.LATEST if latest else Consistency.MERGED
    with site.database.reading() as repository:
        now = repository.tables.existing(table.id)
        return get_rows(repository, images, now, [(mail,)], consistency)[0].row


def row_at(site: MergeSite, images: Images, table: Table, mail: str, version: str) -> dict[str, Any] | None:
    """The row in a snapshot, by number or tag."""
    with site.database.reading() as repository:
        view = view_at(repository, repository.tables.existing(table.id), version)
        body = find(view, images, (mail,), view.columns).body

    return None if body is None else json.loads(body)


def traces(folder: Path, *texts: str) -> list[str]:
    """The files below ``folder`` that hold one of ``texts``: in their bytes, or in what Parquet makes of them."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and _has(path, texts))


def _has(path: Path, texts: Sequence[str]) -> bool:
    content = path.read_bytes()
    if content[:4] == b"PAR1" and content[-4:] == b"PAR1":
        content += repr(pq.ParquetFile(path).read().to_pylist()).encode()
    if content[:4] == b"Obj\x01":  # Avro, deflated
        content += repr([*fastavro.reader(io.BytesIO(content))]).encode()
    return any(text.encode() in content for text in texts)
