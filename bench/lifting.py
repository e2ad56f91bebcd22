"""Loads: records that share no key are state rows already, so millions are written without grouping them."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql.connect import functions as F  # noqa: N812  # the name that PySpark's own documentation uses

from app.core.plan.jobs import Job, MergeJob, Progress, Result
from app.core.plan.merge_plan import MergePlan
from app.core.rules.spark_sql import quote
from app.core.table.records import TOKEN_COLUMN
from app.worker import SparkExecutor
from spark_jobs.executor import SparkJobs
from spark_jobs.expressions import FIELD_ID, record_schema, records
from spark_jobs.token_ranges import range_count, spread, write_rows


class LiftingExecutor(SparkExecutor):
    """Merges on ``spark`` by lifting each record by itself. Only right while no key comes twice in what is merged."""

    def __init__(self, spark: SparkExecutor) -> None:
        self._spark = spark

    def open(self) -> SparkJobs:
        """The other executor's Spark."""
        return self._spark.open()

    def cancel(self, tag: str) -> None:
        """As the other executor does."""
        self._spark.cancel(tag)

    def run(self, tag: str, job: Job, report: Progress) -> Result:
        """Write every staged record of a merge as a state row, laid out as a merge does."""
        if not isinstance(job, MergeJob):
            return super().run(tag, job, report)
        plan = job.plan
        numbers = {uri.rsplit("/", 1)[-1]: number for uri, number in job.batches.items()}
        with self.open().connection.job(tag, report) as spark:
            staged = records(plan, spark.read.schema(record_schema(plan.schema)).parquet(*job.batches), numbers)
            write_rows(plan, _lifted(plan, spread(staged, range_count(job.sizes))), job.output)
        return None


def _lifted(plan: MergePlan, staged: DataFrame) -> DataFrame:
    outputs = {name: quote(name) for name in plan.schema.primary_key}
    for rule in plan.rules:
        outputs |= rule.lift_sql()
    outputs |= plan.row.lift_sql()
    ids = {column.name: {FIELD_ID: column.id} for column in plan.schema.columns}
    columns = [
        F.expr(f"CAST({outputs[name]} AS {data_type.spark})").alias(name, **_metadata(ids.get(name)))
        for name, data_type in plan.state_columns
    ]
    return staged.alias("r").select(F.col(TOKEN_COLUMN), *columns)


def _metadata(field_id: Mapping[str, int] | None) -> dict[str, Mapping[str, int]]:
    return {} if field_id is None else {"metadata": field_id}
