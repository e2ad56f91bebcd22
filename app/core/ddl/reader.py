"""CREATE TABLE statements of Flink's and Spark's SQL, read into Paimon's JSON of tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lark import Lark, UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from app.core.ddl.elements import Elements, Node
from app.core.ddl.grammar import create_table_parser
from app.core.ddl.source import POINTER, Source, dialect_of
from app.core.errors import ErrorCode, FaultCode, Invalid, Violation
from app.core.types.dialects import Dialect
from app.core.types.kinds import Kind

DEEPEST = 60  # brackets inside each other
# Longest text of all statements; it is read in about two seconds.
MOST_CHARACTERS = 2**18
MOST_STATEMENTS = 100
_BEGINS = re.compile(r"CREATE\s+(?:(?:OR\s+REPLACE|TEMPORARY|EXTERNAL)\s+)*TABLE\b", re.IGNORECASE)
_NOT_TAKEN: Mapping[str, tuple[str, str]] = {
    "LIKE": ("LIKE is not taken", "write the columns: GET …/tables/{table}/ddl of the other table shows them"),
    "AS": ("AS SELECT is not taken", "write the columns, then POST the rows"),
    "SELECT": ("AS SELECT is not taken", "write the columns, then POST the rows"),
    Kind.ROW: ("ROW FORMAT is not taken", "remove the clause"),
    "STORED": ("STORED is not taken", "remove the clause"),
}
# Signs that no statement has, but the text around one.
_STRAY: Mapping[str, tuple[FaultCode, str, str]] = {
    "..": (FaultCode.NOT_SQL, "dots stand for parts that are left out", "write the parts"),
    "[": (
        FaultCode.CLAUSE_NOT_TAKEN,
        "square brackets are Trino's SQL, not Flink's or Spark's",
        "of primary_key = ARRAY['a', 'b'] make 'primary-key' = 'a,b', and so on",
    ),
}


@dataclass(frozen=True)
class TableStatement:
    """One CREATE TABLE: the table's name, last in its ``path``, and the schema as Paimon's JSON, not yet checked."""

    source: Source
    path: tuple[str, ...]
    body: Mapping[str, Any]
    if_not_exists: bool
    places: Mapping[str, int]
    warnings: tuple[Violation, ...]

    @property
    def name(self) -> str:
        """The table's own name."""
        return self.path[-1]

    def in_source(self, faults: Iterable[Violation]) -> list[Violation]:
        """Return faults of ``{identifier, schema}`` as faults of the statement, each at the part that it is about."""
        return [self._placed(fault) for fault in faults]

    def _placed(self, fault: Violation) -> Violation:
        pointer = fault.pointer
        while pointer not in self.places:
            pointer = pointer.rpartition("/")[0]
        placed = self.source.fault(self.places[pointer], fault.code, fault.message, fault.fix)
        return replace(placed, about=replace(placed.about, option=fault.about.option, columns=fault.about.columns))


def read_tables(text: str, dialect: Dialect | None = None) -> list[TableStatement]:
    """Return the tables that the statements of ``text`` create, in the order of the statements.

    Raise ``Invalid`` with every fault of every statement that does not read as CREATE TABLE. The validation of a
    schema, which comes later, reports the schema's own faults.
    """
    _check_size(len(text), MOST_CHARACTERS, FaultCode.TOO_LONG, "characters")
    source = Source(text, dialect or dialect_of(text))
    parts = [*source.statements()]
    _check_size(len(parts), MOST_STATEMENTS, FaultCode.TOO_MANY, "statements")
    statements, faults = [], []
    for base, statement in parts:
        read = _read(source, base, statement)
        if isinstance(read, Violation):
            faults.append(read)
            continue
        faults += read.faults
        made = TableStatement(source, read.path, read.body, read.if_not_exists, read.places, tuple(read.warnings))
        statements.append(made)
    if not statements and not faults:
        faults.append(source.fault(0, FaultCode.NOT_SQL, "there is no statement", "write CREATE TABLE …"))
    if faults:
        raise Invalid(faults[0].message, code=ErrorCode.INVALID_SCHEMA, violations=faults)
    return statements


def _check_size(size: int, most: int, code: FaultCode, what: str) -> None:
    if size > most:
        message = f"the text has {size} {what}, at most {most} are allowed"
        fault = Violation(POINTER, code, message, "send fewer statements at a time")
        raise Invalid(message, code=ErrorCode.INVALID_SCHEMA, violations=[fault])


def _read(source: Source, base: int, statement: str) -> Elements | Violation:
    if not _BEGINS.match(statement):
        return source.fault(base, FaultCode.NOT_SQL, "only CREATE TABLE is read here", "remove the other statements")
    deep = _too_deep(statement)
    if deep is not None:
        fix = f"nest at most {DEEPEST} levels"
        return source.fault(base + deep, FaultCode.NESTED_TOO_DEEPLY, "brackets are nested too deeply", fix)
    try:
        tree: Node = _parsed(create_table_parser(source.dialect), statement)
    except UnexpectedInput as error:
        return _syntax_fault(source, base, statement, error)
    return Elements(source, base, statement, tree)


def _parsed(parser: Lark, statement: str) -> Any:
    return parser.parse(statement)


def _too_deep(statement: str) -> int | None:
    """Return where brackets, those in quotes too, are deeper than reading them may go."""
    depth = 0
    for place, character in enumerate(statement):
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(character, 0)
        depth = max(depth, 0)
        if depth > DEEPEST:
            return place
    return None


def _syntax_fault(source: Source, base: int, statement: str, error: UnexpectedInput) -> Violation:
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        end = len(statement.rstrip())
        return source.fault(base + end, FaultCode.NOT_SQL, "the statement ends too early", "close what is open")
    place = error.pos_in_stream or 0
    if isinstance(error, UnexpectedCharacters):
        word = statement[place : place + 1]
    else:
        word = str(getattr(error, "token", statement[place : place + 1]))
    if word.upper() in _NOT_TAKEN:
        message, fix = _NOT_TAKEN[word.upper()]
        return source.fault(base + place, FaultCode.CLAUSE_NOT_TAKEN, message, fix)
    for sign, (code, message, fix) in _STRAY.items():
        if statement.startswith(sign, place):
            return source.fault(base + place, code, message, fix)
    message = f"{word[:40]!r} cannot stand here"
    fix = "write it as in Flink's or Spark's SQL; put names that are keywords into backquotes"
    return source.fault(base + place, FaultCode.NOT_SQL, message, fix)
