"""The dialects of SQL that types are written in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

from app.core.types.kinds import Kind


class Dialect(StrEnum):
    """Flink's SQL, whose types are also those of Paimon's REST catalog, and Spark's."""

    FLINK = "flink"
    SPARK = "spark"


# What Paimon makes of Spark's words that are no words of Flink, or mean something else there. None of them takes a
# parameter in Spark; a timestamp has six digits.
SPARK_WORDS: Mapping[str, Kind] = {
    "BYTE": Kind.TINYINT,
    "SHORT": Kind.SMALLINT,
    "LONG": Kind.BIGINT,
    "REAL": Kind.FLOAT,
    Kind.BINARY: Kind.BYTES,
    Kind.TIMESTAMP: Kind.TIMESTAMP_LTZ,
    Kind.TIMESTAMP_LTZ: Kind.TIMESTAMP_LTZ,
    "TIMESTAMP_NTZ": Kind.TIMESTAMP,
}

# Texts in quotes, as regular expressions in which a dot is any character.
TEXT: Mapping[Dialect, str] = {Dialect.FLINK: r"'(?:[^']|'')*'", Dialect.SPARK: r"'(?:[^'\\]|\\.|'')*'"}
DOUBLE_QUOTED: Mapping[Dialect, str] = {dialect: text.replace("'", '"') for dialect, text in TEXT.items()}

_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "0": "\0", "%": "\\%", "_": "\\_"}


def unquoted(token: str, dialect: Dialect) -> str:
    """Return the value of a quoted text or name."""
    quote, inner = token[0], token[1:-1]
    if quote == "`" or dialect is Dialect.FLINK:
        return inner.replace(quote * 2, quote)
    parts = inner.split(quote * 2)
    return quote.join(_ESCAPE.sub(_unescaped, part) for part in parts)


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else _ESCAPED.get(match[2], match[2])


def quoted_text(text: str, dialect: Dialect) -> str:
    """Return ``text`` as a literal of the dialect."""
    if dialect is Dialect.SPARK:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return "'" + text.replace("'", "''") + "'"
