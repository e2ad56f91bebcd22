"""The documentation is true: the commands of its pages answer what they print, and what it names exists."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from app.cli.client.settings import ClientSettings
from app.cli.program import program_for
from app.main import create_app
from app.settings import Settings
from tests.service import Client, TableClient, serving

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
# Read after each other, in this order: each page goes on where the one before it ended.
STORY = [
    *(
        f"docs/{name}.md"
        for name in (
            "tutorial-http",
            "merges",
            "snapshots",
            "files",
            "changelogs",
            "delta",
            "iceberg",
            "late-records",
            "forget",
            "tokens",
        )
    ),
]
ALONE = ["README.md"] + [
    f"docs/{name}.md"
    for name in ("security", "cdc", "cli", "http", "ingest", "sql", "tutorial", "explain", "explanation/folds")
]
CLI = (ROOT / "docs" / "cli.md").read_text()
SETTINGS = (ROOT / "docs" / "settings.md").read_text()
MAP = (ROOT / "docs" / "map.md").read_text()
AT_THE_TOP = [ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY", "bench/README")]
DOCUMENTS = [*AT_THE_TOP, *sorted(ROOT.glob("docs/**/*.md"))]
OF_NOW = [page for page in DOCUMENTS if not page.read_text().startswith("Superseded by")]  # others name what was
# The others call what they name by a short name of their own: /tables/T, /batches/{id}.
WITH_PATHS = [
    "changelogs",
    "clients",
    "explain",
    "files",
    "forget",
    "http",
    "limits",
    "merges",
    "rows",
    "settings",
    "snapshots",
    "sql",
    "tokens",
    "tutorial-http",
]
OF_ROUTES = ["README.md", *(f"docs/{name}.md" for name in WITH_PATHS)]
ADDRESS = "127.0.0.1:8080"
END_OF_ANSWER = "--- end of answer ---"
OF_TESTS = {  # docs/extending.md and docs/make.md alone have to do with them
    "KEYFOLD_RECORD",
    "KEYFOLD_EXAMPLES",
    "KEYFOLD_SCHEMATHESIS_SECONDS",
}


@dataclass
class Step:
    """One command of a console block and what the page says it prints."""

    command: str
    printed: list[str] = field(default_factory=list)


def console_steps(text: str) -> list[Step]:
    steps: list[Step] = []
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                steps.append(Step(line[2:]))
            elif line.startswith("> "):
                steps[-1].command += f"\n{line[2:]}"
            else:
                steps[-1].printed.append(line)
    return steps


class Shell:
    """One bash that runs commands after each other, so that variables last."""

    def __init__(self, folder: Path) -> None:
        (folder / ".curlrc").write_text('silent\nshow-error\nnoproxy = "*"\n')
        (folder / ".venv").symlink_to(sys.prefix)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("KEYFOLD_")}
        self.process = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env={**environment, "CURL_HOME": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, command: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{command}\nprintf '\\n%s\\n' '{END_OF_ANSWER}'\n")
        self.process.stdin.flush()
        lines = []
        for line in self.process.stdout:
            if line.rstrip() == END_OF_ANSWER:
                return "".join(lines).strip("\n")
            lines.append(line)
        raise AssertionError(f"bash ended: {''.join(lines)}")

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


def normalised(text: str) -> str:
    """``text`` with what differs from run to run in one form: ids, tokens, times, sizes of files."""
    text = re.sub(r"\b[0-9a-f]{32}\b", "ID", text)
    text = re.sub(r"\bkf_[\w-]{43}(?![\w-])", "TOKEN", text)
    text = re.sub(r"\b1[0-9]{12}\b", "MILLIS", text)
    text = re.sub(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+\+00:00", "TIME", text)
    return re.sub(r'"sizeBytes":\d+', '"sizeBytes":SIZE', text)


def expected_pattern(printed: list[str]) -> str:
    """A pattern of what a command prints; ``…`` stands for anything."""
    return ".*".join(re.escape(part) for part in normalised("\n".join(printed)).split("…"))


def _merge_once(client: Client) -> None:
    """Spark's first merge is slow, and the first page waits for its own no longer than it says."""
    client.create_database("first")
    schema = {"fields": [{"name": "k", "type": "INT NOT NULL"}], "primaryKeys": ["k"]}
    assert client.create_table("first", "t", schema).status_code == 200
    table = TableClient(client, "first", "t")
    table.post_batch([{"k": 1}])
    table.merge()
    client.delete(table.path).raise_for_status()


@pytest.fixture(scope="module")
def shell(spark_remote: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shell, str]]:
    """A shell in the folder of a real service, and the service's address."""
    folder = tmp_path_factory.mktemp("readme")
    settings = {"spark_remote": spark_remote}
    with serving(folder / "keyfold-data", **settings) as (service, client):
        _merge_once(client)
        opened = Shell(folder)
        yield opened, service.url.removeprefix("http://")
        opened.close()


def check(bash: Shell, address: str, steps: list[Step]) -> None:
    """Runs the commands, and compares what they print with what is documented."""
    assert steps
    for step in steps:
        answer = normalised(bash.run(step.command.replace(ADDRESS, address)).replace(address, ADDRESS))
        assert re.fullmatch(expected_pattern(step.printed), answer, re.DOTALL), f"$ {step.command}\n{answer}"


def test_the_commands_of_the_readme_and_of_the_pages_after_it_answer_what_they_print(shell: tuple[Shell, str]) -> None:
    for page in STORY:
        check(*shell, console_steps((ROOT / page).read_text()))


@pytest.mark.slow(reason="serves and asks with the commands of a page")
@pytest.mark.parametrize("name", ALONE)
def test_the_commands_of_a_page_answer_what_they_print(tmp_path: Path, name: str) -> None:
    if name == "README.md" and shutil.which("jq") is None:
        pytest.skip("needs jq, as the README does")
    with serving(tmp_path / "keyfold-data", workers="0") as (service, _):
        bash = Shell(tmp_path)
        try:
            bash.run(f"PATH={Path(sys.executable).parent}:$PATH")
            check(bash, service.url.removeprefix("http://"), console_steps((ROOT / name).read_text()))
        finally:
            bash.close()


def test_every_page_with_commands_is_run() -> None:
    reported = {page.relative_to(ROOT).as_posix() for page in DOCUMENTS if console_steps(page.read_text())}
    assert reported == {*STORY, *ALONE}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_curl_commands_use_only_options_that_ubuntu_22_04_has(document: Path) -> None:
    """Its curl is 7.81; --json came with 7.82."""
    assert not re.search(r"^.*\bcurl\b.* --json\b", document.read_text(), re.MULTILINE)


def test_make_targets_that_the_documents_name_exist() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for document in DOCUMENTS:
        named = set(re.findall(r"(?:`|^)make (\w+)", document.read_text(), re.MULTILINE))
        assert named <= targets, document
    listed = set(re.findall(r"^\| `make (\w+)", (ROOT / "docs" / "make.md").read_text(), re.MULTILINE))
    assert {"serve", "test", "check", "bench", "lock"} <= listed
    assert {"serve", "test"} <= set(re.findall(r"make (\w+)", README))


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 110


def command_paths() -> set[str]:
    """Every command of the program: ``serve``, ``token create``, …"""
    program = get_command(program_for([]))
    paths = set()
    for name, command in program.commands.items():
        paths |= {f"{name} {inner}" for inner in getattr(command, "commands", {})} or {name}
    return paths


def test_cli_commands_that_the_documents_name_exist() -> None:
    paths = command_paths()
    for document in OF_NOW:
        for words in re.findall(
            r"\bkeyfold ((?:token |tag |table |database )?[a-z][a-z-]*)\b(?=[^\n]*)", _code_of(document.read_text())
        ):
            assert words in paths, f"{document}: keyfold {words}"
    assert {path.split()[0] for path in paths} <= set(re.findall(r"\bkeyfold ([\w-]+)", CLI))


def _code_of(text: str) -> str:
    """What a document sets as code: fenced blocks and words in backticks."""
    blocks = re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```\w*\n.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return "\n".join([*(line for line in lines if "docker build" not in line), *re.findall(r"`([^`\n]+)`", prose)])


def defaults() -> dict[str, Any]:
    """Every variable that the service or a command that asks one reads, with its default."""
    fields = [*Settings.model_fields.items(), *ClientSettings.model_fields.items()]
    return {one.alias or f"KEYFOLD_{name.upper()}": one.default for name, one in fields}


def setting_variables() -> set[str]:
    return {*defaults()}


def test_the_page_of_settings_lists_every_one_and_no_other() -> None:
    listed = set(re.findall(r"^\| `(KEYFOLD_\w+)` \|", SETTINGS, re.MULTILINE))
    assert listed == setting_variables()


_UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "million": 10**6}


def says(reported: str, default: Any) -> bool:
    """Whether the page's words mean the default of a setting."""
    if isinstance(default, bool) or not isinstance(default, (int, float)):
        return reported.strip("`") in (str(default).lower(), str(default or "none"))
    number, _, unit = reported.strip("`").replace("a day", "86400").partition(" ")
    return float(number) == round(default / _UNITS[unit], 1 if unit == "" else None)


def test_the_page_of_settings_says_their_defaults() -> None:
    listed = dict(re.findall(r"^\| `(KEYFOLD_\w+)` \| ([^|]+) \|", SETTINGS, re.MULTILINE))
    known = defaults()
    assert listed["KEYFOLD_UMASK"] == f"`{known.pop('KEYFOLD_UMASK'):03o}`"
    wrong = {name: (listed[name], one) for name, one in known.items() if one is not None}
    assert {name: reported for name, reported in wrong.items() if not says(*reported)} == {}


def test_settings_that_the_documents_name_exist() -> None:
    pages = [page for page in OF_NOW if page.parent.name != "decisions"]  # those say what was when they were taken
    for document in [*pages, ROOT / "Dockerfile"]:
        named = set(re.findall(r"\bKEYFOLD_[A-Z_]+\b", document.read_text()))
        assert named <= setting_variables() | OF_TESTS, document


def test_routes_that_the_documents_name_are_in_the_openapi_document(tmp_path: Path) -> None:
    paths = set(create_app(Settings(KEYFOLD_DATA=tmp_path)).openapi()["paths"])
    table = "/v1/catalog/databases/{database}/tables/{table}"
    for name in OF_ROUTES:
        text = (ROOT / name).read_text()
        named = set(re.findall(r"`(?:[A-Z]+ )?…?(/[a-z][\w:{}/]*)`", text))
        for shortened in named - {"/v1", "/openapi.json", "/docs", "/metrics"}:
            assert any(path.endswith(shortened) for path in paths), f"{name}: {shortened}"
        for used in {f"{table}{rest}" for rest in re.findall(r"\$T(/[a-z]+(?::\w+)?)", text)}:
            assert used in paths, f"{name}: {used}"


def test_the_files_and_functions_of_the_map_exist() -> None:
    folders = (ROOT / "CONTRIBUTING.md").read_text().partition("## The map of the code")[2]
    assert "| `app/core/` |" in folders
    for name in re.findall(r"`((?:app|spark_jobs|migrations|tests|bench|docs)/[\w/.]*)`", folders + MAP):
        assert (ROOT / name).exists(), name
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \| ([^|]+) \|$", MAP, re.MULTILINE)
    rows = [(functions, files) for functions, files in rows if "`" in functions]
    assert len(rows) > 10
    for functions, files in rows:
        code = "\n".join((ROOT / name).read_text() for name in re.findall(r"`([^`]+)`", files))
        for function in re.findall(r"`(\w+)`", functions):
            assert re.search(rf"^ *(async )?def {function}\b", code, re.MULTILINE), f"{function} in {files}"


def test_the_places_and_tests_that_extending_names_exist() -> None:
    guide = (ROOT / "docs" / "extending.md").read_text()
    places = re.findall(r"`((?:app|spark_jobs|migrations|tests|docs)/[a-z0-9_/.*]+)`", guide)
    assert len(places) > 40
    assert [place for place in places if not list(ROOT.glob(place))] == []
    code = "\n".join(path.read_text() for path in ROOT.glob("tests/**/*.py"))
    assert [name for name in re.findall(r"`(test_\w+)`", guide) if f"def {name}(" not in code] == []


def test_links_between_the_documents_lead_somewhere() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
            name, _, anchor = target.partition("#")
            if "://" in name:
                continue
            linked = (document.parent / name).resolve() if name else document
            assert linked.exists(), f"{document}: {target}"
            headings = re.findall(r"^#+ (.+)$", linked.read_text(), re.MULTILINE) if anchor else []
            anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert not anchor or anchor in anchors, f"{document}: {target}"


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = [int(path.name[:4]) for path in sorted((ROOT / "docs" / "decisions").glob("*.md"))]
    assert numbers == list(range(1, len(numbers) + 1))
