"""What ``keyfold --help`` says without loading the commands is what they say of themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from app.cli.overview import COMMANDS
from app.cli.program import program_for
from tests.cli.terminal import COMMAND

NEEDED = {"fastapi", "sqlalchemy", "pyarrow", "httpx"}
LOADED = """
import sys
from app.cli import main
sys.argv[0] = "keyfold"
try:
    main()
except SystemExit:
    print(*sorted(sys.modules))
"""


def _run(*words: str) -> list[str]:
    command = [sys.executable, "-c", LOADED, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def test_every_command_is_reported_as_in_its_own_help() -> None:
    group = typer.main.get_command(program_for([]))
    context = typer.Context(group)
    commands = {name: group.get_command(context, name) for name in group.list_commands(context)}  # type: ignore[attr-defined]
    own = {name: " ".join((one.help or "").split("\n\n")[0].split()) for name, one in commands.items()}
    assert own == {name: command.summary for name, command in COMMANDS.items()}


def test_help_and_version_load_nothing_that_commands_need() -> None:
    *reported, loaded = _run("--help")
    assert any("serve" in line for line in reported)
    assert NEEDED.isdisjoint(loaded.split())
    *reported, loaded = _run("--version")
    assert NEEDED.isdisjoint(loaded.split())
    assert reported == CliRunner().invoke(program_for([]), ["--version"]).stdout.splitlines()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_needs_no_module_but_its_own(name: str) -> None:
    whole, own = (typer.main.get_command(program_for(words)) for words in ([], [name]))
    context = typer.Context(own)
    found = own.get_command(context, name)  # type: ignore[attr-defined]
    assert found.get_help(context) == whole.get_command(context, name).get_help(context)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "absent"),
    [
        (["token", "list", "--help"], {"fastapi"}),
        (["serve", "--help"], {"keyfold_client", "alembic", "pandas"}),
        (["get", "--help"], {"fastapi", "sqlalchemy", "pyarrow", "numpy", "pyspark", "duckdb", "app.settings"}),
        (["nothing"], NEEDED),
    ],
)
def test_a_command_loads_nothing_that_others_need(words: list[str], absent: set[str]) -> None:
    *_, loaded = _run(*words)
    assert absent.isdisjoint(loaded.split())


def test_a_shell_completes_the_options_of_a_command() -> None:
    asked = {"_KEYFOLD_COMPLETE": "complete_bash", "COMP_WORDS": "keyfold table alter --re", "COMP_CWORD": "3"}
    command = [sys.executable, "-c", "from app.cli import main; import sys; sys.argv = ['keyfold']; main()"]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **asked})
    assert answer.stdout.split() == ["--rename"]


def test_output_that_cannot_be_written_is_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run([*COMMAND, "--version"], check=False, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (1, "keyfold: [Errno 28] No space left on device\n")


def test_standard_output_may_be_closed() -> None:
    closed = ["sh", "-c", '"$0" "$@" >&-', *COMMAND, "--version"]
    assert subprocess.run(closed, check=True, capture_output=True, text=True).stderr == ""
