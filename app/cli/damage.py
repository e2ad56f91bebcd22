"""``keyfold verify``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from app.cli.catalog import existing
from app.cli.settings import DataFolder, settings_of
from app.core.errors import DamagedCatalog
from app.core.table.upkeep.damage import DamagedFile
from app.files.layout import Warehouse
from app.services.upkeep.scrubs import verify as read_and_compare
from app.telemetry.logs import log_to_stderr

commands = typer.Typer()


@commands.command()
def verify(
    data: DataFolder = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object instead of lines")] = False,
) -> None:
    """Check the catalog and every file that it names. List damaged and missing files; exit with 1 if there are any."""
    settings = settings_of(folder=data)
    log_to_stderr("CRITICAL")  # the log would repeat the output
    database = existing(data)
    files = size = 0
    damaged: list[DamagedFile] = []
    catalog: list[str] = []
    for finding in read_and_compare(database, Warehouse(settings.warehouse_root)):
        if finding.file is not None:
            files, size = files + 1, size + finding.file.size_bytes
        if isinstance(finding.damage, DamagedCatalog):
            catalog.append(finding.damage.message)
        elif finding.damage is not None:
            damaged.append(finding.damage)
        if finding.damage is not None and not as_json:
            typer.echo(finding.damage.message)
    database.close()
    if as_json:
        report = {"files": files, "bytes": size, "damaged": [file.members for file in damaged], "catalog": catalog}
        typer.echo(json.dumps(report))
    else:
        typer.echo(f"{files} files of {size} bytes read, {len(damaged)} damaged or missing{_faults(len(catalog))}")
    if damaged or catalog:
        raise typer.Exit(1)


def _faults(count: int) -> str:
    return f"; {count} faults in the catalog: restore it (docs/damage.md, A damaged catalog)" if count else ""
