"""``keyfold check-spark``."""

from __future__ import annotations

import typer

from app.cli.settings import DataFolder, settings_of
from app.files.layout import Warehouse
from app.services.merging.spark_trial import try_spark
from app.spark import SparkExecutor

commands = typer.Typer()


@commands.command()
def check_spark(data: DataFolder = None) -> None:
    """Merge and compact a small table on the configured Spark. If it cannot, say what is missing and exit with 1."""
    settings = settings_of(folder=data)
    executor = SparkExecutor(settings)
    try:
        faults = try_spark(Warehouse(settings.warehouse_root), executor)
    finally:
        executor.close()
    for fault in faults:
        typer.echo(fault, err=True)
    if faults:
        typer.echo("This Spark server is not compatible: merges would be paused.", err=True)
        raise typer.Exit(1)
    typer.echo("Spark does what merges need")
