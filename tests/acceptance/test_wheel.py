"""The wheel, installed where nothing else is: it serves, merges and answers outside the checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.service import Client, TableClient

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("app", "migrations", "spark_jobs", "clients/python/keyfold_client")
SCHEMA = {"fields": [{"name": "k", "type": "INT NOT NULL"}, {"name": "n", "type": "INT"}], "primaryKeys": ["k"]}
pytestmark = pytest.mark.slow(reason="builds a wheel, installs it with what it needs, and starts Spark")


def run(command: Sequence[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)


def environment() -> dict[str, str]:
    """Without what would lead to the checkout."""
    left_out = ("PYTHONPATH", "VIRTUAL_ENV")
    return {k: v for k, v in os.environ.items() if k not in left_out and not k.startswith("KEYFOLD_")}


def need_registry(venv: Path, folder: Path) -> None:
    """Skips where packages, such as what builds the wheel, cannot be had; what fails behind this is its fault."""
    [pinned] = re.findall(r"^typer==\S+", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    done = run([*installing(venv), "--dry-run", pinned], folder)
    if done.returncode != 0:
        pytest.skip(f"no package registry answers here: {done.stderr.strip()[-300:]}")


def installing(venv: Path) -> list[str | Path]:
    """The command that installs into ``venv``: uv where it is, for it is ten times as fast."""
    if shutil.which("uv"):
        return ["uv", "pip", "install", "--quiet", "--python", venv / "bin" / "python"]
    return [venv / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]


def files_of_packages() -> set[str]:
    """What a clone has of the packages."""
    return {
        str(path.relative_to((ROOT / package).parent))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def copied(to: Path) -> Path:
    """The sources alone: what an earlier build has left in the checkout must not get into this one."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, to / package, ignore=shutil.ignore_patterns("__pycache__"))
    assets = to / "app" / "api" / "document" / "assets" / "deep"
    assets.mkdir(parents=True, exist_ok=True)
    (assets / "of_this_test.css").write_text("")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, to)
    return to


def built(source: Path, folder: Path, venv: Path) -> Path:
    command: list[str | Path] = ["uv", "build", "--quiet", "--out-dir", folder / "dist", source]
    if not shutil.which("uv"):
        command = [venv / "bin" / "python", "-m", "pip", "wheel", "--no-deps", "--wheel-dir", folder / "dist", source]
    done = run(command, folder)
    assert done.returncode == 0, done.stderr
    [wheel] = (folder / "dist").glob("keyfold-*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folder of the installed commands, and the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    venv = folder / "venv"
    bare = ["--without-pip"] if shutil.which("uv") else []
    assert run([sys.executable, "-m", "venv", *bare, venv], folder).returncode == 0
    need_registry(venv, folder)
    (folder / "source").mkdir()
    wheel = built(copied(folder / "source"), folder, venv)
    done = run([*installing(venv), "--constraint", ROOT / "requirements-serve.lock", f"{wheel}[spark]"], folder)
    assert done.returncode == 0, done.stderr
    return venv / "bin", wheel


@contextmanager
def served(commands: Path, folder: Path) -> Iterator[str]:
    """The URL of ``keyfold serve``, as it is without any setting but a free port."""
    command = [commands / "keyfold", "serve", "--port", "0"]
    own = {**environment(), "KEYFOLD_PROCESSES": "2", "KEYFOLD_SPARK_HEAP_MIB": "512"}
    log = folder.parent / "serve.log"
    with log.open("w") as written:
        process = subprocess.Popen(command, cwd=folder, env=own, stdout=subprocess.PIPE, stderr=written, text=True)
    assert process.stdout is not None
    with process, process.stdout:
        try:
            found = re.search(r"listens on (\S+)", process.stdout.readline())
            assert found, log.read_text()
            yield found[1]
        finally:
            process.terminate()
            process.wait(60)


def test_the_wheel_has_every_file_of_the_packages_and_what_pages_are_made_of(installed: tuple[Path, Path]) -> None:
    packed = {*zipfile.ZipFile(installed[1]).namelist()}
    assert files_of_packages() - packed == set()
    assert "app/api/document/assets/deep/of_this_test.css" in packed


def test_the_wheel_tells_its_version(installed: tuple[Path, Path], tmp_path: Path) -> None:
    reported = run([installed[0] / "keyfold", "--version"], tmp_path)
    assert reported.stdout == f"keyfold {installed[1].name.split('-')[1]}\n"


def test_the_wheel_serves_merges_and_answers_in_an_empty_folder(installed: tuple[Path, Path], tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    where = run([installed[0] / "python", "-c", "import app; print(app.__file__)"], empty).stdout
    assert Path(where).is_relative_to(installed[0].parent)
    with served(installed[0], empty) as url, Client(base_url=url, timeout=120, trust_env=False) as client:
        client.wait_ready()
        client.create_database("shop")
        client.create_table("shop", "t", SCHEMA).raise_for_status()
        table = TableClient(client, "shop", "t")
        table.post_batch([{"k": 1, "n": 7}]).raise_for_status()
        assert table.merge()["state"] == "succeeded"
        shown = run([installed[0] / "keyfold", "get", "shop.t", "1", "--merged", "--json", "--url", url], empty)
        assert (shown.stdout, shown.stderr) == ('{"k":1,"n":7}\n', "")
        assert client.get("/docs").status_code == 200
        assert client.get("/openapi.json").json()["info"]["title"] == "Keyfold"
    assert [path.name for path in empty.iterdir()] == ["keyfold-data"]
