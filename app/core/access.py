"""Access: roles, the databases and tables that a token is for, and what is refused (docs/decisions/0025)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from app.core.errors import FaultCode, Forbidden, Invalid, Violation

MOST_PATTERNS: Final = 100
EVERYTHING: Final = "*"
# A name as it is, or in backticks, doubled inside: what means something in other patterns (% ? []) means itself there.
_NAME = r"(?:[\w-]{1,255}|`(?:[^`\x00-\x1f\x7f-\x9f\ud800-\udfff]|``){1,255}`)"
_PATTERN = re.compile(rf"({_NAME})\.(?:\*|({_NAME}))")
_PLAIN = re.compile(r"[\w-]+")


class Role(StrEnum):
    """The rights of a token; each role includes the one before it."""

    READ = "read"  # rows, schemas, histories: requests that store nothing
    WRITE = "write"  # adds records: batches, rows, merges, compactions, tags
    ADMIN = "admin"  # databases, tables and tokens; rollbacks and other ways to remove what was stored

    def includes(self, other: Role) -> bool:
        """Return whether this role may do what needs ``other``."""
        return _RANKS[self] >= _RANKS[other]


_RANKS = {role: rank for rank, role in enumerate(Role)}


@dataclass(frozen=True)
class TokenScope:
    """The databases and tables that a token is for: ``databases`` whole, with the tables they will have, single
    ``tables`` (database, table), or ``everything``: the service itself, its tokens included.
    """

    everything: bool = False
    databases: frozenset[str] = frozenset()
    tables: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def parse(cls, patterns: Sequence[str], pointer: str = "") -> Self:
        """Return the scope of all ``patterns``: ``*``, ``shop.*`` or ``shop.orders``; a name that is not plain stands
        in backticks.

        Raise ``Invalid`` with every pattern that is something else, below ``pointer``, and for none or too many.
        """
        faults = [*_illegal_count(len(patterns), pointer)]
        faults += [_illegal(text, f"{pointer}/{place}") for place, text in enumerate(patterns) if not _is_legal(text)]
        if faults:
            raise Invalid(faults[0].message, violations=faults)
        read = [_read(text) for text in patterns if text != EVERYTHING]
        whole = frozenset(database for database, table in read if table is None)
        tables = frozenset((database, table) for database, table in read if table is not None)
        return cls(EVERYTHING in patterns, whole, tables)

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns that say the same, in order."""
        named = [*(pattern_of(name) for name in self.databases), *(pattern_of(*names) for names in self.tables)]
        return (EVERYTHING,) if self.everything else tuple(sorted(named))

    def covers(self, database: str, table: str | None = None) -> bool:
        """Return whether it holds the table, or without one the whole database."""
        return self.everything or database in self.databases or (database, table) in self.tables

    def shows(self, database: str) -> bool:
        """Return whether it holds the database, or any table that the database may have."""
        return self.covers(database) or any(name == database for name, _ in self.tables)

    @property
    def shown_databases(self) -> Collection[str] | None:
        """The names of the databases that it shows; None for all."""
        return None if self.everything else self.databases | {database for database, _ in self.tables}

    def within(self, database: str) -> TokenScope:
        """Return the scope's part for one database."""
        if self.covers(database):
            return TokenScope(databases=frozenset([database]))
        return TokenScope(tables=frozenset(table for table in self.tables if table[0] == database))

    def shown_tables(self, database: str) -> Collection[str] | None:
        """Return the names of those tables of the database that it holds; None for all."""
        return None if self.covers(database) else {table for name, table in self.tables if name == database}


def pattern_of(database: str, table: str | None = None) -> str:
    """Return the pattern of one table, or of a whole database."""
    return f"{_quoted(database)}.{'*' if table is None else _quoted(table)}"


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else "`{}`".format(name.replace("`", "``"))


def _is_legal(text: str) -> bool:
    return text == EVERYTHING or _PATTERN.fullmatch(text) is not None


def _read(text: str) -> tuple[str, str | None]:
    match = _PATTERN.fullmatch(text)
    database, table = match.groups() if match else ("", None)
    return _unquoted(database), None if table is None else _unquoted(table)


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _illegal(text: str, pointer: str) -> Violation:
    message = f"{text[:100]!r} is no pattern of databases and tables"
    return Violation(pointer, FaultCode.ILLEGAL_SCOPE, message, _fix_of(text))


def _fix_of(text: str) -> str:
    forms = "write * for everything, shop.* for a database, shop.orders for a table"
    if re.fullmatch(_NAME, text):
        return f"{forms}; did you mean {text}.*?"
    return f"{forms}; put a name with other characters than letters, digits, _ and - into backticks"


def _illegal_count(count: int, pointer: str) -> Sequence[Violation]:
    if 1 <= count <= MOST_PATTERNS:
        return ()
    message = f"a token has 1 to {MOST_PATTERNS} patterns of databases and tables, not {count}"
    return [Violation(pointer, FaultCode.ILLEGAL_SCOPE, message, "write * for everything")]


@dataclass(frozen=True)
class Grant:
    """The role and scope of the caller with the token ``name``. Each ``check`` raises ``Forbidden``, which names the
    missing permission.
    """

    name: str
    role: Role
    scope: TokenScope

    def check_role(self, role: Role) -> None:
        """Raise ``Forbidden`` unless the token has the role, for an operation on no database and no table."""
        self._check(role, True)

    def check_service(self, role: Role) -> None:
        """Raise ``Forbidden`` unless the token has the role for the service itself."""
        self._check(role, self.scope.everything)

    def check_part(self, role: Role, database: str) -> None:
        """Raise ``Forbidden`` unless the token has the role for a part of the database, or all of it."""
        self._check(role, self.scope.shows(database), database)

    def check_database(self, role: Role, database: str) -> None:
        """Raise ``Forbidden`` unless the token has the role for the whole database."""
        self._check(role, self.scope.covers(database), database)

    def check_table(self, role: Role, database: str, table: str) -> None:
        """Raise ``Forbidden`` unless the token has the role for the table."""
        self._check(role, self.scope.covers(database, table), database, table)

    def _check(self, role: Role, covered: bool, *names: str) -> None:
        if not covered or not self.role.includes(role):
            raise self._refusal(role, covered, pattern_of(*names) if names else EVERYTHING)

    def _refusal(self, role: Role, covered: bool, pattern: str) -> Forbidden:
        fix = f"use a token that may: keyfold token create NAME --role {role} --on {shlex.quote(pattern)}"
        faults = []
        if not self.role.includes(role):
            message = f"this needs the role {role}, and the token {self.name!r} has the role {self.role}"
            faults.append(Violation("", FaultCode.MISSING_ROLE, message, fix))
        if not covered:
            held = ", ".join(self.scope.patterns[:10])
            message = f"this needs a token for {pattern}, and the token {self.name!r} is for {held}"
            faults.append(Violation("", FaultCode.MISSING_SCOPE, message, fix))
        return Forbidden("; ".join(fault.message for fault in faults), violations=faults)


EVERYBODY: Final = Grant("", Role.ADMIN, TokenScope(everything=True))
"""What everybody on this machine may do while no token was ever made; no one has a name then."""


@dataclass(frozen=True)
class ClaimRule:
    """The grant for tokens of an identity provider whose ``claim`` is, or lists, ``value``; for every valid token if
    no claim is named. A nested claim is written with a dot: ``realm_access.roles``.
    """

    role: Role
    scope: TokenScope
    claim: str | None = None
    value: str = ""

    def meets(self, claims: Mapping[str, object]) -> bool:
        """Return whether ``claims`` satisfy this rule."""
        if self.claim is None:
            return True
        actual = _claim(claims, self.claim)
        return self.value in actual if isinstance(actual, list) else isinstance(actual, str) and actual == self.value


def _claim(claims: object, name: str) -> object:
    """Return the claim of exactly this name, or the one inside another claim; None if there is none."""
    if not isinstance(claims, Mapping) or name in claims:
        return claims.get(name) if isinstance(claims, Mapping) else None
    outer, dot, inner = name.partition(".")
    return _claim(claims.get(outer), inner) if dot else None
