"""The text of statements: lines and columns of places, and blanking of comments."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from app.core.errors import About, FaultCode, Violation
from app.core.types.dialects import DOUBLE_QUOTED, TEXT, Dialect

POINTER = "/ddl"
_EXCERPT = 100  # characters of a line that are shown before and after a place
_LEXEMES = {
    dialect: re.compile(
        rf"(?P<quoted>{TEXT[dialect]}|{DOUBLE_QUOTED[dialect]}|`(?:[^`]|``)*`)|(?P<comment>--[^\n]*|/\*.*?\*/)|(?P<end>;)",
        re.DOTALL,
    )
    for dialect in Dialect
}
# What only Spark's statements have, outside quotes and comments.
_OF_SPARK = re.compile(
    r"\)\s*(?:COMMENT\s*)?USING\b|\bUSING\s+(?:PAIMON|DELTA|ICEBERG|PARQUET|ORC|CSV|JSON|HIVE)\b|\bTBLPROPERTIES\b|\bSTORED\s+BY\b|\bSTRUCT\s*\\?<"
    r"|\bTIMESTAMP_NTZ\b|[\w`]\s+(?:LONG|SHORT|BYTE)\s*(?:,|\)|NOT\b|COMMENT\b|DEFAULT\b)",
    re.IGNORECASE,
)


def dialect_of(text: str) -> Dialect:
    """Return the dialect that the text is written in: Flink's where it has no sign of Spark's."""
    bare = _LEXEMES[Dialect.SPARK].sub(lambda lexeme: " " if lexeme["comment"] or lexeme["quoted"] else ";", text)
    return Dialect.SPARK if _OF_SPARK.search(bare) else Dialect.FLINK


@dataclass(frozen=True)
class Source:
    """The SQL text of a request."""

    text: str
    dialect: Dialect

    def statements(self) -> Iterator[tuple[int, str]]:
        """Yield each statement that is not empty, with the place where it begins.

        Comments become blanks, and so do the backslashes before brackets that a Markdown page adds.
        """
        bare, start, end = [], 0, 0
        for lexeme in _LEXEMES[self.dialect].finditer(self.text):
            bare.append(_unescaped(self.text[end : lexeme.start()]))
            end = lexeme.end()
            if lexeme["end"]:
                yield from _if_any(start, "".join(bare))
                bare, start = [], end
            else:
                bare.append(re.sub(r"[^\n]", " ", lexeme[0]) if lexeme["comment"] else lexeme[0])
        yield from _if_any(start, "".join([*bare, _unescaped(self.text[end:])]))

    def fault(self, place: int, code: FaultCode, message: str, fix: str = "") -> Violation:
        """Return a fault, or a warning, about the text at ``place``; its message shows the line, with a caret below."""
        line = bisect_right(self._lines, place)
        start = self._lines[line - 1]
        first = max(start, place - _EXCERPT)
        shown = self.text[first : place + _EXCERPT].partition("\n")[0]
        placed = f"line {line}, column {place - start + 1}: {message}\n{shown}\n{' ' * (place - first)}^"
        return Violation(POINTER, code, placed, fix, about=About(offset=place, short_message=message))

    @cached_property
    def _lines(self) -> list[int]:
        """Where each line begins, looked up once: a text may have thousands of faults."""
        return [0, *(lexeme.end() for lexeme in re.finditer("\n", self.text))]


def _unescaped(bare: str) -> str:
    r"""Code without quotes as it is in pages of Paimon's documentation: ``MAP\<STRING, STRING>``."""
    return re.sub(r"\\(?=[<>])", " ", bare)


def _if_any(start: int, statement: str) -> Iterator[tuple[int, str]]:
    blanks = len(statement) - len(statement.lstrip())
    if statement.strip():
        yield start + blanks, statement[blanks:]
