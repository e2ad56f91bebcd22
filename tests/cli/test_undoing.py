"""Commands that take back or away: rollback, drop, forget; each shows or asks before it does so."""

from __future__ import annotations

import json

import pytest

from app.cli.client.endings import Exit
from tests.cli.terminal import DATABASE, SUMS, Terminal

pytestmark = pytest.mark.slow(reason="each command is a process")


def merged(terminal: Terminal, table: str, *records: dict[str, object]) -> None:
    for record in records:
        assert terminal.run("put", table, json.dumps(record)).returncode == 0
    assert terminal.run("merge", table, "--wait").returncode == 0


def test_a_rollback_shows_what_it_changes_asks_and_can_be_undone(merging: Terminal) -> None:
    table = merging.table("rolled")
    merged(merging, table, {"id": 1, "n": 1}, {"id": 2, "n": 2})
    merged(merging, table, {"id": 1, "n": 5}, {"id": 3, "n": 3})
    listed = merging.run("snapshots", table).stdout.splitlines()
    assert listed[0].split() == ["snapshot", "made", "by", "committed", "rows", "bytes", "tags"]
    assert [(line.split()[0], line.split()[1]) for line in listed[1:]] == [("2", "merge"), ("1", "merge")]
    assert [one["id"] for one in merging.result("snapshots", table, "--limit", "1")] == [2]
    assert "there are more: --limit" in merging.run("snapshots", table, "--limit", "1").stderr
    refused = merging.run("rollback", table, "1", stdin="n\n")
    assert refused.returncode == Exit.REFUSED
    assert (
        f"{table} goes from snapshot 2 to what snapshot 1 showed: rows 0 added, 1 changed, 1 removed" in refused.stderr
    )
    assert "nothing is changed" in refused.stderr
    assert merging.run("count", table).stdout == "3\n"
    done = merging.run("rollback", table, "1", stdin="y\n")
    assert (done.returncode, "it is snapshot 3 now" in done.stderr) == (0, True)
    assert merging.run("count", table).stdout == "2\n"
    assert merging.run("count", table, "--snapshot", "2", "--filter", "n.gt.2").stdout == "2\n"
    assert merging.run("rollback", table, "2", "--yes").returncode == 0
    assert merging.result("count", table) == {"count": 3, "exact": True, "snapshotId": 4}
    assert merging.run("rollback", table, "none", "--yes").returncode == Exit.NOT_FOUND


def test_a_drop_asks_first_and_takes_tables_only_where_that_is_said(terminal: Terminal) -> None:
    terminal.run("database", "create", "attic")
    table = terminal.table("gone")
    assert terminal.run("table", "drop", table, stdin="n\n").returncode == Exit.REFUSED
    assert table in terminal.run("table", "list").stdout.split()
    assert terminal.run("table", "drop", table, stdin="y\n").stderr.endswith(f"table {table} is dropped\n")
    assert table not in terminal.run("table", "list").stdout.split()
    assert terminal.run("table", "drop", table, "--yes").returncode == Exit.NOT_FOUND
    statement = SUMS.format("box", "'merge.max-staleness' = '1 d'")
    assert terminal.run("table", "create", "-d", "attic", "-f", "-", stdin=statement).returncode == 0
    kept = terminal.run("database", "drop", "attic", "--yes")
    assert (kept.returncode, "--cascade" in kept.stderr or "cascade" in kept.stderr) == (Exit.REFUSED, True)
    asked = terminal.run("database", "drop", "attic", "--cascade", stdin="n\n")
    assert "Drop database attic with its 1 tables and all of their rows?" in asked.stderr
    assert terminal.run("database", "drop", "attic", "--cascade", "--yes").returncode == 0
    assert "attic" not in terminal.run("database", "list").stdout.split()


def test_a_name_that_a_url_reads_as_a_folder_takes_no_other_thing_away(terminal: Terminal) -> None:
    terminal.run("database", "create", "empty")
    table = terminal.table("stays")
    for words in (("tag", "delete", table, ".."), ("table", "drop", "empty.`..`", "--yes")):
        done = terminal.run(*words)
        assert (done.returncode, "segment of a URL" in done.stderr) == (Exit.USAGE, True), done.stderr
    assert table in terminal.run("table", "list").stdout.split()
    assert "empty" in terminal.run("database", "list").stdout.split()


PEOPLE = (
    "CREATE TABLE people (mail STRING, nr INT, flag BOOLEAN, street STRING, PRIMARY KEY (mail, nr, flag) NOT ENFORCED)"
)


def test_keys_are_given_by_words_or_in_a_file_and_only_if_it_is_meant(terminal: Terminal) -> None:
    assert terminal.run("table", "create", "-d", DATABASE, "-f", "-", stdin=PEOPLE).returncode == 0
    asked = terminal.run("forget", "shop.people", "7", "8", "true", "--yes", "--reference", "ticket 7")
    assert asked.returncode == Exit.OK, asked.stderr
    assert "(ticket 7): 1 keys pending" in asked.stderr
    lines = "".join(json.dumps({"mail": f"m{nr}", "nr": nr, "flag": False}) + "\n" for nr in range(3))
    reported = terminal.run("forget", "shop.people", "--keys", "-", "--yes", "--json", stdin=lines)
    assert (json.loads(reported.stdout)["keys"], json.loads(reported.stdout)["state"]) == (3, "pending")
    listed = terminal.run("forgettings", "shop.people").stdout.splitlines()
    assert [line.split(": ")[1] for line in listed] == ["3 keys pending", "1 keys pending"]
    refused = terminal.run("forget", "shop.people", "a", "1", "true", stdin="n\n")
    assert (refused.returncode, "nothing is forgotten" in refused.stderr) == (Exit.REFUSED, True)
    assert len(terminal.run("forgettings", "shop.people", "--json").stdout.splitlines()) == 2


def test_what_is_no_key_is_reported_with_what_to_do(terminal: Terminal) -> None:
    terminal.run("table", "create", "-d", DATABASE, "-f", "-", stdin=PEOPLE)
    for words, text, end in (
        (("a",), "the primary key has 3 columns (mail, nr, flag), and here are 1 values", Exit.USAGE),
        ((), "give a key, or --keys FILE", Exit.USAGE),
        (("a", "b", "true"), "key column 'nr'", Exit.REFUSED),
        (("--keys", "nowhere.ndjson"), "nowhere.ndjson cannot be read", Exit.USAGE),
    ):
        reported = terminal.run("forget", "shop.people", *words, "--yes")
        assert (reported.returncode, text in reported.stderr) == (end, True), reported.stderr
    reported = terminal.run("forget", "shop.people", "--keys", "-", "--yes", stdin='{"mail"')
    assert (reported.returncode, "line 1 is no JSON" in reported.stderr) == (Exit.USAGE, True)
    assert terminal.run("forget", "shop.none", "a", "--yes").returncode == Exit.NOT_FOUND
