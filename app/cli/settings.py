"""The settings of a command: the environment's, and what the command line gives."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from app.settings import Settings
from app.telemetry.logs import LogFormat

LogAs = Annotated[LogFormat | None, typer.Option("--log-format", help="text or json [KEYFOLD_LOG_FORMAT]")]
DataFolder = Annotated[Path | None, typer.Option("--data", help="folder of the embedded parts [KEYFOLD_DATA]")]


def settings_of(**given: object) -> Settings:
    """The environment's settings, overridden by what the command line gives. From here on no file is made that others
    may read.
    """
    settings = Settings(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
    os.umask(settings.umask)
    return settings
