"""What ``keyfold --help`` tells without loading the commands is what they tell of themselves."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from app.cli.overview import SUMMARIES
from app.cli.program import MODULES, program_for

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
    group = typer.main.get_command(program_for([]))
    context = typer.Context(group)
    commands = {name: group.get_command(context, name) for name in group.list_commands(context)}  # type: ignore[attr-defined]
    assert {name: " ".join((one.help or "").split("\n\n")[0].split()) for name, one in commands.items()} == SUMMARIES


def test_help_and_version_load_nothing_that_commands_need() -> None:
    *told, loaded = _run("--help")
    assert (loaded, any("serve" in line for line in told)) == ("", True)
    *told, loaded = _run("--version")
    assert (loaded, told) == ("", CliRunner().invoke(program_for([]), ["--version"]).stdout.splitlines())


@pytest.mark.parametrize("name", MODULES)
def test_a_command_of_operators_needs_no_module_but_its_own(name: str) -> None:
    whole, own = (typer.main.get_command(program_for(words)) for words in ([], [name]))
    context = typer.Context(own)
    found = own.get_command(context, name)  # type: ignore[attr-defined]
    assert found.get_help(context) == whole.get_command(context, name).get_help(context)  # type: ignore[attr-defined]


def test_what_makes_a_token_loads_no_web_server() -> None:
    script = 'import sys, app.cli.program as one; one.program_for(["token"]); print("fastapi" in sys.modules)'
    assert (
        subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout == "False\n"
    )
