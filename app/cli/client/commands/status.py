"""``keyfold status``: of a service, or of a table."""

from __future__ import annotations

from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import Annotated, Any

import httpx
import typer

from app.cli.client.endings import Exit, Failure
from app.cli.client.service import Service, path_of
from app.cli.client.settings import AsJson, TokenFile, Url
from app.cli.client.shown import many, moment, plain, say, say_json, say_pairs
from app.core.quantities import sized, spanned
from keyfold_client import Refused

commands = typer.Typer()
Stats = dict[str, Any]
_PARTS = ("catalog", "warehouse", "spark")


@commands.command()
def status(
    table: Annotated[
        str | None, typer.Argument(metavar="[DATABASE.TABLE]", help="the table whose size and backlog to show")
    ] = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Show whether the service is ready (exit status 6 if not), or the size and backlog of a table."""
    with Service.at(url, token_file) as service:
        service.patience_seconds = 0.0  # one try: the present state is wanted
        if table is None:
            _of_service(service, as_json)
        else:
            answer = service.ask("GET", path_of(table, "/stats"))
            stats = service.read(answer)
            if as_json:
                say_json(stats)
            else:
                _of_table(table, stats, _clock(answer))


def _clock(answer: httpx.Response) -> float:
    """Return the seconds since 1970 of the service, whose clock may differ from this machine's."""
    return parsedate_to_datetime(answer.headers["Date"]).timestamp()


def _of_table(table: str, stats: Stats, now: float) -> None:
    """Print the counts in one line and the sizes in another, then only what needs attention."""
    rows = stats["storedRows"] if stats["rows"] is None else stats["rows"]
    about = "at most " if stats["rows"] is None else ""
    held = f"{about}{many(rows, 'row')} in {many(stats['runs'], 'run')}, {sized(stats['sizeBytes'])}"
    say(f"{table}: {held}, {_staged(stats['staged'], now)}, {_merged(stats['lastMerge'], now)}")
    disk = [f"{sized(size)} {name.removesuffix('Bytes')}" for name, size in stats["disk"].items() if size]
    say_pairs([("on disk", ", ".join(disk) or "nothing"), *_odd(stats, now)])


def _staged(staged: Stats, now: float) -> str:
    if not staged["batches"]:
        return "nothing staged"
    since = _ago(staged["oldestAcceptedAt"], now)
    return f"{many(staged['records'], 'record')} in {many(staged['batches'], 'batch')} staged, the oldest {since}"


def _merged(job: Stats | None, now: float) -> str:
    return "never merged" if job is None else f"merged {_ago(job['finishedAt'], now)}"


def _ago(millis: int, now: float) -> str:
    return f"{spanned(now - millis / 1000)} ago"


def _odd(stats: Stats, now: float) -> Iterator[tuple[str, str]]:
    """Yield each thing that needs attention, with its fix."""
    overdue, waits, failure = stats["overdue"], stats["mergesWait"], stats["compactionFailure"]
    if overdue is not None:
        yield "overdue", f"by {spanned(overdue['byMillis'] / 1000)}: {plain(overdue['detail'])}"
    if waits is not None:
        until = f"until the compaction {waits['compactionId']} ends, or {moment(waits['until'])}"
        yield "merges wait", f"for fewer than {many(waits['stopTrigger'], 'run')}: {until}"
    if failure is not None:
        last = f"the last {_ago(failure['lastAt'], now)}: {plain(failure['error'])}"
        yield "compactions fail", f"{failure['inARow']} in a row, {last}"
    if stats["setAside"]:
        yield (
            "set aside",
            f"{many(stats['setAside'], 'batch')} in no merge: GET …/batches?state=poisoned (or damaged) says why",
        )
    if stats["setAsideEvents"]:
        yield "set aside", f"{many(stats['setAsideEvents'], 'event')} with faults: GET …/set-aside-events"
    for column in stats["ignoredColumns"]:
        yield "ignored column", f"{column['name']}, in {many(column['records'], 'record')}"


def _of_service(service: Service, as_json: bool) -> None:
    readiness = _readiness(service)
    if as_json:
        say_json(readiness)
    else:
        parts = [(part, "ready" if readiness[part] else readiness["reasons"].get(part)) for part in _PARTS]
        say_pairs([("url", service.url), *parts])
    if readiness["status"] != "ok":
        reasons = "; ".join(f"{part}: {reason}" for part, reason in readiness["reasons"].items())
        raise Failure(Exit.BUSY, f"not ready: {reasons}", payload=readiness)


def _readiness(service: Service) -> Any:
    try:
        return service.json("GET", "/readyz")
    except Refused as refused:
        if "reasons" not in refused.problem:
            raise
        return refused.problem
