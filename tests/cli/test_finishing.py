"""Commands that change, copy, keep, try and take out: table alter, tag, simulate, export, sql, open, status."""

from __future__ import annotations

import csv
import io
import json
import re
from itertools import islice
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from app.cli.client.commands import exports
from app.cli.client.endings import Exit, Failure
from app.cli.client.service import Service
from tests.cli.terminal import SUMS, Terminal, numbered_csv
from tests.service import serving

pytestmark = pytest.mark.slow(reason="each command is a process")


def filled(terminal: Terminal, name: str, rows: int = 20) -> str:
    table = terminal.table(name)
    assert terminal.run("load", table, "--format", "csv", "-", stdin=numbered_csv(range(rows))).returncode == 0
    return table


def test_a_table_is_altered_all_or_nothing(terminal: Terminal) -> None:
    table = terminal.table("altered")
    done = terminal.run(
        *("table", "alter", table, "--rename", "word=`the word`", "--add", "note ROW<a INT, b STRING>"),
        *("--add", "`late one` DECIMAL(10, 2)", "--set", "merge.max-staleness=2 d", "--comment", "of sums"),
    )
    assert (done.returncode, done.stderr) == (0, f"table {table} has schema 1 now\n")
    shown = terminal.run("table", "show", table).stdout
    assert "ROW<`a` INT, `b` STRING>" in shown
    schema = terminal.result("table", "show", table)["schema"]
    assert [field["name"] for field in schema["fields"]] == ["id", "the word", "n", "note", "late one"]
    assert (schema["options"]["merge.max-staleness"], schema["comment"]) == ("2 d", "of sums")
    done = terminal.run(
        *("table", "alter", table, "--type", "note.a BIGINT", "--drop", "note.b", "--unset", "merge.max-staleness")
    )
    assert done.returncode == 0, done.stderr
    schema = terminal.result("table", "show", table)["schema"]
    [note] = [field["type"] for field in schema["fields"] if field["name"] == "note"]
    assert [(field["name"], field["type"]) for field in note["fields"]] == [("a", "BIGINT")]
    assert "merge.max-staleness" not in schema["options"]
    refused = terminal.run("table", "alter", table, "--add", "more INT", "--drop", "id")
    assert refused.returncode == Exit.REFUSED
    assert "more" not in terminal.run("table", "show", table).stdout
    checked = terminal.run("table", "alter", table, "--check", "--add", "more INT")
    assert (checked.returncode, checked.stderr) == (0, "the changes can be made\n")
    assert "more" not in terminal.run("table", "show", table).stdout


@pytest.mark.parametrize("words", [(), ("--add", "note"), ("--rename", "a"), ("--rename", "a=b=c"), ("--set", "x")])
def test_changes_that_cannot_be_understood_are_not_sent(words: tuple[str, ...]) -> None:
    nowhere = Terminal(Path.cwd(), "http://127.0.0.1:1")
    asked = nowhere.run("table", "alter", "shop.t", *words)
    assert (asked.returncode, "no answer" in asked.stderr) == (Exit.USAGE, False)


def test_a_copy_has_columns_options_and_if_requested_rows(terminal: Terminal) -> None:
    table = filled(terminal, "original")
    assert terminal.run("table", "copy", table, "shop.empty").returncode == 0
    assert (
        terminal.run("table", "copy", table, "shop.`full one`", "--rows").stderr.splitlines()[1] == "20 rows in 1 batch"
    )
    assert terminal.sums("shop.empty") == (0, 0)
    assert terminal.sums("shop.`full one`") == terminal.sums(table) == (20, 20)
    first, second = (terminal.result("table", "show", one)["schema"] for one in (table, "shop.`full one`"))
    assert first == second
    assert terminal.run("table", "copy", table, "shop.empty", "--rows").returncode == Exit.REFUSED
    assert terminal.sums("shop.empty") == (0, 0)


def test_tags_keep_snapshots_and_go(merging: Terminal) -> None:
    table = filled(merging, "tagged")
    assert merging.run("merge", table, "--wait").returncode == 0
    made = merging.run("tag", "create", table, "first one", "--keep", "30 d")
    assert f"snapshot 1 of {table} is kept as first one until " in made.stderr
    assert merging.result("tag", "create", table, "second", "--snapshot", "1")["expiresAt"] is None
    lines = merging.run("tag", "list", table).stdout.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["tag", "first one", "second"]
    assert merging.run("count", table, "--snapshot", "first one").stdout == "20\n"
    assert merging.run("tag", "delete", table, "first one").returncode == 0
    assert [one["tagName"] for one in merging.result("tag", "list", table)] == ["second"]
    assert merging.run("tag", "delete", table, "first one").returncode == Exit.NOT_FOUND


def test_records_are_tried_on_rows_and_on_none(terminal: Terminal, tmp_path: Path) -> None:
    table = filled(terminal, "tried", 3)
    records = '{"id": 1, "word": "new", "n": 5}\n{"id": 12345678901234567, "n": 1}\n'
    shown = terminal.run("simulate", table, "-", stdin=records).stdout
    assert "after   " in shown
    first, second = terminal.result("simulate", table, write(tmp_path / "records.ndjson", records))["rows"]
    assert (first["before"]["n"], first["after"]) == (1, {"id": 1, "word": "new", "n": 6})
    assert (second["before"], second["after"]["id"]) == (None, 12345678901234567)
    statement = SUMS.format("t", "'merge-engine' = 'aggregation', 'fields.n.aggregate-function' = 'max'")
    ddl = write(tmp_path / "ddl.sql", statement)
    listed = json.dumps([{"id": 1, "n": 2}, {"id": 1, "n": 7}, {"id": 1, "n": 3}])
    [row] = json.loads(terminal.run("simulate", "--file", ddl, "--json", "-", stdin=listed).stdout)["rows"]
    assert row["after"]["n"] == 7
    assert terminal.sums(table) == (3, 3)
    assert terminal.run("simulate", "--file", ddl, table, "-", stdin=listed).returncode == Exit.USAGE
    assert terminal.run("simulate", table, "-", stdin='[{"id": 1, "no": 2}]').returncode == Exit.REFUSED


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def begun(table: str, into: Path, url: str) -> exports.Pages:
    media_types = {".csv": "text/csv", ".ndjson": "application/x-ndjson"}
    media_type = media_types.get(into.suffix, "application/vnd.apache.arrow.stream")
    return exports.Pages(into, exports.Export(url, table, media_type, []))


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "PAGE_ROWS", 7)


def test_rows_are_exported_in_each_format(terminal: Terminal) -> None:
    table = filled(terminal, "exported")
    for name in ("rows.csv", "rows.ndjson", "rows.parquet"):
        done = terminal.run("export", table, name)
        assert done.returncode == 0, done.stderr
    with (terminal.folder / "rows.csv").open(newline="") as file:
        assert sorted(int(row["id"]) for row in csv.DictReader(file)) == [*range(20)]
    lines = (terminal.folder / "rows.ndjson").read_text().splitlines()
    assert sorted((json.loads(line) for line in lines), key=lambda row: row["id"]) == [
        {"id": number, "word": f"w{number}", "n": 1} for number in range(20)
    ]
    assert sorted(pq.read_table(terminal.folder / "rows.parquet").to_pylist(), key=lambda row: row["id"])[3] == {
        "id": 3,
        "word": "w3",
        "n": 1,
    }
    refused = terminal.run("export", table, "rows.csv")
    assert (refused.returncode, "--force" in refused.stderr) == (Exit.USAGE, True)
    part = terminal.run("export", table, "rows.csv", "--force", "--columns", "id", "--filter", "id.lt.2")
    assert part.returncode == 0
    assert sorted((terminal.folder / "rows.csv").read_text().split()) == ["0", "1", "id"]
    assert terminal.run("export", table, "rows.txt").returncode == Exit.USAGE
    assert not [*terminal.folder.glob("*.part")]


@pytest.mark.parametrize("name", ["rows.csv", "rows.ndjson", "rows.parquet"])
@pytest.mark.usefixtures("small_pages")
def test_an_export_that_breaks_goes_on_where_it_was(terminal: Terminal, tmp_path: Path, name: str) -> None:
    table = filled(terminal, f"broken_{name.partition('.')[2]}")
    url, into = terminal.environment["KEYFOLD_URL"], tmp_path / name
    with Service.at(url, None) as service:
        assert list(islice(begun(table, into, url).read(service), 2)) == [1, 2]
    put = json.dumps({"id": 100, "word": "late", "n": 1})
    assert terminal.run("put", table, put).returncode == 0  # behind the moment of the first page
    exports.export(table, into, url=url)
    if name.endswith(".parquet"):
        ids = pq.read_table(into).column("id").to_pylist()
    elif name.endswith(".csv"):
        ids = [int(row["id"]) for row in csv.DictReader(io.StringIO(into.read_text()))]
    else:
        ids = [json.loads(line)["id"] for line in into.read_text().splitlines()]
    assert sorted(ids) == [*range(20)]
    assert not into.with_name(f"{name}.part").exists()


@pytest.mark.usefixtures("small_pages")
def test_another_export_to_the_same_file_is_refused(terminal: Terminal, tmp_path: Path) -> None:
    table, into = filled(terminal, "other"), tmp_path / "rows.csv"
    url = terminal.environment["KEYFOLD_URL"]
    with Service.at(url, None) as service:
        next(begun(table, into, url).read(service))
    with pytest.raises(Failure, match="another export"):
        exports.export(table, into, columns="id", url=url)
    assert not into.exists()


def test_tables_are_queried_by_name_and_read_once(terminal: Terminal) -> None:
    table = filled(terminal, "queried")
    joined = f"FROM {table} a JOIN {table} b USING (id) SELECT count(*) AS n, sum(a.n) AS s; "
    assert terminal.run("sql", joined).stdout == '{"n":20,"s":20}\n'
    text = "WITH few AS (SELECT id, word FROM queried WHERE id < 2) SELECT * FROM few ORDER BY id -- all"
    assert terminal.run("sql", "-d", "shop", text, "--format", "csv").stdout == "id,word\n0,w0\n1,w1\n"
    shown = terminal.run("sql", f"FROM {table} SELECT id ORDER BY id", "--format", "table", "--limit", "2")
    assert (shown.stdout.split(), shown.stderr) == (["id", "0", "1"], "2 rows; there are more: --limit\n")
    exact = f"FROM {table} SELECT 12345678901234567890.12::DECIMAL(30, 2) AS d WHERE id = 1"
    for form, lines in (("ndjson", 2), ("csv", 3)):  # with the names of the columns
        done = terminal.run("sql", f"FROM {table}", "--format", form, "--limit", "2")
        assert len(done.stdout.splitlines()) == lines
    assert terminal.run("sql", exact).stdout == '{"d":"12345678901234567890.12"}\n'


@pytest.mark.parametrize(
    ("text", "said", "end"),
    [
        ("selec", "syntax error", Exit.USAGE),
        ("DROP TABLE shop.t", "one SELECT is expected", Exit.USAGE),
        ("SELECT 1; SELECT 2", "one SELECT is expected", Exit.USAGE),
        ("FROM orders", "--database", Exit.USAGE),
        ("FROM a.b.c", "DATABASE.TABLE", Exit.USAGE),
        ("FROM shop.nothing", "does not exist", Exit.NOT_FOUND),
        ("SELECT nothing FROM (SELECT 1)", "nothing", Exit.USAGE),
    ],
)
def test_a_query_that_cannot_be_carried_out_says_why(terminal: Terminal, text: str, said: str, end: Exit) -> None:
    done = terminal.run("sql", text)
    assert (done.returncode, said in done.stderr, done.stdout) == (end, True, "")


def test_the_page_of_a_table_and_of_a_row(terminal: Terminal) -> None:
    url = terminal.environment["KEYFOLD_URL"]
    assert terminal.run("open", "--print").stdout == f"{url}/\n"
    assert terminal.run("open", "--print", "shop.`a b`", "1", "x/y").stdout == (
        f"{url}/console/tables/shop/a%20b/row?key=1&key=x%2Fy\n"
    )


def test_status_says_in_a_line_what_a_table_holds(merging: Terminal) -> None:
    table = filled(merging, "told_of")
    assert merging.run("status", table).stdout.startswith(
        f"{table}: 0 rows in 0 runs, 0 B, 20 records in 1 batch staged, the oldest "
    )
    assert merging.run("merge", table, "--wait").returncode == 0
    line, disk, *odd = merging.run("status", table).stdout.splitlines()
    assert line.startswith(f"{table}: 20 rows in 1 run, ")
    assert ", nothing staged, merged " in line
    assert re.fullmatch(r"on disk +[0-9.]+ KiB live, [0-9.]+ KiB history", disk)
    assert odd == []
    assert merging.result("status", table)["rows"] == 20


def test_a_filter_with_a_sign_says_how_it_is_written(terminal: Terminal) -> None:
    table = filled(terminal, "signed", 1)
    assert "write n.gte.5" in terminal.run("scan", table, "--filter", "n >= 5").stderr


def test_tokens_of_a_service_elsewhere_come_by_the_environment_or_a_file_and_are_never_shown(tmp_path: Path) -> None:
    with serving(tmp_path / "service", workers="0") as (service, _):
        terminal = Terminal(tmp_path, service.url)
        there = ("--url", service.url)
        made = terminal.run("token", "create", "ada", *there, "--role", "admin", "--expires", "1d").stdout.strip()
        assert made.startswith("kf_")
        assert terminal.run("token", "list", *there).returncode == Exit.NOT_PERMITTED
        shown = terminal.run("token", "list", *there, KEYFOLD_TOKEN=made)
        assert shown.stdout.splitlines()[1].split()[:3] == ["ada", "admin", "*"]
        here, as_json = ("--data", str(tmp_path / "service")), ("--json", *there)
        local = terminal.run("token", "list", *here).stdout
        assert [line.split()[:5] for line in local.splitlines()] == [
            line.split()[:5] for line in shown.stdout.splitlines()
        ]
        reported = json.loads(terminal.run("token", "list", *as_json, KEYFOLD_TOKEN=made).stdout)
        unused = [{**one, "lastUsedAt": None} for one in reported]  # a use is noted some seconds later
        assert [{**one, "lastUsedAt": None} for one in terminal.result("token", "list", *here)] == unused
        assert [(one["name"], one["expiresAt"] - one["createdAt"]) for one in reported] == [("ada", 86_400_000)]
        assert terminal.run("token", "revoke", "bob", *there, KEYFOLD_TOKEN=made).returncode == Exit.NOT_FOUND
        assert terminal.run("token", "revoke", "ada", *there, KEYFOLD_TOKEN=made).stderr == "token ada is revoked\n"
        secret = terminal.run("token", "create", "till", "--role", "read", *here).stdout.strip()
        (tmp_path / "token").write_text(f"{secret}\n")
        assert terminal.run("database", "list").returncode == Exit.NOT_PERMITTED
        assert terminal.run("database", "list", KEYFOLD_TOKEN=secret).returncode == 0
        assert terminal.run("database", "list", "--token-file", "token").returncode == 0
        assert terminal.run("database", "list", KEYFOLD_TOKEN_FILE="token").returncode == 0  # noqa: S106  # its name
        assert terminal.run("database", "list", "--token-file", "none").returncode == Exit.USAGE
        refused = terminal.run("database", "create", "x", KEYFOLD_TOKEN=secret)
        assert refused.returncode == Exit.NOT_PERMITTED
        assert "this needs the role admin" in refused.stderr
        assert secret not in refused.stdout + refused.stderr + "".join(service.lines)
        assert terminal.run("database", "list", KEYFOLD_TOKEN="kf_é").returncode == Exit.USAGE  # noqa: S106  # it is none
