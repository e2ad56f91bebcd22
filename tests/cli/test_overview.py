"""What ``keyfold --help`` tells without loading the commands is what they tell of themselves."""

from __future__ import annotations

import subprocess
import sys

import typer
from typer.testing import CliRunner

from app.cli.overview import SUMMARIES
from app.cli.program import cli

LOADED = """
import sys
from app.cli import main
sys.argv = ["keyfold", sys.argv[1]]
try:
    main()
except SystemExit:
    print(*sorted({name.partition(".")[0] for name in sys.modules} & {"fastapi", "sqlalchemy", "pyarrow", "httpx"}))
"""


def _run(option: str) -> list[str]:
    command = [sys.executable, "-c", LOADED, option]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def test_every_command_is_told_as_it_tells_itself() -> None:
    group = typer.main.get_command(cli)
    context = typer.Context(group)
    commands = {name: group.get_command(context, name) for name in group.list_commands(context)}  # type: ignore[attr-defined]
    assert {name: " ".join((one.help or "").split("\n\n")[0].split()) for name, one in commands.items()} == SUMMARIES


def test_help_and_version_load_nothing_that_commands_need() -> None:
    *told, loaded = _run("--help")
    assert (loaded, any("serve" in line for line in told)) == ("", True)
    *told, loaded = _run("--version")
    assert (loaded, told) == ("", CliRunner().invoke(cli, ["--version"]).stdout.splitlines())
