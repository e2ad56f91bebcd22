"""The merge plan as Spark SQL: the meaning of the fold that ``app.core.plan.fold`` says in Python (design §3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import zip_longest

from pyspark.sql import Column, DataFrame
from pyspark.sql import types as spark_types
from pyspark.sql.connect import functions as F  # noqa: N812  # the name that PySpark's own documentation uses
from pyspark.sql.types import StructField, StructType

from app.core.plan.evolution import converted_sql, removing, said_sql
from app.core.plan.evolution import key_names as key_names_of
from app.core.plan.merge_plan import MergePlan
from app.core.rules.replay import LOG, Replay
from app.core.rules.spark_sql import bound_sql, literal, quote, ref
from app.core.rules.widening import widened_sql
from app.core.table.named_columns import named_words, naming_sql
from app.core.table.records import (
    ARRIVAL_COLUMN,
    KIND_COLUMN,
    POSITION_BITS,
    POSITION_COLUMN,
    RUN_COLUMN,
    TOKEN_COLUMN,
)
from app.core.table.schema import Column as TableColumn
from app.core.table.schema import TableSchema
from app.core.types.datatype import DataType
from app.core.types.kinds import Kind
from spark_jobs.types import spark_type

FIELD_ID = "parquet.field.id"
RANGE_COLUMN = "_kf_range"
_REMOVAL, _STATE, _STATES = "_kf_removal", "_kf_state", "_kf_states"

# Spark hands the schemas of Parquet files to their readers and writers as JSON in a Hadoop configuration, and Hadoop
# replaces `${user.home}`, `${env.HOME}` and `${any.setting}` in what it gives back: a column of such a name would be
# written under another, or not found. Hadoop stops at the first such word that it does not know, and this one comes
# before all names of users where it is metadata of the first column.
LITERAL_NAMES = {"keyfold": "${keyfold.names.are.literal}"}


def _field(column: TableColumn) -> StructField:
    return StructField(column.name, spark_type(column.type), True, {FIELD_ID: column.id})


def record_schema(schema: TableSchema) -> StructType:
    """What a staging file holds: the table's columns (found by field id), the row kind, the position in the batch, and
    what records name.
    """
    kind = StructField(KIND_COLUMN, spark_types.ByteType(), True, LITERAL_NAMES)
    words = [StructField(word, spark_types.LongType()) for word in named_words(schema)]
    position = StructField(POSITION_COLUMN, spark_types.IntegerType())
    return StructType([kind, *map(_field, schema.columns), position, *words])


def state_schema(plan: MergePlan) -> StructType:
    """What a run holds: the token, the table's columns (found by field id), the hidden columns (found by name)."""
    visible = [_field(column) for column in (*plan.schema.key_columns, *plan.schema.value_columns)]
    hidden = [StructField(column.name, spark_type(column.type)) for column in plan.hidden]
    return StructType([StructField(TOKEN_COLUMN, spark_types.LongType(), True, LITERAL_NAMES), *visible, *hidden])


def key_names(plan: MergePlan) -> list[str]:
    """The columns that tell rows apart and sort a run: the token, then the primary key."""
    return [TOKEN_COLUMN, *plan.schema.primary_key]


def records(plan: MergePlan, staged: DataFrame, batch_numbers: dict[str, int]) -> DataFrame:
    """Staged records with token and arrival; ``batch_numbers`` gives the batch of each staging file's name."""
    keys = ", ".join(quote(name) for name in plan.schema.primary_key)
    # Always read, though some tables do not ask for the kind: it is the first column, with LITERAL_NAMES.
    return staged.where(F.col(KIND_COLUMN).isNotNull()).select(
        F.expr(f"xxhash64({keys})").alias(TOKEN_COLUMN),
        *(F.col(quote(column.name)) for column in plan.schema.columns),
        F.col(KIND_COLUMN),
        *(F.col(word) for word in named_words(plan.schema)),
        F.shiftleft(_batch_number(staged, batch_numbers), POSITION_BITS)
        .bitwiseOR(F.col(POSITION_COLUMN))
        .alias(ARRIVAL_COLUMN),
    )


def _batch_number(staged: DataFrame, batch_numbers: Mapping[str, int]) -> Column:
    if len(batch_numbers) == 1:
        # Numbers become part of the code that Spark generates, which it would compile anew for each batch; arrays do
        # not. The place is always 1, which Spark must not know, or it would work the number out (docs/decisions/0039).
        place = f"1 + shiftright({POSITION_COLUMN}, 31)"
        return F.expr(f"element_at(array({next(iter(batch_numbers.values()))}L), {place})")
    entries = ", ".join(f"'{name}', {number}L" for name, number in batch_numbers.items())
    # Not by its name in SQL, which a column of the table may have as well.
    file_name = staged.metadataColumn("_metadata").getField("file_name")
    return F.element_at(F.expr(f"map({entries})"), file_name)


def without_substitution(rows: DataFrame) -> DataFrame:
    """``rows``, whose first column is the token, with ``LITERAL_NAMES``: to be written."""
    return rows.withMetadata(TOKEN_COLUMN, LITERAL_NAMES)


def merge_order(plan: MergePlan) -> list[Column]:
    """What sorts the ``records`` of a key in merge order (merge-semantics §1.2)."""
    reference = {field.column.name: quote(field.column.name) for field in plan.order.fields}
    return [F.expr(sql) for sql in (*plan.order.sql(reference, f"({KIND_COLUMN} IN (0, 2))"), ARRIVAL_COLUMN)]


def folded(plan: MergePlan, staged: DataFrame, touched: int | None = None, *, ranged: bool = False) -> DataFrame:
    """One state row per key from ``records``; ``touched`` is when (``app.core.plan.fold.lift``).

    ``ranged``: the records have a ``RANGE_COLUMN``, by which they are spread.
    """
    together = [*key_names(plan), *([RANGE_COLUMN] if ranged else [])]
    relation = _with_columns(staged, plan.row.removals_sql(together))
    aggregates, outputs = _fold_sql(plan, touched)
    grouped = relation.alias("r").groupBy(*(F.col(ref("r", name)) for name in together))
    keys = {name: quote(name) for name in plan.schema.primary_key}
    # The count stands in for the aggregates of a table that has key columns only.
    columns = [F.expr(sql).alias(name) for name, sql in aggregates.items()] or [F.count(F.lit(1)).alias("_kf_records")]
    return _state_rows(plan, grouped.agg(*columns), {**keys, **outputs}, oldest=False)


def lifted(plan: MergePlan, staged: DataFrame, touched: int | None = None) -> DataFrame:
    """As ``folded``, of ``records`` in which no key comes twice and of a plan that ``lifts``: each is a state row by
    itself, without an aggregation (docs/decisions/0043).
    """
    outputs = {name: sql for rule in plan.rules for name, sql in rule.lift_sql().items()}
    if plan.row.removes_on_delete:  # as ``app.core.plan.fold.lift``
        outputs = {name: f"IF({plan.row.removes_sql}, NULL, {sql})" for name, sql in outputs.items()}
    keys = {name: quote(name) for name in plan.schema.primary_key}
    return _state_rows(plan, staged.alias("r"), {**keys, **outputs, **plan.row.lift_sql(touched)}, oldest=False)


def _with_columns(rows: DataFrame, columns: Mapping[str, str]) -> DataFrame:
    return rows.withColumns({name: F.expr(sql) for name, sql in columns.items()}) if columns else rows


def _fold_sql(plan: MergePlan, touched: int | None) -> tuple[dict[str, str], dict[str, str]]:
    aggregates, outputs = plan.row.fold_sql(touched)
    for rule in plan.rules:
        rule_aggregates, rule_outputs = rule.fold_sql(plan.row.counts_sql)
        aggregates |= rule_aggregates
        outputs |= rule_outputs
    return aggregates, outputs


def _state_rows(plan: MergePlan, rows: DataFrame, outputs: dict[str, str], *, oldest: bool) -> DataFrame:
    """``rows`` with exactly the state columns, in order, typed, with the field ids that a run's files carry."""
    selected = rows.select(F.col(TOKEN_COLUMN), *_typed_columns(plan, outputs))
    settled = [rule.settle_sql("s", oldest) for rule in plan.rules]
    if not any(one.outputs for one in settled):
        return selected
    stepped = _stepped(selected.alias("s"), [one.steps for one in settled])
    names = {name: ref("s", name) for name, _ in plan.state_columns}
    stored = names | {name: sql for one in settled for name, sql in one.outputs.items()}
    return stepped.select(F.col(TOKEN_COLUMN), *_typed_columns(plan, stored))


def _stepped(rows: DataFrame, steps: Sequence[Sequence[Mapping[str, str]]]) -> DataFrame:
    """``rows``, whose alias is ``s``, with the columns of all ``steps``: those of several rules side by side, those of
    one after each other.
    """
    for step in zip_longest(*steps, fillvalue={}):
        columns = {name: sql for one in step for name, sql in one.items()}
        rows = rows.select("s.*", *(F.expr(_kept_apart(sql)).alias(name) for name, sql in columns.items())).alias("s")
    return rows


def _kept_apart(sql: str) -> str:
    """``sql`` as Spark's optimizer leaves it: not deterministic, so that no filter above is pushed below it with a copy
    of ``sql`` for each use. A filter above six steps, of which each uses the one before several times, took minutes.
    """
    return f"IF(spark_partition_id() < 0, NULL, {sql})"


def _typed_columns(plan: MergePlan, outputs: dict[str, str]) -> list[Column]:
    ids = {column.name: column.id for column in plan.schema.columns}
    return [_typed(name, data_type, outputs[name], ids.get(name)) for name, data_type in plan.state_columns]


def _typed(name: str, data_type: DataType, sql: str, field_id: int | None) -> Column:
    column = F.expr(f"CAST({sql} AS {data_type.spark})")
    return column.alias(name) if field_id is None else column.alias(name, metadata={FIELD_ID: field_id})


def combined(
    plan: MergePlan, older: DataFrame, newer: DataFrame, *, oldest: bool = False, settled: bool = True
) -> DataFrame:
    """One state row per key of two runs, by a full outer join on token and key; ``oldest``: none lies below
    ``older``; not ``settled``: to be combined with another run, logs are joined and not folded.
    """
    keys = key_names(plan)
    matches = [F.expr(f"{ref('o', name)} {equals(plan, name)} {ref('n', name)}") for name in keys]
    condition = matches[0]
    for match in matches[1:]:
        condition = condition & match
    joined = older.alias("o").join(newer.alias("n"), condition, "full_outer")
    outputs = {name: f"coalesce({ref('n', name)}, {ref('o', name)})" for name in keys}
    both = _combine_sql(plan)
    for name in both:
        outputs[name] = (
            f"CASE WHEN n.{TOKEN_COLUMN} IS NULL THEN {ref('o', name)} "
            f"WHEN o.{TOKEN_COLUMN} IS NULL THEN {ref('n', name)} ELSE {both[name]} END"
        )
    token = F.expr(outputs.pop(TOKEN_COLUMN)).alias(TOKEN_COLUMN)
    # Named by place: both sides of the join have columns of every state column's name.
    places = {name: f"_kf_{i}" for i, name in enumerate(outputs)}
    merged = joined.select(token, *(F.expr(sql).alias(places[name]) for name, sql in outputs.items()))
    outputs = {name: quote(place) for name, place in places.items()}
    if not settled:
        return merged.select(F.col(TOKEN_COLUMN), *_typed_columns(plan, outputs))
    return _state_rows(plan, merged, outputs, oldest=oldest)


def combines_at_once(plan: MergePlan) -> bool:
    """Whether ``combined_at_once`` can say what state rows of the plan come to."""
    return all(rule.combines_in_turn for rule in plan.rules)


def combined_at_once(plan: MergePlan, runs: Sequence[DataFrame], *, oldest: bool = False) -> DataFrame:
    """One state row per key of ``runs``, oldest first, by one aggregation; ``oldest`` as in ``combined``.

    Each row is gathered as a whole, once, however many runs there are; only those of keys in several runs are combined,
    in turn (docs/decisions/0038).
    """
    keys, names = key_names(plan), [name for name, _ in plan.state_columns if name not in plan.schema.primary_key]
    values = {name: quote(name) for name in names}
    states = [
        rows.select(*map(_column, keys), F.expr(_aged_sql(str(age), values)).alias(_STATE))
        for age, rows in enumerate(runs)
    ]
    grouped = reduce(DataFrame.unionAll, states).coalesce(1).groupBy(*map(_column, keys))
    gathered = grouped.agg(F.expr(f"collect_list({_STATE})").alias(_STATES))
    whole = gathered.select(*map(_column, keys), F.expr(_combined_in_turn(plan, names)).alias(_STATE))
    outputs = {name: quote(name) for name in plan.schema.primary_key} | {name: ref(_STATE, name) for name in names}
    return _state_rows(plan, whole, outputs, oldest=oldest)


def _combined_in_turn(plan: MergePlan, names: Sequence[str]) -> str:
    """What the gathered state rows of a key come to, ``o`` the older and ``n`` the newer one of two; most are alone."""
    types, both = dict(plan.state_columns), _combine_sql(plan)
    pair = _aged_sql(f"n.{RUN_COLUMN}", {name: f"CAST({both[name]} AS {types[name].spark})" for name in names})
    by_age = f"array_sort({_STATES}, (x, y) -> x.{RUN_COLUMN} - y.{RUN_COLUMN})"  # maps have no order of their own
    in_turn = f"aggregate(slice(a, 2, size(a)), a[0], (o, n) -> {pair})"
    return f"IF(size({_STATES}) = 1, {_STATES}[0], {bound_sql(by_age, 'a', in_turn)})"


def _aged_sql(age: str, values: Mapping[str, str]) -> str:
    """A state row without its key as one value, with the number of its run."""
    members = [f"'{RUN_COLUMN}', {age}", *(f"{literal(name)}, {sql}" for name, sql in values.items())]
    return f"named_struct({', '.join(members)})"


def _column(name: str) -> Column:
    return F.col(quote(name))


def carried_over(old: MergePlan, new: MergePlan, rows: DataFrame) -> DataFrame:
    """The rows that state rows of ``old`` show, as first records of ``new``, and the removals of those that they hide
    (``app.core.plan.evolution.carried_over``).
    """
    live = rows.where(F.expr(old.row.live_sql)).alias("s")
    known = {column.id: column for column in old.schema.columns}
    values = [
        widened_sql(quote(known[column.id].name), known[column.id].type, column.type) if column.id in known else "NULL"
        for column in new.schema.columns
    ]
    columns = [
        F.expr(f"CAST({sql} AS {column.type.spark})").alias(column.name)
        for column, sql in zip(new.schema.columns, values, strict=True)
    ]
    kind, arrived = F.lit(0).cast("tinyint").alias(KIND_COLUMN), F.lit(0).cast("bigint").alias(ARRIVAL_COLUMN)
    words = [F.expr(sql).alias(word) for word, sql in _named_sql(old, new).items()]
    shown = folded(new, live.select(F.col(TOKEN_COLUMN), *columns, kind, *words, arrived))
    replays = removing(old, new)
    return shown if replays is None else shown.unionAll(_removals(old, new, *replays, rows))


def _named_sql(old: MergePlan, new: MergePlan) -> dict[str, str]:
    """The words that say what the shown rows, state rows ``s`` of ``old``, name as first records of ``new``."""
    if not new.schema.tells_named:
        return {}
    said, before = said_sql(old, "s"), {column.id: column.name for column in old.schema.columns}
    known = [(column, before[column.id]) for column in new.schema.columns if column.id in before]
    named = naming_sql((column, said.get(name, "TRUE")) for column, name in known)
    return dict.fromkeys(named_words(new.schema), "0L") | named


def _removals(old: MergePlan, new: MergePlan, before: Replay, after: Replay, rows: DataFrame) -> DataFrame:
    """The removals of the rows that state rows of ``old`` do not show, as state rows of ``new``."""
    steps, found = before.removal_sql("s")
    dead = _stepped(rows.where(~F.expr(old.row.live_sql)).alias("s"), [(*steps, {_REMOVAL: found})])
    log, new_log = (DataType(Kind.ARRAY, element=replay.entry_type) for replay in (before, after))
    outputs: dict[str, str] = dict.fromkeys((name for name, _ in new.state_columns), "NULL")
    outputs |= {name: quote(source) for name, source in key_names_of(old, new)} | {
        LOG: after.removed_sql(widened_sql(_REMOVAL, log, new_log))
    }
    return _state_rows(new, dead.where(F.expr(f"size({_REMOVAL}) > 0")), outputs, oldest=False)


def converted(old: MergePlan, new: MergePlan, rows: DataFrame) -> DataFrame:
    """State rows of ``old`` as those of ``new``, which means the same (``app.core.plan.evolution.converted``)."""
    return _state_rows(new, rows.alias("s"), converted_sql("s", old, new), oldest=False)


def equals(plan: MergePlan, name: str) -> str:
    """The SQL operator that compares a key column; keys may be null."""
    column = plan.schema.by_name.get(name)
    return "<=>" if column is not None and column.nullable else "="


def _combine_sql(plan: MergePlan) -> dict[str, str]:
    outputs: dict[str, str] = {}
    for rule in plan.rules:
        outputs |= rule.combine_sql("o", "n")
    if plan.row.removes_on_delete:
        outputs = {name: f"IF({plan.row.ends_sql('n')}, {ref('n', name)}, {sql})" for name, sql in outputs.items()}
    return outputs | plan.row.combine_sql("o", "n")


def compacted(plan: MergePlan, rows: DataFrame, now: int, *, oldest: bool) -> DataFrame:
    """What a compaction at ``now`` (epoch seconds) keeps of ``rows`` (``app.core.plan.fold.compacted``)."""
    aged = _with_columns(rows, plan.row.aged_sql(now))
    return aged.where(F.expr(plan.row.stays_sql(now))) if oldest else aged
