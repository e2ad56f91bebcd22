"""The proxies of docs/production.md and deploy/Caddyfile, as far as this machine has them, before a real service."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import trustme

from app.catalog.database import CatalogDatabase
from app.services.access.tokens import create_token
from app.settings import Settings
from tests.server.test_certificates import AUTHORITY, write
from tests.service import Service

ROOT = Path(__file__).resolve().parents[2]
PATHS = f"{os.environ.get('PATH', '')}:/usr/sbin"
PATIENCE_SECONDS = 30
CLIENT = "127.0.0.2"  # of this machine, and no proxy
LARGE = b"x" * 30_000_000
NGINX = """
daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.err; {user}
events {{}}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  {shown}
}}
"""


@dataclass
class Proxied:
    """A service behind a proxy, and a token of it."""

    url: str
    token: str
    audit: Path

    def client(self) -> httpx.Client:
        """A client with another address than the proxy."""
        trust = ssl.create_default_context()
        AUTHORITY.configure_trust(trust)
        transport = httpx.HTTPTransport(verify=trust, local_address=CLIENT)
        return httpx.Client(base_url=self.url, transport=transport, trust_env=False, timeout=30)


def shown(language: str) -> str:
    """What the page shows in this language."""
    page = (ROOT / "docs" / "production.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[0]


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port: int = server.getsockname()[1]
        return port


def command(proxy: str, program: str, folder: Path, port: int, upstream: str) -> list[str]:
    """What starts the proxy at ``port`` before ``upstream``."""
    if proxy == "caddy":
        text = (ROOT / "deploy" / "Caddyfile").read_text().replace("api-1:8080 api-2:8080", upstream)
        text = text.replace("{\n\tservers", "{\n\tadmin off\n\tservers", 1).replace(
            "{$SITE}", f"http://127.0.0.1:{port}"
        )
        (folder / "Caddyfile").write_text(text)
        return [program, "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]
    chain, key = folder / "chain.pem", folder / "key.pem"
    issued: trustme.LeafCert = AUTHORITY.issue_cert("127.0.0.1")
    write(chain, key, issued)
    (folder / "keyfold.pem").write_bytes(chain.read_bytes() + key.read_bytes())
    text = shown(proxy).replace("10.0.0.5:8080", upstream).replace(":443", f"127.0.0.1:{port}")
    text = text.replace("listen 443", f"listen 127.0.0.1:{port}")
    for name in ("keyfold.pem", "chain.pem", "key.pem"):
        text = text.replace(f" {name}", f" {folder}/{name}")
    settings = folder / f"{proxy}.conf"
    if proxy == "haproxy":
        settings.write_text(text)
        return [program, "-db", "-f", str(settings)]
    user = "user root;" if os.geteuid() == 0 else ""
    settings.write_text(NGINX.format(folder=folder, shown=text, user=user))
    return [program, "-p", str(folder), "-c", str(settings)]


@pytest.fixture(params=["nginx", "haproxy", "caddy"])
def proxied(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Proxied]:
    proxy: str = request.param
    program = shutil.which(proxy, path=PATHS)
    if program is None:
        pytest.skip(f"there is no {proxy}")
    database = CatalogDatabase(Settings(KEYFOLD_DATA=tmp_path / "data").catalog_url)
    database.migrate()
    token = create_token(database, "till")
    database.close()
    audit, port = tmp_path / "audit.jsonl", free_port()
    chosen = {"AUDIT_LOG": audit, "TRUSTED_PROXIES": "127.0.0.1", "WORKERS": "0"}
    service = Service(tmp_path / "data", {f"KEYFOLD_{name}": str(value) for name, value in chosen.items()})
    folder = tmp_path / "proxy"
    folder.mkdir()
    own = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    process = subprocess.Popen(
        command(proxy, program, folder, port, urlsplit(service.url).netloc),
        env={**os.environ, **own},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        made = Proxied(f"{'http' if proxy == 'caddy' else 'https'}://127.0.0.1:{port}", token, audit)
        wait_for(made, process)
        yield made
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)
        service.stop()


def wait_for(proxied: Proxied, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    with proxied.client() as client:
        while time.monotonic() < deadline and process.poll() is None:
            with suppress(httpx.HTTPError):
                if client.get("/healthz").status_code == 200:
                    return
            time.sleep(0.1)
    raise AssertionError("the proxy does not pass requests on")


def test_a_service_behind_a_proxy_knows_its_clients_and_its_own_name_and_its_refusals_arrive(proxied: Proxied) -> None:
    claimed = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "gopher"}
    own = {"Authorization": f"Bearer {proxied.token}", "Origin": proxied.url}
    with proxied.client() as client:
        assert client.get("/v1/config", headers=own | claimed).status_code == 200
        foreign = client.get("/v1/config", headers=own | {"Origin": "https://elsewhere.example"})
        assert foreign.status_code == 403
        assert f"which the request calls '{proxied.url}'" in foreign.json()["detail"]
    for _ in range(3):  # refused before its body has come: nginx may then close a connection that it said to keep
        with proxied.client() as client:
            refused = client.post("/v1/catalog/databases/d/tables/t/batches", content=LARGE, headers=claimed)
            assert (refused.status_code, refused.json()["errors"][0]["code"]) == (401, "missing_token")
    reported = [json.loads(line)["address"] for line in proxied.audit.read_text().splitlines()]
    assert reported == [CLIENT] * len(reported)
