"""Files uploaded in a form: every format, faults in their rows, twice the same, too large, hostile."""

from __future__ import annotations

import gzip
import io
import json
import re
from html import unescape
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.core.access import Role
from tests.api.conftest import LOOPBACK, TABLES, Create, fields_of
from tests.console.conftest import Browser, SignedIn, words

PAGE = "/console/tables/shop/wide/upload"
FIELDS = fields_of(id="BIGINT NOT NULL", note="STRING", n="INT")
ROWS = [{"id": 1, "note": "a,b", "n": 5}, {"id": 2, "note": None, "n": None}]
COLUMNS = pa.table({"id": [1, 2], "note": ["a,b", None], "n": pa.array([5, None], pa.int32())})
HOSTILE = "<b onx=1>\"'&{{7*7}}"


def parquet() -> bytes:
    written = io.BytesIO()
    pq.write_table(COLUMNS, written)
    return written.getvalue()


def arrow() -> bytes:
    written = io.BytesIO()
    with pa.ipc.new_stream(written, COLUMNS.schema) as stream:
        stream.write_table(COLUMNS)
    return written.getvalue()


CSV = b'id,note,n\n1,"a,b",5\n2,,\n'
NDJSON = b'{"id": 1, "note": "a,b", "n": 5}\n\n{"id": 2}\n'
BODIES: dict[str, bytes] = {
    "rows.csv": CSV,
    "rows.NDJSON": NDJSON,
    "rows.jsonl.gz": gzip.compress(NDJSON),
    "rows.json": json.dumps({"records": ROWS}).encode(),
    "rows.parquet": parquet(),
    "rows.arrows": arrow(),
}


@pytest.fixture
def page(create: Create, browser: Browser) -> Browser:
    """A browser that shows the form of a table."""
    create("wide", fields=FIELDS)
    assert browser.get(PAGE).status_code == 200
    return browser


def upload(browser: Browser, name: str, content: bytes, **fields: str) -> Any:
    """Sends the form that is shown with a file."""
    hidden = dict(re.findall(r'name="(csrf|once)" value="([^"]+)"', browser.shown))
    return browser.client.post(
        PAGE,
        data={**hidden, "kind": "", **fields},
        files={"file": (name, content)},
        headers={"Origin": LOOPBACK, "Sec-Fetch-Site": "same-origin"},
        follow_redirects=False,
    )


def rows(browser: Browser) -> list[dict[str, Any]]:
    scanned = browser.client.get(f"{TABLES}/wide/rows:scan")
    return sorted((json.loads(line) for line in scanned.text.splitlines()), key=lambda row: int(row["id"]))


@pytest.mark.parametrize("name", BODIES)
def test_a_file_is_one_batch_whatever_its_format(page: Browser, name: str) -> None:
    answer = upload(page, name, BODIES[name])
    assert answer.status_code == 303, words(answer.text)
    assert re.fullmatch(rf"{PAGE}\?sent=\w+", answer.headers["location"])
    assert rows(page) == ROWS
    assert "Batch 1 has 2 records and is staged" in page.text(answer.headers["location"])
    assert 'href="/console/tables/shop/wide/rows">Rows</a>' in page.shown


def test_the_columns_that_a_file_may_have_are_named(page: Browser) -> None:
    assert "Columns: id BIGINT NOT NULL, note STRING, n INT" in page.text(PAGE)


def test_the_format_is_chosen_where_the_name_does_not_say_it(page: Browser) -> None:
    refused = upload(page, f"{HOSTILE}.txt", CSV)
    assert (refused.status_code, "choose its format" in refused.text) == (400, True)
    assert "<b onx" not in refused.text
    assert upload(page, "rows.txt", CSV, kind="csv").status_code == 303
    assert upload(page, "rows.csv", NDJSON, kind="ndjson").status_code == 303


def test_the_same_file_of_the_same_form_counts_once(page: Browser) -> None:
    batches = [upload(page, "rows.csv", body).headers["location"] for body in (CSV, CSV, CSV + b"3,c,7\n")]
    assert batches[0] == batches[1] != batches[2]
    page.get(PAGE)
    assert upload(page, "rows.csv", CSV).headers["location"] not in batches


@pytest.mark.parametrize(
    ("name", "content", "reported"),
    [
        ("a.csv", b'id,note,n\n1,"a\nb",5\nx,' + HOSTILE[:9].encode() + b",y\n", "x,<b onx=1>,y"),
        ("a.ndjson", b'{"id": 1}\n\n{"id": "x", "n": "<b>"}\n', '{"id": "x", "n": "<b>"}'),
        ("a.json", b'{"records": [{"id": 1}, {"id": "x", "n": "<b>"}]}', '{"id": "x", "n": "<b>"}'),
    ],
)
def test_faults_are_reported_in_their_rows_with_the_text(
    page: Browser, name: str, content: bytes, reported: str
) -> None:
    refused = upload(page, name, content)
    assert (refused.status_code, rows(page)) == (400, [])
    text = words(refused.text)
    assert "2 faults, nothing was stored" in text
    found = re.findall(
        r'<tr><td class="number" data-label="Row">2</td><td class="mono" data-label="Column">(\w+)</td>', refused.text
    )
    assert found == ["id", "n"]
    assert unescape(refused.text).count(reported) >= 2
    assert not re.search(r"<b( onx|>[^ \d])", refused.text)


def test_faults_of_columnar_files_are_reported_without_texts(page: Browser) -> None:
    written = io.BytesIO()
    pq.write_table(pa.table({"id": [1, None]}), written)
    refused = upload(page, "a.parquet", written.getvalue())
    assert refused.status_code == 400
    assert re.search(
        r'<tr><td class="number" data-label="Row">2</td><td class="mono" data-label="Column">id</td>', refused.text
    )


@pytest.mark.parametrize("content", [b"", b"\xff\xfe{", b'{"records": [' * 5000, b"PAR1" * 50, b"\0" * 100])
@pytest.mark.parametrize("kind", ["csv", "ndjson", "json", "parquet", "arrow"])
def test_what_is_no_such_file_is_refused_as_a_page(page: Browser, kind: str, content: bytes) -> None:
    answer = upload(page, "a", content, kind=kind)
    assert answer.status_code in (303, 400), answer.text
    assert answer.status_code == 303 or answer.headers["content-type"].startswith("text/html")


def test_a_large_file_goes_through_the_disk(page: Browser) -> None:
    many = b"".join(b'{"id": %d, "note": "%s"}\n' % (number, b"x" * 1000) for number in range(8000))
    assert upload(page, "rows.ndjson", many).status_code == 303
    assert page.client.get(f"{TABLES}/wide/batches").json()["batches"][0]["records"] == 8000


def test_a_form_without_a_file_or_of_another_shape_is_refused(page: Browser) -> None:
    own = {"Origin": LOOPBACK}
    hidden = dict(re.findall(r'name="(csrf|once)" value="([^"]+)"', page.shown))
    assert "choose a file" in page.client.post(PAGE, data=hidden, headers=own).text
    for reported, body in (
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=a", b"--b\r\n\r\nx"),
        ("multipart/form-data; boundary=a", b"--a\r\n" + b"X: y\r\n" * 1000 + b"\r\n"),
        ("multipart/form-data; boundary=a", b'--a\r\nContent-Disposition: form-data; name="x"\r\n\r\n\r\n' * 60),
    ):
        answer = page.client.post(PAGE, content=body, headers={**own, "Content-Type": reported})
        assert answer.status_code in (400, 403), answer.text
    csrf = page.client.post(PAGE, files={"file": ("a.csv", CSV)}, headers=own)
    assert (csrf.status_code, rows(page)) == (403, [])


def test_a_file_that_is_too_large_is_reported_by_a_page_before_it_is_read(page: Browser) -> None:
    headers = {"Origin": LOOPBACK, "Content-Length": str(2**50)}
    answer = page.client.post(PAGE, content=b"", headers=headers)
    assert (answer.status_code, "split it" in words(answer.text)) == (413, True)


def test_empty_fields_of_csv_are_left_out_where_that_means_something(create: Create, browser: Browser) -> None:
    options = {"merge-engine": "partial-update", "record.absent-columns": "unchanged"}
    create("wide", fields=FIELDS, options=options)
    browser.get(PAGE)
    upload(browser, "rows.csv", CSV)
    browser.get(PAGE)
    assert upload(browser, "rows.csv", b"id,note,n\n1,,6\n", empty="absent").status_code == 303
    assert rows(browser)[0] == {"id": 1, "note": "a,b", "n": 6}


def test_who_may_only_read_uploads_nothing(create: Create, signed_in: SignedIn) -> None:
    create("wide", fields=FIELDS)
    reader = signed_in(Role.READ)
    assert reader.get(PAGE).status_code == 403
    reader.get("/")
    assert upload(reader, "rows.csv", CSV).status_code == 403
