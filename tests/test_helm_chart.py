"""deploy/helm/keyfold against this version, without Helm: versions, values, and the commands of docs/deployment.md.

tests/test_rendered_chart.py has what Helm makes of it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
import yaml

from app.cli.program import program_for

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "deploy" / "helm" / "keyfold"
CHART: dict[str, Any] = yaml.safe_load((FOLDER / "Chart.yaml").read_text())
VALUES: dict[str, Any] = yaml.safe_load((FOLDER / "values.yaml").read_text())
TEMPLATES = "".join(path.read_text() for path in sorted((FOLDER / "templates").iterdir()))
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]
SECTION = (ROOT / "docs" / "deployment.md").read_text().partition("## Kubernetes")[2].partition("\n## ")[0]
COMMANDS: Any = typer.main.get_command(program_for([]))
USED = {*re.findall(r"\.Values\.([\w.]+)", TEMPLATES)}


def names(values: dict[str, Any], before: str = "") -> Iterator[str]:
    """Yield the path of each value that has no names in it: ``serve.replicas``."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from names(value, f"{before}{name}.")
        else:
            yield f"{before}{name}"


def exists(path: str) -> bool:
    """Return whether values.yaml has a value, or a group of them, at ``path``."""
    return any(name == path or name.startswith(f"{path}.") for name in names(VALUES))


def test_the_chart_has_the_version_of_the_project() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert (CHART["version"], CHART["appVersion"]) == (version, version)
    assert {f":{version}"} == {*re.findall(r"registry\.example/[\w-]+(:\S+)", SECTION)}


def test_templates_use_every_value_and_no_other() -> None:
    assert [path for path in USED if not exists(path)] == []
    own = [path for path in names(VALUES) if not path.startswith("postgresql.")]
    assert [path for path in own if not any(path == one or path.startswith(f"{one}.") for one in USED)] == []


def test_a_comment_explains_every_group_of_values() -> None:
    lines = (FOLDER / "values.yaml").read_text().splitlines()
    for name in VALUES:
        at = next(number for number, line in enumerate(lines) if line.startswith(f"{name}:"))
        block = next(line for line in reversed(lines[:at]) if not re.match(r"\w", line))
        assert block.startswith("#"), name


def test_postgresql_is_optional_and_of_the_version_of_the_compose_file() -> None:
    [dependency] = CHART["dependencies"]
    assert dependency["condition"] == f"{dependency['alias']}.enabled"
    postgresql = VALUES[dependency["alias"]]
    assert postgresql["enabled"] is False
    assert COMPOSE["postgres"]["image"] == f"postgres:{postgresql['image']['tag']}"
    assert postgresql["auth"]["existingSecret"] == VALUES["existingSecret"]
    user, database = postgresql["auth"]["username"], postgresql["auth"]["database"]
    assert f"//{user}:$password@keyfold-{dependency['alias']}/{database}" in SECTION


def test_the_secret_of_the_page_has_the_keys_that_the_chart_names() -> None:
    made = {*re.findall(r"^([\w-]+)=", SECTION.partition("--from-env-file=/dev/stdin <<END\n")[2], re.MULTILINE)}
    listed = {*re.findall(r"^#   ([\w-]+)  ", (FOLDER / "values.yaml").read_text(), re.MULTILINE)}
    assert made == listed - {"spark-remote"}
    assert VALUES["postgresql"]["auth"]["secretKeys"]["adminPasswordKey"] in made
    for key in listed - {"postgres-password"}:
        assert f'"{key}"' in TEMPLATES


def test_the_page_sets_values_that_exist() -> None:
    table = re.findall(r"`((?:[a-z]\w+\.)+\w+)`", "".join(re.findall(r"^\|.*$", SECTION, re.MULTILINE)))
    given = re.findall(r"--set (\S+?)=", SECTION)
    assert len(given) == 3
    assert len(table) > 8
    assert [path for path in [*table, *given] if not exists(path)] == []


def test_the_commands_of_the_page_and_of_the_notes_are_understood() -> None:
    notes = (FOLDER / "templates" / "NOTES.txt").read_text().replace("{{ .Release.Name }}", "keyfold")
    for text in (SECTION, notes):
        [words] = re.findall(r"exec deployment/keyfold-worker --container worker -- keyfold (.+)", text)
        group, *arguments = words.split()
        COMMANDS.commands[group].commands[arguments[0]].make_context(group, arguments[1:])


def test_spark_connect_starts_as_in_the_compose_file() -> None:
    script, *flags = COMPOSE["spark-connect"]["command"]
    own = re.findall(r"^ +- (/opt/spark/\S+|--\S+)$", TEMPLATES, re.MULTILINE)
    assert own[0] == script
    assert own[1] == flags[0] == "--wait"
    kept = {flag for flag in flags if "spark.driver" not in flag and "--master" not in flag}
    assert kept <= {*own}
    assert (ROOT / "deploy" / "pools.xml").read_text().strip() in TEMPLATES
