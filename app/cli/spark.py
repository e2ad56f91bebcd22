"""``keyfold spark-archive`` and ``keyfold check-spark``."""

from __future__ import annotations

from tempfile import TemporaryDirectory

import typer

from app.cli.settings import DataFolder, settings_of
from app.services.executor import MergeExecutor
from app.services.spark_trial import try_spark
from app.spark import SparkExecutor
from app.storage.layout import Warehouse

commands = typer.Typer()
_KEYS = 2000  # so many that code which is made for rows is compiled


@commands.command()
def spark_archive() -> None:
    """Make the embedded Spark start with less work: takes some minutes, once per Java and PySpark version."""
    from spark_jobs.archive import make_archive  # noqa: PLC0415  # PySpark takes as long to load as the rest

    def rehearse(jobs: MergeExecutor) -> None:
        with TemporaryDirectory(prefix="keyfold-") as folder:
            for fault in try_spark(Warehouse(folder), jobs, _KEYS):
                typer.echo(fault, err=True)
        typer.echo("a table was merged and compacted")

    archive = make_archive(rehearse)
    typer.echo(f"the embedded Spark starts from {archive}")


@commands.command()
def check_spark(data: DataFolder = None) -> None:
    """Merge and compact a small table on the Spark that is configured, beside the same fold in Python: status 1 and
    what differs, if anything does.
    """
    settings = settings_of(folder=data)
    executor = SparkExecutor(settings)
    try:
        faults = try_spark(Warehouse(settings.warehouse_root), executor)
    finally:
        executor.close()
    for fault in faults:
        typer.echo(fault, err=True)
    if faults:
        typer.echo("This server does not do what merges need: nothing would be merged on it.", err=True)
        raise typer.Exit(1)
    typer.echo("Spark does what merges need")
