"""What a browser may send for the page that it shows: hosts, origins, sites."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import ValidationError
from starlette.datastructures import Headers

from app.core.errors import Forbidden
from app.http.browsers import Place, check_host, check_page
from app.main import create_app
from app.services.access.tokens import create_token
from app.settings import Settings
from tests.api.conftest import DATABASES, LOOPBACK

PLACE = Place("127.0.0.1", 8080)
EVIL = {"Origin": "https://evil.example"}


@pytest.mark.parametrize("name", ["localhost", "LocalHost", "127.0.0.1", "127.9.8.7", "[::1]", "[0:0:0:0:0:0:0:1]"])
@pytest.mark.parametrize("port", ["", ":8080"])
def test_the_names_of_this_machine_are_hosts(name: str, port: str) -> None:
    check_host(Headers({"Host": name + port}), PLACE)


def test_the_address_that_the_service_listens_on_is_a_host() -> None:
    check_host(Headers({"Host": "Here.Local:8080"}), Place("here.local", 8080))
    with pytest.raises(Forbidden):
        check_host(Headers({"Host": "there.local:8080"}), Place("here.local", 8080))


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example", "evil.localhost"),
        *("localhost:8081", "localhost:", "localhost:080800", "localhost:x", "localhost:-1", "localhost:8080:8080"),
        *("evil@localhost", "localhost@evil.example", "localhost:8080@evil.example", "localhost.", "127.0.0.1."),
        *(
            *("", " ", "::1", "[::1", "::1]", "[::2]", "[127.0.0.1]x", "[]", "127.1", "2130706433", "0x7f.0.0.1"),
            "0.0.0.0",  # noqa: S104  # nothing listens there
        ),
        *("0177.0.0.1", "127.0.0.256", "128.0.0.1", "localhost, evil.example", "localhost/", "http://localhost"),
        "[::1%25lo]",
        *("localhost\\evil", "localhost#evil", "localhost%00", "\u00b9\u00b2\u00b77.0.0.1", "evil.example#localhost"),
    ],
)
def test_no_other_name_is_a_host(host: str) -> None:
    with pytest.raises(Forbidden) as refused:
        check_host(Headers(raw=[(b"host", host.encode("latin-1"))]), PLACE)
    (fault,) = refused.value.violations
    assert fault.code == "foreign_host"
    assert "http://localhost:8080" in fault.fix


@pytest.mark.parametrize("hosts", [[], ["localhost", "localhost"], ["localhost", "evil.example"]])
def test_a_request_names_one_host(hosts: list[str]) -> None:
    with pytest.raises(Forbidden):
        check_host(Headers(raw=[(b"host", host.encode()) for host in hosts]), PLACE)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://localhost:8080", "localhost:8080"),
        ("HTTP://LOCALHOST:8080", "localhost:8080"),
        ("http://localhost", "localhost:80"),
        ("https://keyfold.example", "keyfold.example"),
        ("https://keyfold.example", "keyfold.example:443"),
        ("http://[::1]:8080", "[::1]:8080"),
    ],
)
def test_a_page_of_the_service_itself_may_call(origin: str, host: str) -> None:
    check_page(Headers({"Host": host, "Origin": origin}), origin.partition(":")[0].lower())


@pytest.mark.parametrize(("origin", "scheme"), [("https://localhost:8080", "http"), ("http://localhost:8080", "https")])
def test_a_page_of_another_scheme_is_another_origin(origin: str, scheme: str) -> None:
    with pytest.raises(Forbidden):
        check_page(Headers({"Host": "localhost:8080", "Origin": origin}), scheme)


@pytest.mark.parametrize(
    "origin",
    [
        *("https://evil.example", "null", "", "http://localhost.evil.example:8080", "http://localhost:8081"),
        "http://[",
        *("http://localhost", "https://localhost", "http://evil@localhost:8080", "ftp://localhost:8080"),
        "localhost:8080",
        *("http://localhost:8080/", "http://localhost:8080 http://evil.example", "http://127.0.0.1:8080", "\xff"),
    ],
)
def test_a_page_of_another_origin_may_not_call(origin: str) -> None:
    with pytest.raises(Forbidden) as refused:
        check_page(Headers({"Host": "localhost:8080", "Origin": origin}), "http")
    assert [fault.code for fault in refused.value.violations] == ["foreign_origin"]


@pytest.mark.parametrize("site", ["same-origin", "none", "None"])
def test_what_a_person_or_an_own_page_asks_for_is_answered(site: str) -> None:
    check_page(Headers({"Host": "localhost", "Sec-Fetch-Site": site}), "http")


@pytest.mark.parametrize("site", ["cross-site", "Cross-Site", "same-site", "", "unheard-of"])
def test_what_another_site_asks_for_is_refused(site: str) -> None:
    with pytest.raises(Forbidden) as refused:
        check_page(Headers({"Host": "localhost", "Sec-Fetch-Site": site}), "http")
    assert [fault.code for fault in refused.value.violations] == ["cross_site"]


def test_all_that_is_foreign_is_reported_at_once() -> None:
    with pytest.raises(Forbidden) as refused:
        check_page(Headers({"Host": "localhost", "Sec-Fetch-Site": "cross-site"} | EVIL), "http")
    assert [fault.code for fault in refused.value.violations] == ["foreign_origin", "cross_site"]


FOREIGN: list[dict[str, str]] = [EVIL, {"Sec-Fetch-Site": "cross-site"}, {"Host": "evil.example"}]


@pytest.mark.parametrize("headers", FOREIGN)
def test_a_foreign_request_is_a_403_that_changes_nothing(client: TestClient, headers: dict[str, str]) -> None:
    answer = client.post(DATABASES, json={"name": "shop"}, headers=headers)
    reported: dict[str, Any] = answer.json()
    assert (answer.status_code, reported["errorCode"], reported["code"]) == (403, "forbidden", 403)
    assert answer.headers["content-type"] == "application/problem+json"
    assert reported["errors"][0]["fix"]
    own = {"Origin": LOOPBACK, "Sec-Fetch-Site": "same-origin"}  # as the page of the document sends it
    assert client.get(DATABASES, headers=own).json()["databases"] == []


def test_with_a_token_any_host_will_do_but_no_foreign_page(app: FastAPI, client: TestClient) -> None:
    bearer = {"Authorization": "Bearer " + create_token(app.state.parts.database, "ci")}
    assert client.get(DATABASES, headers=bearer | {"Host": "keyfold.example"}).status_code == 200
    assert client.get(DATABASES, headers=bearer | EVIL).status_code == 403


APP = "https://app.example"


@pytest.fixture
def open_to_a_page(tmp_path: Path) -> Iterator[TestClient]:
    """A service that pages of ``APP`` may call."""
    settings = Settings(KEYFOLD_DATA=tmp_path, workers=0, cors_origins=f"{APP}, http://localhost:3000")
    with TestClient(create_app(settings), LOOPBACK) as client:
        yield client


def test_a_page_that_the_settings_name_may_call_and_read_the_headers(open_to_a_page: TestClient) -> None:
    asked = {"Origin": APP, "Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "authorization"}
    preflight = open_to_a_page.options(DATABASES, headers=asked)
    assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (200, APP)
    assert "PUT" in preflight.headers["access-control-allow-methods"]
    answer = open_to_a_page.get(DATABASES, headers={"Origin": APP, "Sec-Fetch-Site": "cross-site"})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, APP)
    assert "origin" in answer.headers["vary"].lower()
    assert "ETag" in answer.headers["access-control-expose-headers"]
    refused = open_to_a_page.get(f"{DATABASES}/none", headers={"Origin": APP})
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (404, APP)


def test_a_page_that_the_settings_name_may_read_rows(open_to_a_page: TestClient) -> None:
    """The ordinary lookup has a way of its own through the service."""
    open_to_a_page.post(DATABASES, json={"name": "shop"}).raise_for_status()
    schema = {"fields": [{"id": 0, "name": "id", "type": "INT"}], "primaryKeys": ["id"]}
    table = {"identifier": {"database": "shop", "object": "orders"}, "schema": schema}
    open_to_a_page.post(f"{DATABASES}/shop/tables", json=table).raise_for_status()
    orders = f"{DATABASES}/shop/tables/orders"
    open_to_a_page.post(f"{orders}/batches", json={"records": [{"id": 7}]}).raise_for_status()
    for path in (f"{orders}/rows/7", f"{orders}/rows?key=7", f"{orders}/rows/8"):
        answer = open_to_a_page.get(path, headers={"Origin": APP})
        assert answer.headers["access-control-allow-origin"] == APP, path
        assert "origin" in answer.headers["vary"].lower()
        assert "access-control-allow-origin" not in open_to_a_page.get(path).headers


def test_every_other_page_is_refused_all_the_same(open_to_a_page: TestClient) -> None:
    for origin in ("https://evil.example", f"{APP}.evil.example", f"{APP}:8443", "http://app.example", "null"):
        asked = {"Origin": origin, "Access-Control-Request-Method": "GET"}
        assert open_to_a_page.options(DATABASES, headers=asked).status_code == 400
        answer = open_to_a_page.get(DATABASES, headers={"Origin": origin})
        assert (answer.status_code, answer.headers.get("access-control-allow-origin")) == (403, None), origin


@pytest.mark.parametrize(
    "text",
    [
        *("*", "app.example", "https://app.example/", "https://app.example/x", "HTTPS://A.b"),
        *("https://app.example:443", "http://app.example:80", "http://[::1]:80"),
    ],
)
def test_what_no_browser_sends_is_no_origin(text: str) -> None:
    with pytest.raises(ValidationError, match="is no origin"):
        Settings(cors_origins=text)
