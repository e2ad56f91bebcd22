"""TLS over a real port, with one process and with several; and what proxies say of their clients."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import trustme
from fastapi import FastAPI

from app.catalog.database import CatalogDatabase
from app.server.serving import StoppingServer
from app.services.access.tokens import create_token
from app.settings import Settings
from tests.server.test_certificates import AUTHORITY, write
from tests.service import Service

CLIENT = "203.0.113.9"


class Encrypted:
    """A service that speaks TLS, trusts a proxy on this machine and has an audit log."""

    def __init__(self, folder: Path, processes: int) -> None:
        self.chain, self.key = folder / "cert.pem", folder / "key.pem"
        self.audit = folder / "audit.jsonl"
        self.renew()
        database = CatalogDatabase(Settings(KEYFOLD_DATA=folder / "data").catalog_url)
        database.migrate()
        self.token = create_token(database, "till")
        database.close()
        chosen = {"TLS_CERT": self.chain, "TLS_KEY": self.key, "AUDIT_LOG": self.audit, "TRUSTED_PROXIES": "127.0.0.1"}
        chosen |= {"PROCESSES": processes, "WORKERS": 0}
        self.service = Service(folder / "data", {f"KEYFOLD_{name}": str(value) for name, value in chosen.items()})

    def renew(self) -> str:
        """Another certificate in the files; its text."""
        issued: trustme.LeafCert = AUTHORITY.issue_cert("127.0.0.1")
        write(self.chain, self.key, issued)
        return issued.cert_chain_pems[0].bytes().decode()

    def shown(self) -> str:
        """The certificate that the next connection is shown."""
        address = urlsplit(self.service.url)
        assert address.hostname is not None
        assert address.port is not None
        return ssl.get_server_certificate((address.hostname, address.port))

    def client(self) -> httpx.Client:
        trust = ssl.create_default_context()
        AUTHORITY.configure_trust(trust)
        return httpx.Client(base_url=self.service.url, verify=trust, trust_env=False, timeout=30)


@pytest.fixture
def encrypted(tmp_path: Path) -> Iterator[Callable[[int], Encrypted]]:
    started: list[Encrypted] = []

    def start(processes: int) -> Encrypted:
        started.append(Encrypted(tmp_path, processes))
        return started[0]

    yield start
    for one in started:
        one.service.stop()


@pytest.mark.parametrize("processes", [1, 2])
def test_a_certificate_is_shown_and_another_one_once_its_files_change_and_a_trusted_proxy_says_who_its_client_is(
    encrypted: Callable[[int], Encrypted], processes: int
) -> None:
    service = encrypted(processes)
    assert service.service.url.startswith("https://127.0.0.1:")
    bearer = {"Authorization": f"Bearer {service.token}"}
    with service.client() as client:
        assert client.get("/v1/catalog/databases", headers=bearer).status_code == 200
        new = service.renew()
        deadline = time.monotonic() + 60
        seen: list[bool] = []  # by several connections, so that each process has some
        while seen[-12:] != [True] * 12:
            assert time.monotonic() < deadline
            seen.append(service.shown().split() == new.split())
        assert client.get("/v1/catalog/databases", headers=bearer).status_code == 200, "it was open before"
    with service.client() as client:
        assert client.get("/healthz").status_code == 200
    plain = service.service.url.replace("https", "http")
    with pytest.raises(httpx.HTTPError), httpx.Client(trust_env=False) as client:
        client.get(f"{plain}/healthz")
    check_proxies(service)


def check_proxies(service: Encrypted) -> None:
    with service.client() as client:
        for claimed in (CLIENT, f"192.0.2.1, {CLIENT}, 127.0.0.1"):
            assert client.get("/v1/config", headers={"X-Forwarded-For": claimed}).status_code == 401
        assert client.get("/v1/config").status_code == 401
    lines = [json.loads(line) for line in service.audit.read_text().splitlines()]
    assert [line["address"] for line in lines] == [CLIENT, CLIENT, "127.0.0.1"]


def test_no_proxy_is_trusted_unless_it_is_named() -> None:

    assert StoppingServer(FastAPI()).config.proxy_headers is False
