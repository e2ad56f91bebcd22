"""Paimon's options for its own files and writers. Keyfold accepts them, and lays out files by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from app.core.table.options.option import Change, Names, Option
from app.core.table.options.values import boolean, names, whole_number

_ENTRIES = (
    Option("bucket", whole_number, -1, "Paimon's bucket count"),
    Option(
        "bucket-key",
        names,
        (),
        "Paimon's bucket key",
        change=Change.NEVER,
        instead="leave it as it is: Keyfold lays out its files without it",
        names=Names.COLUMNS,
    ),
    Option("write-only", boolean, False, "Paimon's switch for compaction in the writer"),
    Option("deletion-vectors.enabled", boolean, False, "Paimon's deletion vectors"),
    Option("streaming-read-overwrite", boolean, False, "Paimon's streaming reads of overwrites"),
    Option("deletion-vectors.bitmap64", boolean, False, "how Paimon's deletion vectors are written"),
    Option("pk-clustering-override", boolean, False, "Paimon's clustering of primary-key tables"),
    Option("clustering.columns", names, (), "the columns that Paimon's clustering sorts files by", names=Names.COLUMNS),
    Option("force-lookup", boolean, False, "Paimon's compaction by lookup", change=Change.NEVER),
    Option("partition", str.strip, None, "Paimon's own", change=Change.NEVER, names=Names.COLUMNS),
    *(
        Option(key, str.strip, None, "Paimon's own")
        for key in (
            "auto-create",
            "branch",
            "cache-page-size",
            "file.block-size",
            "file.compression",
            "file.format",
            "lookup-wait",
            "num-levels",
            "page-size",
            "read.batch-size",
            "type",
            "write-buffer-size",
            "write-buffer-spillable",
            "write-manifest-cache",
            "write-max-writers-to-spill",
        )
    ),
)
WITHOUT_EFFECT: Final = tuple(replace(option, effect=False) for option in _ENTRIES)
