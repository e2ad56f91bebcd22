"""``keyfold load``: files in batches, which count once, however often the command is run."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Any, Final

import typer
from rich.console import Console
from rich.progress import Progress

from app.cli.client.endings import Exit, Failure, exit_of, usage
from app.cli.client.pieces import Piece, text_pieces
from app.cli.client.service import Service, path_of
from app.cli.client.settings import AsJson, TableName, TokenFile, Url
from app.cli.client.shown import many, report, say_json
from app.core.file_names import media_type_and_coding
from keyfold_client import Refused
from keyfold_client.errors import MOST_FAULTS

commands = typer.Typer()
# A load waits this long for a service that is restarted, or full.
PATIENCE_SECONDS: Final = 600.0
STDIN: Final = Path("-")
_IN_NO_ANSWER = ("deleted", "damaged", "poisoned")  # the possible states of a batch that was sent before


class FileFormat(StrEnum):
    """The format of the records of a file."""

    CSV = "csv"
    NDJSON = "ndjson"
    PARQUET = "parquet"
    ARROW = "arrow"


@dataclass(frozen=True)
class _Entry:
    """A format: its media type over HTTP, and the function that cuts its files."""

    media_type: str
    pieces: Callable[[IO[bytes], str], Iterator[Piece]]
    seeks: bool = False  # it is not read sequentially


def _parquet(file: IO[bytes], salt: str) -> Iterator[Piece]:
    from app.cli.client.columnar import parquet_pieces  # noqa: PLC0415  # PyArrow takes as long to load as the rest

    return parquet_pieces(file, salt)


def _arrow(file: IO[bytes], salt: str) -> Iterator[Piece]:
    from app.cli.client.columnar import arrow_pieces  # noqa: PLC0415  # the same

    return arrow_pieces(file, salt)


_ENTRIES: Final = {
    FileFormat.CSV: _Entry("text/csv", partial(text_pieces, csv=True)),
    FileFormat.NDJSON: _Entry("application/x-ndjson", partial(text_pieces, csv=False)),
    FileFormat.PARQUET: _Entry("application/vnd.apache.parquet", _parquet, seeks=True),
    FileFormat.ARROW: _Entry("application/vnd.apache.arrow.stream", _arrow, seeks=True),
}


@dataclass
class _Loaded:
    """The result of loading one file."""

    file: Path
    records: int = 0
    batches: int = 0
    replayed: int = 0  # of the batches, those that were there already
    ignored: int = 0  # of the records, those that the table ignores
    set_aside: int = 0  # of the batches that were there already, those that are withdrawn or set aside


@commands.command()
def load(
    table: TableName,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="CSV and NDJSON also as .gz or .zst; - for standard input, with --format"
        ),
    ],
    form: Annotated[
        FileFormat | None, typer.Option("--format", help="[default: by the file's name]", show_default=False)
    ] = None,
    absent: Annotated[bool, typer.Option("--empty-absent", help="an empty CSV field is absent, not null")] = False,
    again: Annotated[
        str, typer.Option("--again", metavar="WORD", help="load records again that were loaded before, under this word")
    ] = "",
    url: Url = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Post the records of files, in order. After an interruption run the same command again: posted batches are
    recognized by their content, and count once.
    """
    chosen = [(file, form or _form_of(file)) for file in files]
    with Service.at(url, token_file) as service:
        service.ask("GET", path_of(table))  # nothing is read for a table that is not there
        service.patience_seconds = PATIENCE_SECONDS
        loaded = [_load(service, table, file, file_format, absent, again) for file, file_format in chosen]
    if as_json:
        say_json([{**vars(file_loaded), "file": str(file_loaded.file)} for file_loaded in loaded])
    if lost := sum(file_loaded.set_aside for file_loaded in loaded):
        what = f"{lost} of the batches, posted before, are set aside or withdrawn: their records are in no answer"
        raise Failure(Exit.REFUSED, what, "  → have them retried (…/batches/ID:retry), or load with --again WORD")


def _form_of(file: Path) -> FileFormat:
    media_type, coding = media_type_and_coding(file.name)
    form = next((file_format for file_format, entry in _ENTRIES.items() if entry.media_type == media_type), None)
    if form is None or (coding and _ENTRIES[form].seeks):
        raise usage(f"{file}: its name does not give its format", f"  → --format {'|'.join(FileFormat)}")
    return form


def _load(service: Service, table: str, file: Path, form: FileFormat, absent: bool, salt: str) -> _Loaded:
    """Load one file. Raise ``Failure``; batches that were posted before it stay in the table."""
    entry, loaded = _ENTRIES[form], _Loaded(file)
    params = {"emptyFields": "absent"} if absent and form is FileFormat.CSV else {}
    headers = {"Content-Type": entry.media_type}
    with _opened(file, seeks=entry.seeks) as opened, _progress(file) as show:
        plain = opened if entry.seeks else _unpacked(file, opened)
        for piece in _named(file, entry.pieces(plain, salt)):
            key = {"Idempotency-Key": f"keyfold-load-{piece.mark}"}
            try:
                request: dict[str, Any] = {"content": piece.body, "headers": headers | key, "params": params}
                answer = service.ask("POST", path_of(table, "/batches"), again=True, **request)
            except Refused as refused:
                raise _located(refused, file, piece) from refused
            _count(loaded, service.read(answer), replayed=answer.headers.get("Idempotency-Replayed") == "true")
            show(opened, loaded)
    ignored = f", {loaded.ignored} ignored" if loaded.ignored else ""
    known = f" ({loaded.replayed} of them there already)" if loaded.replayed else ""
    report(f"{file}: {many(loaded.records, 'record')}{ignored} in {many(loaded.batches, 'batch')}{known}")
    return loaded


def _count(loaded: _Loaded, batch: dict[str, Any], *, replayed: bool) -> None:
    loaded.records += batch["records"]
    loaded.ignored += batch["ignoredRecords"]
    loaded.batches += 1
    loaded.replayed += replayed
    if replayed and batch["state"] in _IN_NO_ANSWER:
        loaded.set_aside += 1
        report(f"warning: batch {batch['number']}, posted before, is {batch['state']}: its records are in no answer")


def _named(file: Path, pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Yield the pieces; faults of the file are reported with its name."""
    try:
        yield from pieces
    except Failure as failure:
        raise Failure(failure.end, f"{file}: {failure.lines[0]}", *failure.lines[1:]) from failure
    except OSError as error:
        raise usage(f"{file} cannot be read: {error.strerror or error}") from error


def _located(refused: Refused, file: Path, piece: Piece) -> Failure:
    """Return the refusal, with each fault if it is in the file."""
    end, faults = exit_of(refused.status), refused.faults
    if not faults:
        return Failure(end, f"{file}: {refused.message}", payload=refused.problem)
    lines = []
    for fault in faults[:MOST_FAULTS]:
        place = "" if fault.row is None else f", {piece.place(fault.row)}"
        lines += fault.lines(f"{file}{place}{'' if fault.column is None else f', column {fault.column}'}")
    lines += refused.more
    if piece.before and piece.lines and not all(fault.column for fault in faults):
        named = piece.body.count(b"\n", 0, piece.header) + 1
        lines.append(
            f"(a line that a message names is one of the batch: its line {named} is {piece.place(0)} of the file)"
        )
    return Failure(end, *lines, _stored_part(piece), payload=refused.problem)


def _stored_part(piece: Piece) -> str:
    if not piece.before:
        return "nothing of the file was stored; correct it and run the command again"
    first = f"the {piece.before} records before {piece.place(0)} are stored"
    if piece.lines:
        return f"{first}; correct the file from there on, run the command again, and they count once"
    return f"{first}; write the rows from there on to a new file, correct them, and load that"


@contextmanager
def _opened(file: Path, *, seeks: bool) -> Iterator[IO[bytes]]:
    """Open the file. Copy a pipe to a file first if the format is not read sequentially."""
    try:
        whole = nullcontext(sys.stdin.buffer) if file == STDIN else file.open("rb")
    except OSError as error:
        raise usage(f"{file} cannot be read: {error.strerror}") from error
    with whole as opened:
        if not seeks or _size(file) is not None:
            yield opened
            return
        with tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(opened, copy)
            copy.seek(0)
            yield copy


def _unpacked(file: Path, opened: IO[bytes]) -> IO[bytes]:
    """Return the text of the file, decompressed if its name says so: batches are identified by their text."""
    coding = media_type_and_coding(file.name)[1]
    if not coding:
        return opened
    from app.cli.client.columnar import unpacked  # noqa: PLC0415  # the same; zstandard does not see a file's cut end

    return unpacked(opened, coding)


def _size(file: Path) -> int | None:
    """Return the size of the file in bytes; None for standard input and pipes (``<(zcat orders.csv.gz)``)."""
    return file.stat().st_size if file != STDIN and file.is_file() else None


@contextmanager
def _progress(file: Path) -> Iterator[Callable[[IO[bytes], _Loaded], None]]:
    """Show at a terminal how much of the file is read; the last part of it may not be posted yet."""
    size = _size(file)
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        shown = bar.add_task(f"{file.name}: reading …", total=size)

        def show(opened: IO[bytes], loaded: _Loaded) -> None:
            done = None if size is None else min(opened.tell(), size)
            bar.update(shown, completed=done, description=f"{file.name}: {many(loaded.records, 'record')}")

        yield show
