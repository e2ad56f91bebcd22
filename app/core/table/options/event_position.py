"""The values of ``fields.<column>.from-event``."""

from __future__ import annotations

from enum import StrEnum

from app.core.types.kinds import Kind


class EventPosition(StrEnum):
    """Values of ``fields.<column>.from-event``: what orders the change events of a source."""

    SOURCE_LSN = "source.lsn"  # PostgreSQL
    SOURCE_POS = "source.pos"  # MySQL, MariaDB: file and place
    SOURCE_COMMIT_LSN = "source.commit_lsn"  # SQL Server
    SOURCE_SCN = "source.scn"  # Oracle
    SOURCE_ORD = "source.ord"  # MongoDB: second and place
    SOURCE_TS_MS = "source.ts_ms"  # the time of the change
    SOURCE_TS_US = "source.ts_us"
    SOURCE_TS_NS = "source.ts_ns"
    TS_MS = "ts_ms"  # when Debezium read it
    ES = "es"  # Canal: the time of the change
    TS = "ts"  # Canal: when it read the change. Maxwell: the time of the change
    XOFFSET = "xoffset"  # Maxwell: the place in its transaction
    POSITION = "position"  # Maxwell: file and place

    @property
    def kind(self) -> Kind:
        """The type of column that holds it."""
        return Kind.STRING if self is EventPosition.SOURCE_COMMIT_LSN else Kind.BIGINT
