"""The kinds of types there are, and the families they fall into."""

from __future__ import annotations

from enum import Enum, StrEnum, auto


class Kind(StrEnum):
    """One kind of type by its Paimon name; ``app.core.types.datatype.ENTRIES`` says what it is."""

    BOOLEAN = "BOOLEAN"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INT"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    DECIMAL = "DECIMAL"
    CHAR = "CHAR"
    VARCHAR = "VARCHAR"
    STRING = "STRING"
    BINARY = "BINARY"
    VARBINARY = "VARBINARY"
    BYTES = "BYTES"
    DATE = "DATE"
    TIME = "TIME"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_LTZ = "TIMESTAMP_LTZ"
    ARRAY = "ARRAY"
    MULTISET = "MULTISET"
    MAP = "MAP"
    ROW = "ROW"


class Family(Enum):
    """Kinds whose values are the same thing, for any size."""

    BOOLEAN = auto()
    INTEGER = auto()
    FLOATING = auto()
    DECIMAL = auto()
    TEXT = auto()
    BINARY = auto()
    DATE = auto()
    TIME = auto()
    TIMESTAMP = auto()
    ARRAY = auto()
    MAP = auto()
    ROW = auto()
