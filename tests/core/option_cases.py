"""Tables that break one rule of the options each, and tables that keep them all."""

from __future__ import annotations

from collections.abc import Mapping

Options = Mapping[str, str]
PARTIAL = {"merge-engine": "partial-update"}
AGGREGATION = {"merge-engine": "aggregation"}
FIRST_ROW = {"merge-engine": "first-row"}
ON_DELETE = "partial-update.remove-record-on-delete"
ON_GROUP = "partial-update.remove-record-on-sequence-group"
AGGREGATION_ON_DELETE = "aggregation.remove-record-on-delete"
DEFAULT = "fields.default-aggregate-function"
CHANGELOG = "changelog-producer"
SNAPSHOT = "sequence.snapshot-ordering"
SEQUENCE = "sequence.field"
A_FUNCTION = "fields.a.aggregate-function"
A_DEFAULTED = "fields.a.default-value"
A_KEEPS = "fields.a.ignore-retract"
C_FUNCTION = "fields.c.aggregate-function"
C_DEFAULTED = "fields.c.default-value"
D_DEFAULTED = "fields.d.default-value"
G_G_GROUPED = "fields.g,g.sequence-group"
G_H_GROUPED = "fields.g,h.sequence-group"
G_ZZZ_GROUPED = "fields.g,zzz.sequence-group"
G_FUNCTION = "fields.g.aggregate-function"
G_GROUPED = "fields.g.sequence-group"
H_T_GROUPED = "fields.h,t.sequence-group"
H_GROUPED = "fields.h.sequence-group"
K_FUNCTION = "fields.k.aggregate-function"
K_DEFAULTED = "fields.k.default-value"
K_GROUPED = "fields.k.sequence-group"
L_FUNCTION = "fields.l.aggregate-function"
L_DEFAULTED = "fields.l.default-value"
L_GROUPED = "fields.l.sequence-group"
O_GROUPED = "fields.o.sequence-group"
R_FUNCTION = "fields.r.aggregate-function"
X_GROUPED = "fields.x.sequence-group"
VECTORS = "deletion-vectors.enabled"
OVERWRITE = "streaming-read-overwrite"
DELTAS = "full-compaction.delta-commits"
ABSENT = "record.absent-columns"
CLUSTERING = "pk-clustering-override"
CLUSTERED_BY = "clustering.columns"
GROUP = {G_GROUPED: "a,b"}
PADDING = "sequence.auto-padding"
HORIZON = "sequence.late-horizon"
PUBLISH = "delta.publish"

FROM_EVENT = "fields.c.from-event"
EXPIRATION, TIME_PATTERN = "partition.expiration-time", "partition.timestamp-pattern"
# By the code of the violation: what is wrong, the options, the option that is named.
BROKEN: dict[str, list[tuple[str, Options, str]]] = {
    "illegal_column_type": [
        ("position in a column of text", {FROM_EVENT: "source.lsn"}, FROM_EVENT),
        ("row kind field of numbers", {"rowkind.field": "a"}, "rowkind.field"),
    ],
    "missing_partition_keys": [
        ("no partitions to expire", {EXPIRATION: "1 d"}, EXPIRATION),
    ],
    "not_in_delta": [
        ("default that is only shown", PARTIAL | {A_DEFAULTED: "1", PUBLISH: "true"}, PUBLISH),
    ],
    "missing_option": [
        ("interval of nothing", {f"{PUBLISH}.interval": "5 min"}, f"{PUBLISH}.interval"),
        ("snapshot ordering without write-only", {SNAPSHOT: "true"}, SNAPSHOT),
        ("padding of nothing", {PADDING: "row-kind-flag"}, PADDING),
        ("padding of two fields", {SEQUENCE: "a,b", PADDING: "row-kind-flag"}, PADDING),
    ],
    "unknown_column": [
        ("time of no partition column", {TIME_PATTERN: "$a"}, TIME_PATTERN),
        ("unknown sequence field", {SEQUENCE: "a,zzz"}, SEQUENCE),
        ("unknown row kind field", {"rowkind.field": "zzz"}, "rowkind.field"),
        ("unknown protected field", PARTIAL | {G_GROUPED: "a,zzz"}, G_GROUPED),
        ("unknown ordering field", PARTIAL | {G_ZZZ_GROUPED: "a"}, G_ZZZ_GROUPED),
        ("clustering by no column", {CLUSTERED_BY: "none"}, CLUSTERED_BY),
        ("unknown bucket key", {"bucket": "4", "bucket-key": "zzz"}, "bucket-key"),
    ],
    "unknown_function": [
        ("unknown function", AGGREGATION | {A_FUNCTION: "summ"}, A_FUNCTION),
        ("unknown function of a key", AGGREGATION | {K_FUNCTION: "x"}, K_FUNCTION),
        ("empty function", AGGREGATION | {A_FUNCTION: " "}, A_FUNCTION),
        ("unknown default function", AGGREGATION | {DEFAULT: "summ"}, DEFAULT),
        ("unknown function of a group", PARTIAL | GROUP | {A_FUNCTION: "x"}, A_FUNCTION),
    ],
    "illegal_function_type": [
        ("sum of text", AGGREGATION | {C_FUNCTION: "sum"}, C_FUNCTION),
        ("sum of text by default", AGGREGATION | {DEFAULT: "sum"}, DEFAULT),
        ("max of a list", AGGREGATION | {L_FUNCTION: "max"}, L_FUNCTION),
        ("min of a row", AGGREGATION | {R_FUNCTION: "min"}, R_FUNCTION),
        ("bool_or of a number", AGGREGATION | {A_FUNCTION: "bool_or"}, A_FUNCTION),
        ("sum of text in a group", PARTIAL | {G_GROUPED: "c", C_FUNCTION: "sum"}, C_FUNCTION),
    ],
    "contradicting_options": [
        ("ignore-retract with removal", AGGREGATION | {AGGREGATION_ON_DELETE: "true", A_KEEPS: "true"}, A_KEEPS),
        ("sequence field with a function", AGGREGATION | {SEQUENCE: "a", A_FUNCTION: "max"}, A_FUNCTION),
        ("sequence field of first-row", FIRST_ROW | {SEQUENCE: "a"}, SEQUENCE),
        ("snapshot ordering with a sequence field", {SNAPSHOT: "true", "write-only": "true", SEQUENCE: "a"}, SNAPSHOT),
        ("horizon and padding", {SEQUENCE: "a", PADDING: "second-to-micro", HORIZON: "7"}, HORIZON),
        (
            "horizon of a descending sequence",
            {SEQUENCE: "a", "sequence.field.sort-order": "descending", HORIZON: "7"},
            HORIZON,
        ),
        ("function of an ordering field", PARTIAL | GROUP | {G_FUNCTION: "max"}, G_FUNCTION),
        ("ignored and removing deletes", PARTIAL | {"ignore-delete": "true", ON_DELETE: "true"}, ON_DELETE),
        ("ignored deletes and removing groups", PARTIAL | GROUP | {"ignore-delete": "true", ON_GROUP: "g"}, ON_GROUP),
        ("removal with groups", PARTIAL | GROUP | {ON_DELETE: "true"}, ON_DELETE),
        ("changelog of first-row", FIRST_ROW | {CHANGELOG: "input"}, CHANGELOG),
        ("full-compaction changelog of first-row", FIRST_ROW | {CHANGELOG: "full-compaction"}, CHANGELOG),
        ("deletion vectors with full-compaction", {CHANGELOG: "full-compaction", VECTORS: "true"}, VECTORS),
        ("deletion vectors of first-row", FIRST_ROW | {VECTORS: "true"}, VECTORS),
        ("overwrites read with lookup", {CHANGELOG: "lookup", OVERWRITE: "true"}, OVERWRITE),
        ("delta commits with lookup", {CHANGELOG: "lookup", DELTAS: "3"}, DELTAS),
        ("whole records left alone", {ABSENT: "unchanged"}, ABSENT),
        ("first records left alone", FIRST_ROW | {ABSENT: "unchanged"}, ABSENT),
        ("clustering of aggregation", AGGREGATION | {CLUSTERING: "true"}, CLUSTERING),
        ("clustering with a sequence", {CLUSTERING: "true", SEQUENCE: "a"}, CLUSTERING),
        ("clustering with lookup", {CLUSTERING: "true", CHANGELOG: "lookup"}, CLUSTERING),
        ("bucket key of dynamic buckets", {"bucket": "-1", "bucket-key": "a"}, "bucket-key"),
    ],
    "duplicate_column": [
        ("sequence field twice", {SEQUENCE: "a,b,a"}, SEQUENCE),
        ("column twice in one group", PARTIAL | {G_GROUPED: "a,a"}, G_GROUPED),
        ("ordering field twice", PARTIAL | {G_G_GROUPED: "a"}, G_G_GROUPED),
    ],
    "illegal_order_type": [
        ("sequence field without order", {SEQUENCE: "l"}, SEQUENCE),
        ("padding of a truth value", {SEQUENCE: "o", PADDING: "row-kind-flag"}, PADDING),
        ("horizon of text", {SEQUENCE: "c", HORIZON: "7 d"}, HORIZON),
        ("time as the horizon of numbers", {SEQUENCE: "a", HORIZON: "7 d"}, HORIZON),
        ("number as the horizon of times", {SEQUENCE: "t", HORIZON: "7"}, HORIZON),
        ("ordering field of truth values", PARTIAL | {O_GROUPED: "a"}, O_GROUPED),
        ("ordering field of bytes", PARTIAL | {X_GROUPED: "a"}, X_GROUPED),
        ("ordering field without order", PARTIAL | {L_GROUPED: "a"}, L_GROUPED),
    ],
    "illegal_option_value": [
        ("padding unknown", {SEQUENCE: "a", PADDING: "nano-to-micro"}, PADDING),
        ("padding twice", {SEQUENCE: "a", PADDING: "row-kind-flag,row-kind-flag"}, PADDING),
        ("padding with two units", {SEQUENCE: "a", PADDING: "second-to-micro,millis-to-micro"}, PADDING),
        ("padding with its flag first", {SEQUENCE: "a", PADDING: "row-kind-flag,second-to-micro"}, PADDING),
        ("group of nothing", PARTIAL | {G_GROUPED: " "}, G_GROUPED),
        ("no buckets", {"bucket": "0"}, "bucket"),
    ],
    "key_in_group": [
        ("key protected", PARTIAL | {G_GROUPED: "a,k"}, G_GROUPED),
        ("key as ordering field", PARTIAL | {K_GROUPED: "a"}, K_GROUPED),
    ],
    "column_in_two_groups": [
        ("column protected twice", PARTIAL | GROUP | {H_GROUPED: "b,c"}, H_GROUPED),
        ("ordering field shared", PARTIAL | GROUP | {G_H_GROUPED: "c"}, G_H_GROUPED),
        ("ordering field protected elsewhere", PARTIAL | GROUP | {H_GROUPED: "g"}, H_GROUPED),
    ],
    "function_outside_group": [
        ("function outside a group", PARTIAL | {A_FUNCTION: "sum"}, A_FUNCTION),
        ("default function outside a group", PARTIAL | GROUP | {DEFAULT: "last_value"}, DEFAULT),
    ],
    "unknown_group": [
        ("removal on a column of no group", PARTIAL | GROUP | {ON_GROUP: "a"}, ON_GROUP),
        ("removal on a group without groups", PARTIAL | {ON_GROUP: "g"}, ON_GROUP),
    ],
    "illegal_key_type": [
        ("nested bucket key", {"bucket": "4", "bucket-key": "l"}, "bucket-key"),
    ],
    "key_with_default": [
        ("default of a key", {K_DEFAULTED: "1"}, K_DEFAULTED),
    ],
    "illegal_default": [
        ("default of another type", {A_DEFAULTED: "one"}, A_DEFAULTED),
        ("default too precise", {D_DEFAULTED: "'1.234'"}, D_DEFAULTED),
        ("default of a nested column", {L_DEFAULTED: "[]"}, L_DEFAULTED),
    ],
}
ILLEGAL = [(*case, code) for code, cases in BROKEN.items() for case in cases]

LEGAL: list[tuple[str, Options]] = [
    ("no options", {}),
    ("every engine's own function", AGGREGATION | {A_FUNCTION: "sum"}),
    ("old name of a function", AGGREGATION | {A_FUNCTION: "first_not_null_value"}),
    ("legal function of a key, which is ignored", AGGREGATION | {K_FUNCTION: "sum"}),
    ("functions that deduplicate ignores", {A_FUNCTION: "zzz", DEFAULT: "zzz"}),
    ("ignore-retract without removal", AGGREGATION | {A_KEEPS: "true"}),
    ("ignore-retract said to be off", AGGREGATION | {AGGREGATION_ON_DELETE: "true", A_KEEPS: "false"}),
    ("sequence fields", {SEQUENCE: "a,t,o,x", "sequence.field.sort-order": "descending"}),
    ("sequence field on a key column", {SEQUENCE: "k"}),
    ("sequence field of partial-update", PARTIAL | {SEQUENCE: "a"}),
    ("snapshot ordering", {SNAPSHOT: "true", "write-only": "true"}),
    *[
        (f"padding {steps}", {SEQUENCE: "a", PADDING: steps})
        for steps in (
            "row-kind-flag",
            "second-to-micro",
            "millis-to-micro",
            "second-to-micro,row-kind-flag",
            "millis-to-micro, row-kind-flag",
        )
    ],
    ("horizon", {SEQUENCE: "t,a", HORIZON: "7 d"}),
    ("horizon behind a key column", {SEQUENCE: "k,a", HORIZON: "7"}),
    ("horizon of groups", PARTIAL | GROUP | {HORIZON: "7 d"}),
    ("row kind field", {"rowkind.field": "p"}),
    ("groups", PARTIAL | GROUP | {H_T_GROUPED: "c,d"}),
    ("ordering field that its own group protects", PARTIAL | {G_GROUPED: "a,g"}),
    ("names with blanks", PARTIAL | {"fields.g , h.sequence-group": " a , b "}),
    ("groups that another engine ignores", {G_GROUPED: "zzz"}),
    ("function in a group", PARTIAL | GROUP | {A_FUNCTION: "sum"}),
    ("last_non_null_value anywhere", PARTIAL | {A_FUNCTION: "last_non_null_value", DEFAULT: "last_non_null_value"}),
    ("removal", PARTIAL | {ON_DELETE: "true"}),
    ("removing groups", PARTIAL | {G_H_GROUPED: "a", ON_GROUP: "h"}),
    ("removal by sequence", PARTIAL | {ON_DELETE: "true", SEQUENCE: "a"}),
    ("aggregated removal by sequence", AGGREGATION | {AGGREGATION_ON_DELETE: "true", SEQUENCE: "a"}),
    ("removal said to be off", PARTIAL | GROUP | {ON_DELETE: "false", "ignore-delete": "true"}),
    ("aggregated removal", AGGREGATION | {AGGREGATION_ON_DELETE: "true"}),
    ("lookup changelog of first-row", FIRST_ROW | {CHANGELOG: "lookup"}),
    ("any changelog", {CHANGELOG: "full-compaction"}),
    ("default", {A_DEFAULTED: "5", C_DEFAULTED: "'five'", D_DEFAULTED: "1.25"}),
    ("deletion vectors", {VECTORS: "true"}),
    ("overwrites read", {OVERWRITE: "true", CHANGELOG: "input"}),
    ("delta commits", {DELTAS: "3", CHANGELOG: "full-compaction"}),
    ("columns left alone", PARTIAL | {ABSENT: "unchanged"}),
    ("aggregated columns left alone", AGGREGATION | {ABSENT: "unchanged"}),
    ("clustering", {CLUSTERING: "true", CHANGELOG: "input", CLUSTERED_BY: "a, c"}),
    ("buckets", {"bucket": "4", "bucket-key": "k"}),
    ("dynamic and postponed buckets", {"bucket": "-2"}),
    ("published", {PUBLISH: "true", f"{PUBLISH}.interval": "5 min", A_DEFAULTED: "5"}),
    ("published no more", {PUBLISH: "false", f"{PUBLISH}.interval": "5 min"}),
    ("nullable key", {"primary-key.nullable": "true"}),
]
