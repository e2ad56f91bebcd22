"""A real PgBouncer for tests, where one is installed (Debian: ``apt install pgbouncer``)."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import sqlalchemy as sa

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
START_SECONDS = 20


@contextmanager
def pgbouncer(server_url: str, mode: str, size: int = 3, clients: int = 100) -> Iterator[str]:
    """``server_url`` by way of a PgBouncer with ``size`` sessions of the server; it ends with the block."""
    url = sa.make_url(server_url)
    host, user = str(url.host or url.query["host"]), url.username
    with socket.socket() as free, tempfile.TemporaryDirectory(prefix="keyfold-pooler-") as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        settings = Path(folder) / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n* = host={host} port={url.port or 5432} user={user}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
            f"listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = {mode}\n"
            f"default_pool_size = {size}\nmax_client_conn = {clients}\n"
            + (f"user = {Path(host).owner()}\n" if os.geteuid() == 0 else "")  # it does not run as root
        )
        os.chmod(folder, 0o711)  # noqa: S103  # another user reads the settings
        settings.chmod(0o644)
        assert PGBOUNCER is not None
        process = subprocess.Popen([PGBOUNCER, "--quiet", str(settings)], stderr=subprocess.DEVNULL)
        try:
            _wait_for(port)
            through = url.set(host="127.0.0.1", port=port, username=user or "postgres", query={})
            yield through.render_as_string(hide_password=False)
        finally:
            process.terminate()
            process.wait(START_SECONDS)


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.02)
    raise AssertionError("PgBouncer did not start")
