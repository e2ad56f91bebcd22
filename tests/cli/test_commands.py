"""Each command against a real service: what it prints, and how it ends."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from app.cli.client.endings import Exit
from app.cli.program import program_for
from tests.answering import answering, reported
from tests.cli.terminal import COMMAND, DATABASE, SUMS, Terminal

pytestmark = pytest.mark.slow(reason="each command is a process")

DOCUMENT = (Path(__file__).parent.parent.parent / "docs" / "cli.md").read_text()
SCRIPT = Path(sys.executable).parent / "keyfold"


def put(terminal: Terminal, table: str, **record: object) -> None:
    assert terminal.run("put", table, json.dumps(record)).returncode == 0


def test_a_row_is_put_shown_and_deleted(terminal: Terminal) -> None:
    statement = SUMS.format("one_row", "'merge.max-staleness' = '1 d'")
    assert terminal.run("table", "create", "-d", DATABASE, "-f", "-", stdin=statement).returncode == 0
    table = "shop.one_row"
    put(terminal, table, id=7, word="new", n=9007199254740993)
    shown = terminal.run("get", table, "7")
    assert shown.stdout.split() == ["id", "7", "word", "new", "n", "9007199254740993"]
    assert terminal.run("get", table, "7", "--columns", "n", "--json").stdout == '{"n":9007199254740993}\n'
    assert terminal.run("delete", table, "7").stderr == "batch 2 is staged\n"
    gone = terminal.begin("get", table, "7")
    out, err = gone.communicate()
    assert (gone.returncode, out) == (Exit.NOT_FOUND, b"")
    assert b"it was deleted" in err


def test_a_value_is_explained(terminal: Terminal) -> None:
    table = terminal.table("explained")
    for n in (2, 3):
        put(terminal, table, id=7, n=n)
    reported = terminal.run("explain", table, "7", "--column", "n")
    assert reported.stdout.startswith("from nothing before the first batch\nrecord ")
    lines = [line.split() for line in reported.stdout.splitlines()]
    assert [line[-2:] for line in lines if line[:2] in (["1.0", "+I"], ["2.0", "+I"])] == [
        ["2", "summed"],
        ["5", "summed"],
    ]
    assert lines[-1] == ["n", "5", "1.0,", "2.0"]
    older = terminal.run("explain", table, "7", "--steps", "1").stdout
    assert "records before the first one here: 1 (--before 2.0)" in older
    assert json.loads(terminal.run("explain", table, "7", "--json").stdout)["exact"] is True
    assert terminal.run("explain", table, "8").returncode == Exit.NOT_FOUND


def test_a_delete_takes_what_its_record_needs(terminal: Terminal) -> None:
    table = terminal.table("needs_more")
    done = terminal.run("delete", table, "7", "--with", '{"n": 1}', "--json")
    assert json.loads(done.stdout)["records"] == 1


def test_a_record_comes_by_standard_input(terminal: Terminal) -> None:
    table = terminal.table("typed")
    assert terminal.run("put", table, "-", stdin='{"id": 1, "n": 2}').returncode == 0
    assert terminal.sums(table) == (1, 2)


@pytest.mark.parametrize("record", ["{", "[]", "7", '{"id": 1}, {"id": 2'])
def test_a_record_that_is_no_object_is_not_sent(terminal: Terminal, record: str) -> None:
    assert terminal.run("put", "shop.nothing", record).returncode == Exit.USAGE


def test_faults_are_reported_with_their_place_and_fix(terminal: Terminal) -> None:
    table = terminal.table("faulty")
    done = terminal.run("put", table, '{"id": "x", "what": 1}')
    assert done.returncode == Exit.REFUSED
    assert "/records/0/id: column 'id': 'x' is not a whole number" in done.stderr
    assert "  → columns: id, word, n" in done.stderr
    reported = json.loads(terminal.run("put", table, '{"id": "x"}', "--json").stderr)
    assert [fault["column"] for fault in reported["errors"]] == ["id"]


def test_tables_are_made_of_sql_listed_shown_explained_and_written(terminal: Terminal) -> None:
    statements = [SUMS.format(name, "'bucket' = '1'") for name in ("ddl_a", "ddl_b")]
    (terminal.folder / "two.sql").write_text(";\n".join(statements))
    made = terminal.run("table", "create", "-d", DATABASE, "-f", "two.sql")
    assert made.returncode == 0, made.stderr
    assert "table shop.ddl_a is made\n" in made.stderr
    listed = terminal.run("table", "list", DATABASE).stdout.split()
    assert {"shop.ddl_a", "shop.ddl_b"} <= {*listed}
    assert {"database": DATABASE, "name": "ddl_a"} in terminal.result("table", "list")
    shown = terminal.run("table", "show", "shop.ddl_a").stdout
    assert re.search(r"^id +BIGINT NOT NULL +primary", shown, re.MULTILINE)
    assert "primary key" in terminal.run("table", "rules", "shop.ddl_a").stdout
    statement = terminal.run("table", "ddl", "shop.ddl_a", "--dialect", "spark").stdout
    again = terminal.run("table", "create", "-d", DATABASE, "-f", "-", stdin=statement.replace("ddl_a", "ddl_c"))
    assert again.returncode == 0, again.stderr


def test_sql_with_faults_shows_them_and_makes_nothing(terminal: Terminal) -> None:
    wrong = terminal.run("table", "create", "-d", DATABASE, "-f", "-", stdin="CREATE TABLE t_no (a STRNG)")
    assert wrong.returncode == Exit.REFUSED
    assert "unknown type 'STRNG'" in wrong.stderr
    assert "^" in wrong.stderr
    checked = terminal.run(
        "table", "create", "--check", "-d", DATABASE, "-f", "-", stdin=SUMS.format("t_no", "'bucket'='1'")
    )
    assert checked.returncode == 0, checked.stderr
    assert "shop.t_no" not in terminal.run("table", "list").stdout


def test_rows_are_written_as_table_csv_and_ndjson(terminal: Terminal) -> None:
    table = terminal.table("scanned")
    for number in range(3):
        put(terminal, table, id=number, word=f"w,{number}", n=number)
    shown = terminal.run("scan", table, "--format", "table", "--limit", "2")
    assert shown.stdout.split("\n")[0].split() == ["id", "word", "n"]
    assert shown.stderr == "2 rows; there are more: --limit\n"
    rows = list(csv.DictReader(io.StringIO(terminal.run("scan", table, "--format", "csv").stdout)))
    assert {row["word"] for row in rows} == {"w,0", "w,1", "w,2"}
    some = terminal.run("scan", table, "--filter", "n.gte.1", "--columns", "n", "--limit", "1").stdout
    assert json.loads(some)["n"] in (1, 2)


def test_what_a_row_holds_gives_the_terminal_no_orders(terminal: Terminal) -> None:
    table = terminal.table("hostile")
    put(terminal, table, id=1, word="\x1b]0;title\x07\x9b31m", n=1)
    for command in (("get", table, "1"), ("scan", table, "--format", "table")):
        shown = terminal.run(*command).stdout
        assert "title" in shown
        assert not {"\x1b", "\x07", "\x9b"} & {*shown}


def test_a_service_without_spark_workers_is_ready_and_a_table_is_counted(terminal: Terminal) -> None:
    assert terminal.run("status").returncode == 0
    assert terminal.result("status")["status"] == "ok"
    assert terminal.result("status", terminal.table("counted"))["staged"]["batches"] == 0


@pytest.mark.parametrize("name", ["orders", "a.b.c", "shop.*", "*", "", ".orders", "shop.or ders"])
def test_a_name_that_is_none_is_a_fault_of_the_command(terminal: Terminal, name: str) -> None:
    done = terminal.run("get", name, "1")
    assert done.returncode == Exit.USAGE
    assert "DATABASE.TABLE" in done.stderr


def test_names_that_are_not_plain_stand_in_backticks(terminal: Terminal) -> None:
    assert terminal.run("database", "create", "a.b cé").returncode == 0
    assert "a.b cé" in terminal.result("database", "list")
    assert terminal.run("get", "`a.b cé`.`x``y`", "1").stderr == "keyfold: table 'x`y' does not exist\n"


def test_nobody_at_the_url_is_reported_at_once(terminal: Terminal) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    done = terminal.run("table", "list", "--url", url)
    assert done.returncode == Exit.UNREACHABLE
    assert f"{url}: no answer" in done.stderr


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8080", "http://a:b@c", "ftp://x", "http://", "http://[::1", "http://a:99999"]
)
def test_a_url_that_is_none_is_a_fault_of_the_command(terminal: Terminal, url: str) -> None:
    done = terminal.run("status", KEYFOLD_URL=url)
    assert done.returncode == Exit.USAGE
    assert "KEYFOLD_URL" in done.stderr


def commands_of(group: Any) -> Iterator[Any]:
    for command in group.commands.values():
        yield from commands_of(command) if hasattr(command, "commands") else [command]


def test_no_option_takes_a_token_for_every_user_sees_the_arguments_of_a_process() -> None:
    whole = typer.main.get_command(program_for([]))
    options = {name for command in commands_of(whole) for param in command.params for name in param.opts}
    assert "--token-file" in options
    assert "--token" not in options


def test_who_is_busy_is_asked_again_when_it_said(terminal: Terminal) -> None:
    busy = reported("503 Service Unavailable", '{"detail": "the catalog does not answer"}', "Retry-After: 0")
    full = reported("429 Too Many Requests", '{"detail": "too much is staged"}', "Retry-After: 0")
    with answering([busy, busy, full, full, reported("200 OK", '{"databases": ["a"], "nextPageToken": null}')]) as url:
        done = terminal.run("database", "list", "--url", url)
    assert (done.returncode, done.stdout) == (0, "a\n")
    assert done.stderr == (
        "the catalog does not answer; asking again in 0 s\ntoo much is staged; asking again in 0 s\n"
    )


def test_who_wants_more_patience_than_there_is_is_not_waited_for(terminal: Terminal) -> None:
    with answering([reported("503 Service Unavailable", '{"detail": "a file is damaged"}', "Retry-After: 60")]) as url:
        done = terminal.run("get", "shop.t", "1", "--url", url)
    assert (done.returncode, done.stderr) == (Exit.BUSY, "keyfold: a file is damaged\n")


@pytest.mark.parametrize(
    ("answer", "end", "said"),
    [
        (reported("200 OK", "<html>"), Exit.UNREACHABLE, "answers, but not as Keyfold does"),
        (reported("502 Bad Gateway", "<html>"), Exit.UNREACHABLE, "no answer (a proxy answers 502 Bad Gateway)"),
        (reported("500 Internal Server Error", "<html>"), Exit.FAULT, "the answer is 500 Internal Server Error"),
        (reported("302 Found", "", "Location: /"), Exit.REFUSED, "the answer is 302 Found"),
        (reported("200 OK", "")[:-20], Exit.UNREACHABLE, "the answer broke off"),
    ],
)
def test_what_answers_in_its_place_is_distinguished(terminal: Terminal, answer: bytes, end: Exit, said: str) -> None:
    with answering([answer]) as url:
        done = terminal.run("get", "shop.t", "1", "--url", url)
    assert done.returncode == end
    assert said in done.stderr


def test_a_scan_that_breaks_off_is_no_whole_answer(terminal: Terminal) -> None:
    half = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{"k": 1}\n\r\n'
    with answering([half]) as url:
        done = terminal.run("scan", "shop.t", "--format", "ndjson", "--url", url)
    assert (done.returncode, done.stdout) == (Exit.UNREACHABLE, '{"k": 1}\n')


def test_ctrl_c_ends_a_command_by_its_status() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        going = subprocess.Popen([*COMMAND, "get", "shop.t", "1", "--url", url], stderr=subprocess.PIPE, text=True)
        with listener.accept()[0]:
            going.send_signal(signal.SIGINT)
            _, err = going.communicate(timeout=60)
    assert going.returncode == Exit.INTERRUPTED
    assert "Traceback" not in err


def test_the_document_lists_every_exit_status() -> None:
    listed = re.findall(r"^\| (\d+) \| `(\w+)` \|", DOCUMENT, re.MULTILINE)
    assert listed == [(str(end.value), end.name.lower()) for end in Exit]


def test_a_shell_is_told_how_to_complete_and_completes() -> None:
    own = {**os.environ, "_KEYFOLD_COMPLETE": "source_bash"}
    script = subprocess.run([SCRIPT], env=own, capture_output=True, text=True, check=True).stdout
    assert "complete -o default -F" in script
    own |= {"_KEYFOLD_COMPLETE": "complete_bash", "COMP_WORDS": "keyfold ta", "COMP_CWORD": "1"}
    found = subprocess.run([SCRIPT], env=own, capture_output=True, text=True, check=True).stdout.split()
    assert {*found} == {"table", "tag", "tail"}


def test_garbage_is_looked_for_once_a_program_is_loaded_and_not_in_what_was_loaded() -> None:
    begun = "import gc, sys; sys.argv[1:] = ['verify', '--help']; from app.cli import main"
    code = f"{begun}\ntry: main()\nfinally: print(gc.isenabled(), gc.get_freeze_count())"
    reported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert reported[-2] == "True"
    assert int(reported[-1]) > 100_000
