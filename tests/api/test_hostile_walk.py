"""Every route is asked for what nobody should ask: no answer is a fault of the service, each refusal is a problem, and
no header says what only a client said. (The same over sockets, with what only they can send: tests/acceptance.)
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from app.services.shared.answer_bytes import MOST_ANSWER_BYTES
from tests.api.conftest import DATABASES, LOOPBACK, TABLES, new_table
from tests.api.walk import BODIES, DOCUMENT, OPERATIONS, TABLE, Fill, filled_catalog, query

pytestmark = pytest.mark.slow(reason="asks every route many times")
HUGE = "9" * 400
TEXTS = [
    *(
        *("", " ", "x", "-1", "0", "1e999", "NaN", "true", "null", "[]", "{}", HUGE, f"-{HUGE}"),
        str(2**63),
        str(-(2**63) - 1),
    ),
    *("%00", "%0d%0aX-Hostile:%20yes", "%E2%80%A8", "%ed%a0%80", "%ff", "%", "%2", "%25%30%30", "%252e%252e%252f"),
    *("..%2f..%2fetc%2fpasswd", "%2e%2e", "a" * 9000, "%F0%9F%98%80", "x'%20OR%20'1'='1", "$%7Benv:HOME%7D", "٣"),
    "1_000",
]
# What the routes themselves read of a text, hostile in the way of each.
OF_PARAMETER: Mapping[str, list[str]] = {
    "filter": [
        *("id.eq.1.2", "note.like.%25" + "%25a" * 400, "note.in.(" + "a," * 5000 + "a)", "id.gt." + HUGE, "note.is."),
        ".eq.1",
    ],
    "columns": ["," * 5000, "id," * 3000, ",".join(f"c{number}" for number in range(3000))],
    "pageToken": ["WzFd", "W10", "bnVsbA", quote("[" * 300), "eyJhIjoxfQ", "1.1.1", f"{2**62}"],
    "snapshot": ["EARLIEST", "LATEST", "-0", "+1", f"+{HUGE}"],
    "tableNamePattern": ["%25" * 900, "%25a" * 300, "%5c", "_" * 2000],
}
SEGMENTS = [*TEXTS[:4], *TEXTS[11:], ":", "a:b", "..;", "%5c..%5c", "con", "~"]
WRONG: list[Any] = [
    *(None, True, 0, -1, 1.5, 2**64, "", "x", "\0", "\ud800", "\u2028", "x" * 70_000, [], {}, [[]], {"a": {}})
]


def check(answer: Any, what: str) -> None:
    """What holds of every answer."""
    assert answer.status_code < 500 or (answer.status_code == 503 and "retry-after" in answer.headers), (
        what,
        answer.text,
    )
    assert len(answer.content) <= MOST_ANSWER_BYTES, what
    assert "x-hostile" not in answer.headers, what
    for name, value in answer.headers.items():
        assert re.fullmatch("[ -~]*", value), (what, name)
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json", what
        reported = answer.json()
        assert reported["status"] == reported["code"] == answer.status_code, what
        assert reported["detail"], what
        assert "root:" not in answer.text, what


def asked(client: TestClient, method: str, url: str, **given: Any) -> Any:
    answer = client.request(method, f"{LOOPBACK}{url}", follow_redirects=False, **given)
    check(answer, f"{method} {url[:200]} {str(given)[:200]}")
    return answer


def parameters(path: str, method: str) -> list[str]:
    return [
        parameter["name"] for parameter in DOCUMENT[path][method].get("parameters", []) if parameter["in"] == "query"
    ]


@pytest.mark.parametrize("path", sorted({path for path, method in OPERATIONS if parameters(path, method)}))
def test_hostile_parameters_are_refused_or_read(walked: tuple[TestClient, Fill], path: str) -> None:
    client, fill = walked
    methods = [method for method in DOCUMENT[path] if parameters(path, method) and method != "delete"]
    for method, name in [(verb, name) for verb in methods for name in parameters(path, verb)]:
        body = BODIES.get(DOCUMENT[path][method]["operationId"])
        needed = "".join(f"&{key}={value}" for key, value in query(path).items() if key != name)
        for text in [*TEXTS, *OF_PARAMETER.get(name, [])]:
            for sent in (f"{name}={text}", f"{name}=1&{name}={text}"):
                if method == "get":
                    asked(client, method, f"{fill(path)}?{sent}{needed}", json=body)


@pytest.mark.parametrize("operation", ["createTable", "createTablesFromDdl", "alterTable"])
def test_hostile_words_for_validate_only_are_refused_or_read(walked: tuple[TestClient, Fill], operation: str) -> None:
    """The document does not name it: ``tables:validate`` and its like stand for it there."""
    client, fill = walked
    [path] = [path for path, method in OPERATIONS if DOCUMENT[path][method]["operationId"] == operation]
    for text in TEXTS:
        for sent in (f"validateOnly={text}", f"validateOnly=1&validateOnly={text}"):
            asked(client, "post", f"{fill(path)}?{sent}", json=BODIES[operation])


@pytest.mark.parametrize("path", sorted({path for path, _ in OPERATIONS if "{" in path}))
def test_hostile_segments_lead_nowhere(walked: tuple[TestClient, Fill], path: str) -> None:
    client, fill = walked
    for method, noun, text in itertools.product(DOCUMENT[path], re.findall(r"{(\w+)", path), SEGMENTS):
        before, after = path.split(f"{{{noun}}}")
        body = BODIES.get(DOCUMENT[path][method]["operationId"])
        url = f"{fill(before)}{text}{fill(after)}"
        if method == "get" or text not in ("0", "x", "-1"):
            asked(client, method, url, json=body)


@pytest.fixture(scope="module")
def spent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, Fill]]:
    """As ``walked``, for what may rightly succeed."""
    with filled_catalog(tmp_path_factory.mktemp("spent")) as walked:
        yield walked


# What may take the table away comes last.
@pytest.mark.parametrize("operation", [*sorted(BODIES.keys() - {"renameTable"}), "renameTable"])
def test_members_of_wrong_types_are_refused_or_ignored(spent: tuple[TestClient, Fill], operation: str) -> None:
    client, fill = spent
    [(path, method)] = [one for one in OPERATIONS if DOCUMENT[one[0]][one[1]]["operationId"] == operation]
    for body in hostile(BODIES[operation]):
        asked(client, method, fill(path), content=json.dumps(body), headers={"Content-Type": "application/json"})
    deep = "[" * 50_000 + "]" * 50_000
    for text in (deep, json.dumps(BODIES[operation])[:-1], "\ufeff{}", '{"a":' * 5000, "nul", "", HUGE):
        asked(client, method, fill(path), content=text, headers={"Content-Type": "application/json"})
    for media_type in (
        *("text/html", "application/x-www-form-urlencoded", "multipart/form-data", "*/*", ";;", "a" * 5000),
    ):
        asked(client, method, fill(path), content=b"{}", headers={"Content-Type": media_type})


def hostile(body: Any) -> Iterator[Any]:
    """The body with each of its members, at any depth, replaced."""
    yield from WRONG
    if isinstance(body, dict):
        for key, value in body.items():
            yield from ({**body, key: inner} for inner in hostile(value))
    elif isinstance(body, list) and body:
        for inner in hostile(body[0]):
            yield [inner, *body[1:]]


# What a path can carry goes over a real server: tests/acceptance/test_names_in_paths.py.
@pytest.mark.parametrize(
    "name",
    [*("a\r\nSet-Cookie: x", "a\0", "\x85", "..", ".", "a/b", "\ud800", "x" * 256, ""), *("a\nb", "a\x7fb", "t$files")],
)
def test_names_that_no_path_can_carry_are_refused(walked: tuple[TestClient, Fill], name: str) -> None:
    client, _ = walked
    for url, body, pointer in (
        (TABLES, new_table(name), "/identifier/object"),
        (DATABASES, {"name": name}, "/name"),
        (f"{TABLE}/tags", {"tagName": name}, "/tagName"),
    ):
        answer = asked(client, "post", url, content=json.dumps(body))
        assert answer.status_code == 400, (url, answer.text)
        assert {fault["pointer"] for fault in answer.json()["errors"]} == {pointer}, url
