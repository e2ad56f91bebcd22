"""``keyfold export``: all rows of one moment in a file."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import httpx
import typer
from rich.console import Console
from rich.progress import Progress

from app.cli.client.commands.scans import PAGE_ROWS, Filters, Merged, Params, Version, scan_params
from app.cli.client.endings import Failure, usage
from app.cli.client.failures import failure_of
from app.cli.client.service import Service, path_of
from app.cli.client.settings import TableName, TokenFile, Url
from app.cli.client.shown import report
from app.core.quantities import sized
from keyfold_client import Refused

commands = typer.Typer()
PATIENCE_SECONDS: Final = 600.0
_STATE, _WHOLE = "export.json", "whole"


class ExportFormat(StrEnum):
    """The format of the file."""

    CSV = "csv"
    NDJSON = "ndjson"
    PARQUET = "parquet"


@dataclass(frozen=True)
class _Entry:
    """A format: its media type for the service, the suffixes of its files, and how pages become one file."""

    media_type: str
    suffixes: tuple[str, ...]
    join: Callable[[list[Path], Path], None]


def _join_lines(pages: list[Path], into: Path) -> None:
    with into.open("wb") as whole:
        for page in pages:
            with page.open("rb") as rows:
                shutil.copyfileobj(rows, whole)


def _join_csv(pages: list[Path], into: Path) -> None:
    """Join pages of CSV with the header of the first one."""
    with into.open("wb") as whole:
        for place, page in enumerate(pages):
            with page.open("rb") as rows:
                header = rows.readline()
                while header.count(b'"') % 2:  # the name of a column holds a line break
                    header += rows.readline()
                whole.write(b"" if place else header)
                shutil.copyfileobj(rows, whole)


def _join_parquet(pages: list[Path], into: Path) -> None:
    from app.cli.client.columnar import write_parquet  # noqa: PLC0415  # PyArrow is slow to load

    write_parquet(pages, into)


_ENTRIES: Final[Mapping[ExportFormat, _Entry]] = {
    ExportFormat.CSV: _Entry("text/csv", (".csv",), _join_csv),
    ExportFormat.NDJSON: _Entry("application/x-ndjson", (".ndjson", ".jsonl"), _join_lines),
    ExportFormat.PARQUET: _Entry("application/vnd.apache.arrow.stream", (".parquet",), _join_parquet),
}


@commands.command()
def export(
    table: TableName,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="its name gives the format: .csv, .ndjson, .parquet")],
    form: Annotated[ExportFormat | None, typer.Option("--format", help="[default: by the file's name]")] = None,
    columns: Annotated[str | None, typer.Option(help="those to write, with commas")] = None,
    filters: Filters = None,
    snapshot: Version = None,
    merged: Merged = False,
    force: Annotated[bool, typer.Option("--force", help="replace the file if it is there")] = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Write the rows of a table as of one moment to a file. After an interruption run it again: it continues."""
    chosen = form or _form_of(file)
    if file.exists() and not force:
        raise usage(f"{file} is there already", "  → --force replaces it")
    params = scan_params(filters, columns=columns, snapshot=snapshot, consistency="merged" if merged else None)
    entry = _ENTRIES[chosen]
    with Service.at(url, token_file) as service:
        service.patience_seconds = PATIENCE_SECONDS
        pages = Pages(file, Export(service.url, table, entry.media_type, params))
        with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
            shown = bar.add_task(file.name, total=_pages_in_all(service, pages.export))
            for count in pages.read(service):
                bar.update(shown, completed=count)
    entry.join(pages.paths, pages.folder / _WHOLE)
    (pages.folder / _WHOLE).replace(file)
    shutil.rmtree(pages.folder)
    report(f"{file}: {sized(file.stat().st_size)}")


def _form_of(file: Path) -> ExportFormat:
    for form, entry in _ENTRIES.items():
        if file.suffix.lower() in entry.suffixes:
            return form
    raise usage(f"{file}: its name does not give its format", f"  → --format {'|'.join(ExportFormat)}")


@dataclass(frozen=True)
class Export:
    """The subject of an export."""

    url: str
    table: str
    media_type: str
    params: Params

    @property
    def as_json(self) -> list[Any]:
        """Return the export as JSON."""
        return [self.url, self.table, self.media_type, *([name, value] for name, value in self.params)]


class Pages:
    """The pages so far, in a folder next to the file, and where the next begins. All are of one snapshot."""

    def __init__(self, file: Path, export: Export) -> None:
        """Raise ``Failure`` if the folder has the pages of another export."""
        self.folder, self.export = file.with_name(f"{file.name}.part"), export
        self.count, self.following = 0, None
        if (self.folder / _STATE).exists():
            begun = json.loads((self.folder / _STATE).read_text())
            if begun["asked"] != export.as_json:
                how = "  → remove it, or write to another file"
                raise usage(f"{self.folder} is what another export has begun", how)
            self.count, self.following = begun["count"], begun["following"]

    @property
    def paths(self) -> list[Path]:
        """The pages, in order."""
        return [self.folder / f"page-{number}" for number in range(self.count)]

    def read(self, service: Service) -> Iterator[int]:
        """Request the missing pages, and yield their number so far after each. Raise as ``Service.ask``."""
        self.folder.mkdir(parents=True, exist_ok=True)
        while not self.count or self.following is not None:
            self._keep(self._next(service))
            yield self.count

    def _next(self, service: Service) -> httpx.Response:
        """Return the next page. Raise ``Failure`` if the snapshot of the first page has expired."""
        path, headers = path_of(self.export.table, "/rows:scan"), {"Accept": self.export.media_type}
        params = [*self.export.params, ("limit", str(PAGE_ROWS))]
        if self.following is None:
            return service.ask("GET", path, params=params, headers=headers)
        params = [param for param in params if param[0] not in ("snapshot", "consistency")]
        try:
            return service.ask("GET", path, params=[*params, ("pageToken", self.following)], headers=headers)
        except Refused as refused:
            failure = failure_of(refused)
            how = f"  → remove {self.folder} to begin again: what it holds cannot be completed"
            raise Failure(failure.end, *failure.lines, how, payload=failure.payload) from refused

    def _keep(self, answer: httpx.Response) -> None:
        """Store a page, then record that it is complete."""
        self._write(f"page-{self.count}", answer.content)
        self.count, self.following = self.count + 1, answer.headers.get("Keyfold-Next-Page")
        begun = {"asked": self.export.as_json, "count": self.count, "following": self.following}
        self._write(f"{_STATE}.new", json.dumps(begun).encode())
        (self.folder / f"{_STATE}.new").replace(self.folder / _STATE)

    def _write(self, name: str, content: bytes) -> None:
        with (self.folder / name).open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())


def _pages_in_all(service: Service, export: Export) -> float | None:
    """Return the approximate number of pages; None with filters, since counting would take as long as reading."""
    if any(name == "filter" for name, _ in export.params):
        return None
    params = [param for param in export.params if param[0] != "columns"]
    count = service.json("GET", path_of(export.table, "/rows:count"), params=params)["count"]
    return max(1.0, float(count) / PAGE_ROWS)
