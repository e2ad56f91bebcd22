"""The format of a file by its name: the media type of its records, and its compression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ENDINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "text/csv": (".csv",),
    "application/x-ndjson": (".ndjson", ".jsonl", ".jsonlines"),
    "application/json": (".json",),
    "application/vnd.apache.parquet": (".parquet", ".pq"),
    "application/vnd.apache.arrow.stream": (".arrow", ".arrows", ".feather", ".ipc"),
}
CODINGS: Final[Mapping[str, str]] = {".gz": "gzip", ".zst": "zstd"}


def media_type_and_coding(name: str) -> tuple[str | None, str]:
    """Return the media type for a file name, None if unknown, and its content coding, "" if it is not compressed."""
    ending = next((coding for coding in CODINGS if name.lower().endswith(coding)), "")
    plain = name.lower().removesuffix(ending)
    media_type = next((kind for kind, endings in ENDINGS.items() if plain.endswith(endings)), None)
    return media_type, CODINGS.get(ending, "")
