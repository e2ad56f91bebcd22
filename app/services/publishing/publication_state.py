"""The state of a publication: its newest version, how far it is behind, and how other engines read it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from app.catalog.repository import Repository
from app.catalog.snapshots.published_versions import Behind, Next
from app.core.plan.merging.published_runs import follows_merges
from app.core.table.history import Table
from app.core.table.published import Format, PublishedVersion
from app.files.layout import Warehouse, table_folder
from app.services.publishing.publications import lags
from app.storage.iceberg.metadata import metadata_file

_TOKEN: Final = "KEYFOLD_TOKEN"  # noqa: S105  # where the reader puts the token
_TRINO_TOKEN: Final = {"security": "OAUTH2", "oauth2.token": _TOKEN}


@dataclass(frozen=True)
class Endpoint:
    """The URL of this service, as the caller knows it, and whether it takes a token."""

    service: str
    with_token: bool


@dataclass(frozen=True)
class PublicationState:
    """The newest version that readers see, None before the first; ``earliest`` is the oldest kept one.

    ``behind`` are the batches that are not in it, at ``now``. ``waiting`` says why, and what to do; None if nothing
    is missing. ``path`` is the table's folder; ``read_by`` the line to paste, by engine, None before the first version.
    """

    publishes: bool
    newest: PublishedVersion | None
    earliest: PublishedVersion | None
    behind: Behind
    now: datetime
    waiting: str | None
    path: str
    read_by: Mapping[str, str] | None

    @property
    def behind_millis(self) -> int:
        """How long the oldest unpublished batch has been waiting, in milliseconds."""
        oldest = self.behind.oldest_accepted_at
        return 0 if oldest is None else max(0, int((self.now - oldest).total_seconds() * 1000))


def publication_state(
    repository: Repository, warehouse: Warehouse, table: Table, form: Format, endpoint: Endpoint
) -> PublicationState:
    """Return the state of the table's publication as ``form``; the table was read in the same transaction."""
    versions = repository.published.page(table.id, form)
    written = [version for version in versions if version.written_at is not None]
    newest = written[-1] if written else None
    return PublicationState(
        table.schema.parsed[form.publish],
        newest,
        written[0] if written else None,
        repository.published.behind_of(table.id, newest.as_of if newest else 0),
        repository.now(),
        _waiting(repository, table, form, versions),
        warehouse.uri(*table_folder(table.id)),
        _READ_BY[form](warehouse, table, newest, endpoint) if newest else None,
    )


def _waiting(repository: Repository, table: Table, form: Format, versions: list[PublishedVersion]) -> str | None:
    if not table.schema.parsed[form.publish]:
        return f"nothing is published: set {form.publish} = true" + (
            ", to go on from the version below" if versions else ""
        )
    if table.snapshot_id is None:
        return "nothing was merged yet"
    pending = [version.version for version in versions if version.written_at is None]
    if pending:
        return f"a worker is about to write version {pending[0]}; if it stays so, its log says why"
    if versions and follows_merges(table.schema, form):
        return _FOLLOWING[repository.published.next_of(versions[-1])](repository.stats.staged(table.id).batches)
    if lags(repository, table, form):
        return f"the next full compaction publishes what was merged: POST …/compact, or set {form.interval}"
    if repository.stats.staged(table.id).batches:
        return "batches are staged: once they are merged, the next full compaction publishes them"
    return None


_FOLLOWING: Mapping[Next, Callable[[int], str | None]] = {
    Next.NOTHING: lambda staged: (
        "batches are staged: once they are merged, the next version has them" if staged else None
    ),
    Next.VERSION: lambda _: "a worker is about to publish what was merged, or waits until the interval is over",
    Next.COMPACTION: lambda _: "changelogs lack changes, or have too many: a full compaction will publish them",
}
"""Why batches are not in the newest version of a table whose versions follow its merges, by what comes next."""


def _delta(warehouse: Warehouse, table: Table, _: PublishedVersion, __: Endpoint) -> dict[str, str]:
    """Return the location for Delta's readers: the folder, independent of the table's name."""
    folder = table_folder(table.id)
    place = warehouse.path(*folder) if warehouse.local else warehouse.uri(*folder)
    schema, name = _text(table.database), _text(table.name)
    location = _text(warehouse.uri(*folder))
    return {
        "duckdb": f"INSTALL delta; LOAD delta; SELECT * FROM delta_scan({_text(place)});",  # noqa: S608  # to be pasted, and quoted
        "polars": f"polars.scan_delta({_literal(place)}).collect()",
        "spark": f'spark.read.format("delta").load({_literal(warehouse.spark_uri(*folder))})',
        "trino": f"CALL delta.system.register_table(schema_name => {schema}, table_name => {name},"
        f" table_location => {location})",
    }


def _iceberg(warehouse: Warehouse, table: Table, newest: PublishedVersion, endpoint: Endpoint) -> dict[str, str]:
    """Return the location for Iceberg's readers: the catalog. Readers without a catalog use the metadata of the newest
    version.
    """
    uri = f"{endpoint.service.rstrip('/')}/iceberg"
    in_sql, in_spark = (f"keyfold.{_name(table.database, q)}.{_name(table.name, q)}" for q in ('"', "`"))
    names = f"({_literal(table.database)}, {_literal(table.name)})"
    token = f", token={_literal(_TOKEN)}" if endpoint.with_token else ""
    loaded = f'load_catalog("keyfold", type="rest", uri={_literal(uri)}{token}).load_table({names})'
    options = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": uri}
    options |= {".token": _TOKEN} if endpoint.with_token else {}
    spark = "".join(f'.config("spark.sql.catalog.keyfold{key}", {_literal(text)})' for key, text in options.items())
    secret = f"CREATE SECRET keyfold (TYPE iceberg, TOKEN {_text(_TOKEN)}); " if endpoint.with_token else ""
    access = "SECRET keyfold" if endpoint.with_token else "AUTHORIZATION_TYPE 'none'"
    attach = f"ATTACH 'keyfold' (TYPE iceberg, ENDPOINT {_text(uri)}, {access});"
    select = f"SELECT * FROM {in_sql};"  # noqa: S608  # the same
    trino = {"connector.name": "iceberg", "iceberg.catalog.type": "rest", "iceberg.rest-catalog.uri": uri}
    trino["fs.hadoop.enabled" if warehouse.local else "fs.native-s3.enabled"] = "true"
    trino |= {f"iceberg.rest-catalog.{key}": text for key, text in _TRINO_TOKEN.items()} if endpoint.with_token else {}
    return {
        "pyiceberg": f"{loaded}.scan().to_arrow()",
        "duckdb": f"INSTALL iceberg; LOAD iceberg; {secret}{attach} {select}",
        "polars": f"polars.scan_iceberg({loaded}).collect()",
        "spark": f"SparkSession.builder{spark}.getOrCreate().table({_literal(in_spark)})",
        "trino": ", ".join(f"{key}={text}" for key, text in trino.items()),
        "metadata": warehouse.uri(*metadata_file(newest)),
    }


_READ_BY: Mapping[Format, Callable[[Warehouse, Table, PublishedVersion, Endpoint], dict[str, str]]] = {
    Format.DELTA: _delta,
    Format.ICEBERG: _iceberg,
}


def _literal(text: str) -> str:
    """Return a text as a Python literal, which cannot hold surrogates."""
    return json.dumps(text, ensure_ascii=False)


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _name(name: str, quote: str) -> str:
    """Return a name as SQL has it, with ``quote`` around one that needs it."""
    return name if name.isidentifier() else quote + name.replace(quote, quote * 2) + quote
