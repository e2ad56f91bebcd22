"""``keyfold spark-archive``."""

from __future__ import annotations

import typer

commands = typer.Typer()


@commands.command()
def spark_archive() -> None:
    """Make the embedded Spark start with less work: takes a minute or two, once per Java and PySpark version."""
    from spark_jobs.archive import make_archive  # noqa: PLC0415  # PySpark takes as long to load as the rest

    typer.echo(f"the embedded Spark starts from {make_archive()}")
