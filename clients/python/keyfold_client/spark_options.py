"""The options of ``format("keyfold")``."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from keyfold_client.errors import Misuse
from keyfold_client.sync.client import Client

PATIENCE_SECONDS: Final = 600.0  # that a task asks again for: a task that fails costs more
OF_ALL: Final = frozenset({"url", "token", "path"})
READ: Final = OF_ALL | {"columns", "filter", "pushfilters", "asof", "partitions", "changes"}
FOLLOWED: Final = OF_ALL | {"columns", "changes", "since"}
WRITTEN: Final = OF_ALL | {"idempotencykey"}
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})


@dataclass(frozen=True)
class Settings:
    """The options of a read or a write."""

    url: str
    token: str | None = field(repr=False)
    table: str
    columns: tuple[str, ...] | None
    filters: tuple[str, ...]
    pushes_filters: bool
    as_of: str | None
    partitions: int | None
    changes: bool
    since: int | None
    idempotency_key: str | None

    @classmethod
    def from_options(cls, options: Mapping[str, str], known: AbstractSet[str]) -> Settings:
        """Return what the options say. Raise ``Misuse`` for those that are not ``known`` here, and for a missing URL or
        table.
        """
        given = {name.lower(): value for name, value in options.items()}
        if unknown := sorted(given.keys() - known - _OF_SPARK):
            raise Misuse(f"unknown options: {', '.join(unknown)}; options here are {', '.join(sorted(known))}")
        if missing := [name for name in ("url", "path") if not given.get(name)]:
            raise Misuse(f"missing: {', '.join(missing)}; write .option('url', 'http://…').load('database.table')")
        numbers = {name: _number(given, name) for name in ("partitions", "since")}
        return cls(
            url=given["url"],
            token=given.get("token"),
            table=given["path"],
            columns=tuple(name.strip() for name in given["columns"].split(",")) if given.get("columns") else None,
            filters=tuple(line for line in given.get("filter", "").splitlines() if line),
            pushes_filters=_flag(given, "pushfilters"),
            as_of=given.get("asof"),
            partitions=numbers["partitions"],
            changes=_flag(given, "changes"),
            since=numbers["since"],
            idempotency_key=given.get("idempotencykey"),
        )

    def client(self) -> Client:
        """Return a client of the service."""
        return Client(self.url, self.token, patience_seconds=PATIENCE_SECONDS)


def _flag(given: Mapping[str, str], name: str) -> bool:
    text = given.get(name, "false").lower()
    if text not in {"true", "false"}:
        raise Misuse(f"{name} is true or false, not {text!r}")
    return text == "true"


def _number(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise Misuse(f"{name} is a whole number from 1 on, not {text!r}")
    return int(text)
