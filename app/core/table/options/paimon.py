"""Paimon's keys that Keyfold does not know as options: those that it takes without effect, and how misspelled ones are
recognized.
"""

from __future__ import annotations

import re

# Families of Paimon's keys that say how its readers, writers and file formats work.
FOREIGN_FAMILIES = (
    "changelog-file.", "changelog-producer.", "changelog.",
    "commit.", "compaction.", "consumer.", "cross-partition-upsert.", "data-file.",
    "deletion-vector.", "dynamic-bucket.", "file-index.", "file.compression.", "file.format.",
    "local-merge-buffer-size", "lookup.", "manifest.", "metadata.", "metastore.", "orc.", "parquet.", "partition.",
    "record-level.", "scan.", "sink.", "snapshot.", "sort-", "source.", "spill-", "streaming-read-", "tag.",
    "write-buffer-", "zorder.",
)  # fmt: skip
# Families that hold options which Keyfold carries out: here only what Paimon has is taken, for anything else is likely
# one of those misspelled. (Paimon's core and Flink options of 2026, and older spellings that it still reads.)
OWN_FAMILIES = (
    "changelog-file.",
    "changelog-producer.",
    "changelog.",
    "compaction.",
    "partition.",
    "snapshot.",
    "tag.",
)
PAIMONS_OWN = frozenset((
    "changelog-file.compression", "changelog-file.format", "changelog-file.prefix", "changelog-file.stats-mode",
    "changelog-producer.compaction-interval", "changelog-producer.lookup-wait", "changelog.num-retained.max",
    "changelog.num-retained.min", "changelog.precommit-compact", "changelog.precommit-compact.buffer-size",
    "changelog.precommit-compact.thread-num", "changelog.time-retained", "compaction.bucket-distribution-strategy",
    "compaction.delete-ratio-threshold", "compaction.early-max.file-num", "compaction.file-num-limit",
    "compaction.force-rewrite-all-files", "compaction.force-up-level-0", "compaction.incremental-size-threshold",
    "compaction.max.file-num", "compaction.min.file-num", "compaction.offpeak-ratio", "compaction.offpeak.end.hour",
    "compaction.offpeak.start.hour", "compaction.optimization-interval", "compaction.skip-expired-partitions",
    "compaction.small-file-ratio", "compaction.total-size-threshold", "partition.default-name",
    "partition.end-input-to-done", "partition.expiration-batch-size", "partition.expiration-check-interval",
    "partition.expiration-max-num", "partition.idle-time-to-done", "partition.idle-time-to-report-statistic",
    "partition.legacy-name", "partition.mark-done-action", "partition.mark-done-action.custom.class",
    "partition.mark-done-action.http.params", "partition.mark-done-action.http.url", "partition.mark-done-action.mode",
    "partition.mark-done-when-end-input", "partition.mark-done.recover-from-state", "partition.sink-strategy",
    "partition.time-interval", "partition.timestamp-format.strict", "snapshot.clean-empty-directories",
    "snapshot.expire.clean-empty-directories", "snapshot.expire.execution-mode", "snapshot.expire.limit",
    "snapshot.ignore-empty-commit", "snapshot.watermark-idle-timeout", "tag.automatic-completion",
    "tag.automatic-creation", "tag.batch.customized-name", "tag.callbacks", "tag.create-success-file",
    "tag.creation-delay", "tag.creation-period", "tag.creation-period-duration", "tag.num-retained-max",
    "tag.period-formatter", "tag.time-expire-enabled",
))  # fmt: skip
# What Paimon has and Keyfold has not, by how its keys begin: a column's (``fields.<column>.…``) as well as the table's.
FEATURES = {
    "blob": "BLOB storage",
    "chain-table": "chain tables",
    "data-evolution": "data evolution",
    "format-table": "format tables",
    "global-index": "indexes of columns",
    "pk-bitmap": "indexes of columns",
    "pk-btree": "indexes of columns",
    "pk-full-text": "indexes of columns",
    "pk-multivalue": "indexes of columns",
    "pk-vector": "indexes of columns",
    "row-tracking": "row tracking",
    "variant": "VARIANT",
    "vector": "vectors",
}
_OF_FEATURE = re.compile(rf"(?:fields\..+?\.)?({'|'.join(FEATURES)})[.-]")
_CALLBACK = re.compile(r"tag\.callback\..+\.param")


def is_foreign(key: str) -> bool:
    """Return whether the key belongs to a family of options about Paimon's own work."""
    return key.startswith(FOREIGN_FAMILIES)


def missing_feature(key: str) -> str | None:
    """Return the Paimon feature to which the key belongs, if Keyfold does not have that feature."""
    feature = _OF_FEATURE.match(key)
    return FEATURES[feature[1]] if feature else None


def is_misspelt(key: str) -> bool:
    """Return whether a key is a misspelled option: its family has options of Keyfold, and neither Keyfold nor Paimon
    has this key.
    """
    return key.startswith(OWN_FAMILIES) and key not in PAIMONS_OWN and not _CALLBACK.fullmatch(key)
