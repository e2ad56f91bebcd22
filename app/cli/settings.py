"""The settings of a command: from the environment, overridden by the command line."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from app.cli.client.settings import ClientSettings
from app.settings import Settings
from app.telemetry.logs import LogFormat

logger = logging.getLogger(__name__)
LogAs = Annotated[LogFormat | None, typer.Option("--log-format", help="text or json [KEYFOLD_LOG_FORMAT]")]
DataFolder = Annotated[Path | None, typer.Option("--data", help="folder of the embedded parts [KEYFOLD_DATA]")]


def settings_of(**given: object) -> Settings:
    """Return the environment's settings, overridden by the command line. Set the umask: files that are created from
    here on are private.
    """
    settings = Settings(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
    os.umask(settings.umask)
    return settings


def warn_of_unknown(environment: Mapping[str, str]) -> None:
    """Log each variable that looks like a setting but is unknown, and so has no effect."""
    fields = [*Settings.model_fields.items(), *ClientSettings.model_fields.items()]
    known = {field.alias or f"KEYFOLD_{name.upper()}" for name, field in fields}
    for name in sorted(environment):
        if name.startswith("KEYFOLD_") and name not in known:
            logger.warning("%s is no setting and has no effect; docs/settings.md lists all settings", name)
