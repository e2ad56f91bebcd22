"""Commands that wait for Spark: merges, compactions, and the changelog as it grows."""

from __future__ import annotations

import json

from app.cli.client.endings import Exit
from tests.cli.terminal import Terminal


def merged(terminal: Terminal, table: str, **record: object) -> None:
    assert terminal.run("put", table, json.dumps(record)).returncode == 0
    done = terminal.run("merge", table, "--wait")
    assert done.returncode == 0, done.stderr


def test_a_merge_and_a_compaction_are_waited_for(merging: Terminal) -> None:
    table = merging.table("waited")
    merged(merging, table, id=1, n=1)
    merged(merging, table, id=1, n=2)
    assert merging.result("status", table)["runs"] == 2
    done = merging.result("compact", table, "--wait")
    assert (done["job"], done["state"], done["rows"]) == ("compaction", "succeeded", 1)
    assert merging.result("status", table)["runs"] == 1
    assert merging.result("get", table, "1", "--merged")["n"] == 3
    assert merging.result("get", table, "1", "--snapshot", "1")["n"] == 1
    asked = merging.result("merge", table)
    assert asked["state"] in ("pending", "running", "succeeded")


def test_the_changelog_is_followed_while_it_grows(merging: Terminal) -> None:
    table = merging.table("followed", **{"changelog-producer": "lookup"})
    merged(merging, table, id=1, n=1)
    going = merging.begin("tail", table, "--from", "1", "--to", "2")
    assert going.stdout is not None
    assert json.loads(going.stdout.readline()) == {"_kind": "+I", "_snapshot": 1, "id": 1, "word": None, "n": 1}
    merged(merging, table, id=1, n=4)
    out, err = going.communicate(timeout=120)
    assert going.returncode == 0, err
    assert [(one["_kind"], one["n"]) for one in map(json.loads, out.splitlines())] == [("-U", 1), ("+U", 5)]


def test_a_table_that_keeps_no_changelog_says_so(merging: Terminal) -> None:
    done = merging.run("tail", merging.table("unfollowed"))
    assert done.returncode == Exit.REFUSED
    assert "set changelog-producer" in done.stderr


def test_a_table_that_is_dropped_ends_its_reader(merging: Terminal) -> None:
    table = merging.table("dropped", **{"changelog-producer": "lookup"})
    merged(merging, table, id=1, n=1)
    going = merging.begin("tail", table, "--from", "1")
    assert going.stdout is not None
    going.stdout.readline()
    path = f"/v1/catalog/databases/shop/tables/{table.partition('.')[2]}"
    merging.http("DELETE", path)
    _, err = going.communicate(timeout=120)
    assert going.returncode == Exit.NOT_FOUND, err
