"""The address and the token of the service: the environment's settings of the commands that call it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer
from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.cli.client.endings import usage

Url = Annotated[str | None, typer.Option("--url", help="where the service is [KEYFOLD_URL]", show_default=False)]
TokenFile = Annotated[
    Path | None, typer.Option(help="file that holds the token, else KEYFOLD_TOKEN is it [KEYFOLD_TOKEN_FILE]")
]
TableName = Annotated[str, typer.Argument(metavar="DATABASE.TABLE", help="names with other characters in backticks")]
AsJson = Annotated[bool, typer.Option("--json", help="the service's own JSON, for scripts; errors too")]


class ClientSettings(BaseSettings):
    """The settings of commands. A token is never an argument, which every user of the machine can read."""

    model_config = SettingsConfigDict(env_prefix="KEYFOLD_", frozen=True, extra="ignore")

    url: str = Field("http://127.0.0.1:8080", description="where the service is")
    token: SecretStr | None = Field(None, description="the API token that commands show")
    token_file: Path | None = Field(None, description="file that holds it instead")

    @field_validator("url")
    @classmethod
    def _of_http(cls, url: str) -> str:
        """Raise ``ValueError`` for an invalid URL, or one with a password, which messages would show."""
        if re.fullmatch(r"https?://[^/?#@\s]+(/[^?#@\s]*)?", url) is None:
            raise ValueError("write it like http://127.0.0.1:8080, without a name and password")
        _ = urlsplit(url).port  # raises it for [ without ], and beyond 65535
        return url.rstrip("/")

    @property
    def shown_token(self) -> str | None:
        """The token to show, None to show none. Raise ``Failure`` for a file that cannot be read."""
        if self.token_file is None:
            return None if self.token is None else self.token.get_secret_value().strip()
        try:
            return self.token_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is no text"
            raise usage(f"the token's file {self.token_file} cannot be read: {why}") from error


def client_settings(url: str | None, token_file: Path | None) -> ClientSettings:
    """Return the environment's settings, overridden by the command line."""
    given = {"url": url, "token_file": token_file}
    return ClientSettings(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
