"""The text of statements: where something stands in it, and what of it is no comment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from app.core.errors import FaultCode, Violation
from app.core.types.dialects import DOUBLE_QUOTED, TEXT, Dialect

POINTER = "/ddl"
_EXCERPT = 100  # characters of a line that are shown before and after a place
_LEXEMES = {
    one: re.compile(
        rf"(?P<quoted>{TEXT[one]}|{DOUBLE_QUOTED[one]}|`(?:[^`]|``)*`)|(?P<comment>--[^\n]*|/\*.*?\*/)|(?P<end>;)",
        re.DOTALL,
    )
    for one in Dialect
}
# What only Spark's statements have, outside quotes and comments.
_OF_SPARK = re.compile(
    r"\)\s*(?:COMMENT\s*)?USING\b|\bUSING\s+(?:PAIMON|DELTA|ICEBERG|PARQUET|ORC|CSV|JSON|HIVE)\b|\bTBLPROPERTIES\b|\bSTRUCT\s*<"
    r"|\bTIMESTAMP_NTZ\b|[\w`]\s+(?:LONG|SHORT|BYTE)\s*(?:,|\)|NOT\b|COMMENT\b|DEFAULT\b)",
    re.IGNORECASE,
)


def dialect_of(text: str) -> Dialect:
    """The dialect that the text is written in: Flink's where it has no sign of Spark's."""
    bare = _LEXEMES[Dialect.SPARK].sub(lambda found: " " if found["comment"] or found["quoted"] else ";", text)
    return Dialect.SPARK if _OF_SPARK.search(bare) else Dialect.FLINK


@dataclass(frozen=True)
class Source:
    """What a request says in SQL."""

    text: str
    dialect: Dialect

    def statements(self) -> Iterator[tuple[int, str]]:
        """The statements and where they begin, without what is empty; comments are blanks in them."""
        bare, start, end = [], 0, 0
        for found in _LEXEMES[self.dialect].finditer(self.text):
            bare.append(self.text[end : found.start()])
            end = found.end()
            if found["end"]:
                yield from _if_any(start, "".join(bare))
                bare, start = [], end
            else:
                bare.append(re.sub(r"[^\n]", " ", found[0]) if found["comment"] else found[0])
        yield from _if_any(start, "".join([*bare, self.text[end:]]))

    def fault(self, place: int, code: FaultCode, message: str, fix: str = "") -> Violation:
        """A fault, or a warning, about what stands at ``place``; its message shows the line, with a caret below."""
        before = self.text[:place]
        line, start = before.count("\n") + 1, before.rfind("\n") + 1
        end = self.text.find("\n", place)
        column = place - start
        first = max(0, column - _EXCERPT)
        shown = self.text[start : len(self.text) if end < 0 else end][first : column + _EXCERPT]
        caret = " " * (column - first) + "^"
        return Violation(POINTER, code, f"line {line}, column {column + 1}: {message}\n{shown}\n{caret}", fix)


def _if_any(start: int, statement: str) -> Iterator[tuple[int, str]]:
    blanks = len(statement) - len(statement.lstrip())
    if statement.strip():
        yield start + blanks, statement[blanks:]
