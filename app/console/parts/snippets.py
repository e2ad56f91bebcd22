"""Programs that read a table and post to it, each as it is pasted: a language is one entry of ``LANGUAGES``."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pprint import pformat
from textwrap import indent
from typing import Any, Final
from urllib.parse import urlencode

from app.core.table.published import Format

_ARROW: Final = "application/vnd.apache.arrow.stream"
# A program reads this many rows; without the limit it reads all.
_ROWS: Final = 10


@dataclass(frozen=True)
class Target:
    """The table that the programs read and write: its ``url``, its ``name`` as ``database.table``, and the URL of the
    ``service``. With ``token`` the programs take a token from the environment.

    ``key`` is one of its keys as texts, ``record`` an example of a record. ``published`` has by format the lines by
    which other engines read it; None if it is not published in that format.
    """

    url: str
    token: bool
    key: Sequence[str]
    record: Mapping[str, Any]
    published: Mapping[Format, Mapping[str, str] | None]
    service: str
    name: str

    @property
    def key_query(self) -> str:
        """The key as it is in an address."""
        return urlencode([("key", text) for text in self.key])


@dataclass(frozen=True)
class Snippet:
    """One text to paste: ``needs`` is what must be installed, ``name`` distinguishes it."""

    name: str
    title: str
    text: str
    needs: str = ""


@dataclass(frozen=True)
class Language:
    """Snippets of one language, by the name of its place on the page."""

    name: str
    title: str
    snippets: Callable[[Target], Iterable[Snippet]]


def _curl(target: Target) -> Iterable[Snippet]:
    token = ['-H "Authorization: Bearer $KEYFOLD_TOKEN"'] if target.token else []

    def command(path: str, *more: str) -> str:
        return " \\\n  ".join(["curl " + shlex.quote(target.url + path), *token, *more])

    body = json.dumps({"records": [target.record]}, ensure_ascii=False)
    sent = ["-H 'Content-Type: application/json'", f"--data-binary {shlex.quote(body)}"]
    yield Snippet("curl-rows", "The first rows", command(f"/rows:scan?limit={_ROWS}"))
    yield Snippet("curl-row", "A row by its key", command(f"/rows?{target.key_query}"))
    once = '-H "Idempotency-Key: $(uuidgen || date +%s%N)"'
    yield Snippet(
        "curl-post", "Post a record; sent again under the same key, it counts once", command("/batches", once, *sent)
    )


_PYTHON: Final = """import json
{imports}from urllib.parse import urlencode

from app.core.table.published import Format
from urllib.request import Request, urlopen

TABLE = {url}
HEADERS = {headers}


def ask(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(TABLE + path, data, HEADERS, method=method)) as answer:
        return answer.read()


def rows(**query):
    return [json.loads(line) for line in ask("GET", "/rows:scan?" + urlencode(query, doseq=True)).splitlines()]


def row(*key):
    return json.loads(ask("GET", "/rows?" + urlencode([("key", one) for one in key])))


def post(*records):
    return json.loads(ask("POST", "/batches", {{"records": records}}))


for one in rows(limit={limit}):
    print(one)
print(row({key}))
# post({record})
"""


_CLIENT: Final = """{imports}from keyfold_client import Client

with Client({arguments}) as keyfold:
    table = keyfold.table({name})
    print(table.get({key}))
    frame = table.scan().to_pandas()
    print(frame)
    # table.upsert([{record}])
"""


def _python(target: Target) -> Iterable[Snippet]:
    """Yield a program of the client, and one of the standard library alone."""
    record = pformat(dict(target.record), width=100, sort_dicts=False)
    key = ", ".join(map(_quoted, target.key))
    client = _CLIENT.format(
        imports="import os\n\n" if target.token else "",
        arguments=", ".join([_quoted(target.service), *(['os.environ["KEYFOLD_TOKEN"]'] if target.token else [])]),
        name=_quoted(target.name),
        key=key if len(target.key) == 1 else f"({key})",
        record=indent(record, "    # ").removeprefix("    # "),
    )
    yield Snippet("python-client", "With the client and pandas", client, "keyfold-client[pandas], from clients/python")
    text = _PYTHON.format(
        imports="import os\n" if target.token else "",
        url=_quoted(target.url),
        headers=_python_headers(target, {"Content-Type": "application/json"}),
        limit=_ROWS,
        key=key,
        record=indent(record, "# ").removeprefix("# "),
    )
    yield Snippet("python", "With nothing but Python", text)


def _python_headers(target: Target, headers: Mapping[str, str]) -> str:
    parts = [f"{_quoted(name)}: {_quoted(value)}" for name, value in headers.items()]
    if target.token:
        parts.append('"Authorization": "Bearer " + os.environ["KEYFOLD_TOKEN"]')
    return "{" + ", ".join(parts) + "}"


def _quoted(text: str) -> str:
    """Return a text as Python and JavaScript have it."""
    return json.dumps(text)


_TYPESCRIPT: Final = """const table = {url};
const headers = {headers};

// BIGINT comes as text: JavaScript reads no number beyond 2^53.
const scanned = await fetch(`${{table}}/rows:scan?limit={limit}`, {{ headers }});
if (!scanned.ok) throw new Error(await scanned.text());
for (const line of (await scanned.text()).split("\\n").filter(Boolean)) console.log(JSON.parse(line));

const key = new URLSearchParams({key});
const found = await fetch(`${{table}}/rows?${{key}}`, {{ headers }});
if (!found.ok) throw new Error(await found.text());
console.log(await found.json());

// To post a record:
// const body = JSON.stringify({{ records: [{record}] }});
// const posted = await fetch(`${{table}}/batches`, {{ method: "POST", headers, body }});
// console.log(await posted.json());
export {{}};
"""


def _typescript(target: Target) -> Iterable[Snippet]:
    """Yield what is said is JavaScript as well: no type has to be written."""
    headers = ['"Content-Type": "application/json"', 'Prefer: "integers=text"']
    if target.token:
        headers.append("Authorization: `Bearer ${process.env.KEYFOLD_TOKEN}`")
    text = _TYPESCRIPT.format(
        url=_quoted(target.url),
        headers="{ " + ", ".join(headers) + " }",
        limit=_ROWS,
        key=json.dumps([["key", text] for text in target.key]),
        record=json.dumps(target.record),
    )
    yield Snippet("typescript", "Read rows, and post records", text, "Node 18, Deno, Bun or a browser; as a module")


_ARROW_ROWS: Final = """{imports}from urllib.request import Request, urlopen

import pyarrow as pa
{setup}
headers = {headers}
with urlopen(Request({url}, headers=headers)) as answer:
    rows = pa.ipc.open_stream(answer).read_all()
{then}
"""


def _arrow(target: Target, setup: str, then: str) -> str:
    """Return a program that has all rows as a table of Arrow, and continues with them."""
    return _ARROW_ROWS.format(
        imports="import os\n" if target.token else "",
        setup=setup,
        headers=_python_headers(target, {"Accept": _ARROW}),
        url=_quoted(target.url + "/rows:scan"),
        then=then,
    )


def _spark(target: Target) -> Iterable[Snippet]:
    setup = "from pyspark.sql import SparkSession\n"
    then = "spark = SparkSession.builder.getOrCreate()\nframe = spark.createDataFrame(rows)\nframe.show()"
    yield Snippet(
        "spark", "All rows over HTTP, staged ones folded in", _arrow(target, setup, then), "pyspark 4, pyarrow"
    )
    yield from _of_files(target, "spark", "{}.show()\n", "the package of {} for Spark")


def _duckdb(target: Target) -> Iterable[Snippet]:
    then = 'print(duckdb.sql("SELECT count(*) AS n FROM rows"))\nprint(duckdb.sql("SELECT * FROM rows LIMIT 10"))'
    text = _arrow(target, "import duckdb\n", then)
    # As isort would have it.
    text = text.replace("import pyarrow as pa\nimport duckdb\n", "import duckdb\nimport pyarrow as pa\n")
    yield Snippet("duckdb", "All rows over HTTP, staged ones folded in", text, "duckdb, pyarrow")
    yield from _of_files(target, "duckdb", "{}\n")


def _of_files(target: Target, engine: str, program: str, needs: str = "") -> Iterable[Snippet]:
    """Yield the programs that read the files themselves, of the newest version of each format."""
    for form, lines in target.published.items():
        if lines is not None:
            text, called = program.format(lines[engine]), form.value.title()
            yield Snippet(f"{engine}-{form.value}", f"As {called}: reads the files", text, needs.format(called))


LANGUAGES: Final = (
    Language("curl", "curl", _curl),
    Language("python", "Python", _python),
    Language("typescript", "TypeScript", _typescript),
    Language("spark", "Spark", _spark),
    Language("duckdb", "DuckDB", _duckdb),
)
