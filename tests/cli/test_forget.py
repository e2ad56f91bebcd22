"""``keyfold forget`` beside a service that forgets nothing yet: what is asked, and how it ends."""

from __future__ import annotations

import json

import pytest

from app.cli.client.endings import Exit
from tests.cli.terminal import DATABASE, Terminal

pytestmark = pytest.mark.slow(reason="each command is a process")

STATEMENT = (
    "CREATE TABLE people (mail STRING, nr INT, flag BOOLEAN, street STRING, PRIMARY KEY (mail, nr, flag) NOT ENFORCED)"
)


def test_keys_are_given_by_words_or_in_a_file_and_only_if_it_is_meant(terminal: Terminal) -> None:
    assert terminal.run("table", "create", "-d", DATABASE, "-f", "-", stdin=STATEMENT).returncode == 0
    asked = terminal.run("forget", "shop.people", "7", "8", "true", "--yes", "--reference", "ticket 7")
    assert asked.returncode == Exit.OK, asked.stderr
    assert "(ticket 7): 1 keys pending" in asked.stderr
    lines = "".join(json.dumps({"mail": f"m{nr}", "nr": nr, "flag": False}) + "\n" for nr in range(3))
    told = terminal.run("forget", "shop.people", "--keys", "-", "--yes", "--json", stdin=lines)
    assert (json.loads(told.stdout)["keys"], json.loads(told.stdout)["state"]) == (3, "pending")
    listed = terminal.run("forgettings", "shop.people").stdout.splitlines()
    assert [line.split(": ")[1] for line in listed] == ["3 keys pending", "1 keys pending"]
    refused = terminal.run("forget", "shop.people", "a", "1", "true", stdin="n\n")
    assert (refused.returncode, "nothing is forgotten" in refused.stderr) == (Exit.REFUSED, True)
    assert len(terminal.run("forgettings", "shop.people", "--json").stdout.splitlines()) == 2


def test_what_is_no_key_is_told_with_what_to_do(terminal: Terminal) -> None:
    terminal.run("table", "create", "-d", DATABASE, "-f", "-", stdin=STATEMENT)
    for words, text, end in (
        (("a",), "the primary key has 3 columns (mail, nr, flag), and here are 1 values", Exit.USAGE),
        ((), "give a key, or --keys FILE", Exit.USAGE),
        (("a", "b", "true"), "key column 'nr'", Exit.REFUSED),
        (("--keys", "nowhere.ndjson"), "nowhere.ndjson cannot be read", Exit.USAGE),
    ):
        told = terminal.run("forget", "shop.people", *words, "--yes")
        assert (told.returncode, text in told.stderr) == (end, True), told.stderr
    told = terminal.run("forget", "shop.people", "--keys", "-", "--yes", stdin='{"mail"')
    assert (told.returncode, "line 1 is no JSON" in told.stderr) == (Exit.USAGE, True)
    assert terminal.run("forget", "shop.none", "a", "--yes").returncode == Exit.NOT_FOUND
