"""deploy/keyfold.service against this version, and the commands of docs/deployment.md."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

from app.cli.program import program_for
from app.server.serving import END_SECONDS
from app.settings import Settings

ROOT = Path(__file__).parent.parent
UNIT = ROOT / "deploy" / "keyfold.service"
SECTION = (ROOT / "docs" / "deployment.md").read_text().partition("## systemd")[2].partition("\n## ")[0]
COMMANDS: Any = typer.main.get_command(program_for([]))


def service() -> dict[str, str]:
    """Return the section [Service] of the unit, where each key stands once."""
    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # keys keep their case
    unit.read_string(UNIT.read_text())
    return dict(unit["Service"])


def understood(words: list[str]) -> None:
    """Raise what the program says of words that are none of its commands and options."""
    group = COMMANDS
    while words and words[0] in getattr(group, "commands", {}):
        group = group.commands[words.pop(0)]
    group.make_context("keyfold", words)


def test_the_command_is_one_of_this_version() -> None:
    program, *words = shlex.split(service()["ExecStart"])
    assert program == "/opt/keyfold/bin/keyfold"
    understood(words)
    assert "sudo python3 -m venv /opt/keyfold\n" in SECTION


def test_the_settings_of_unit_and_page_are_those_of_this_version() -> None:
    path = service()["EnvironmentFile"]
    assert path in SECTION
    lines = SECTION.partition(f"{path} <<'END'\n")[2].partition("\nEND\n")[0].splitlines()
    given: dict[str, Any] = dict(line.split("=") for line in [service()["Environment"], *lines])
    named = {field.alias or f"KEYFOLD_{one.upper()}": one for one, field in Settings.model_fields.items()}
    chosen = Settings(**{named[name]: value for name, value in given.items()})
    assert str(chosen.folder) == f"/var/lib/{service()['StateDirectory']}"
    assert chosen.audit_log is not None
    assert Path(chosen.audit_log).parent == Path("/var/log") / service()["LogsDirectory"]
    assert chosen.asks_for_tokens
    assert SECTION.index("token create") < SECTION.index("enable --now"), "it does not start without a token"


def test_the_commands_of_the_page_are_understood() -> None:
    ran = re.findall(r"/opt/keyfold/bin/keyfold ([^#\n]+)", SECTION)
    assert len(ran) == 2
    for words in ran:
        assert words.split()[-1] == service()["Environment"].partition("=")[2]
        understood(shlex.split(words))
    for name in re.findall(r"sudo cp (\S+)", SECTION):
        assert (ROOT / name).is_file()


def test_a_stop_has_the_time_that_the_service_takes() -> None:
    both_stages = 2 * (Settings.stop_seconds + END_SECONDS)
    assert int(service()["TimeoutStopSec"]) > both_stages
    assert f"takes {both_stages} seconds at most" in " ".join(SECTION.split())
    assert service()["KillMode"] == "mixed", "SIGTERM for all would end Spark under a merge"
    assert service()["Restart"] == "on-failure"


def test_the_service_may_do_little_and_java_may_compile() -> None:
    chosen = service()
    assert (chosen["User"], chosen["NoNewPrivileges"], chosen["ProtectSystem"]) == ("keyfold", "true", "strict")
    assert "MemoryDenyWriteExecute" not in chosen


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_knows_every_key(tmp_path: Path) -> None:
    copy = tmp_path / UNIT.name
    copy.write_text(re.sub("(?<=ExecStart=)/opt/keyfold/bin/keyfold", "/bin/true", UNIT.read_text()))
    ended = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
