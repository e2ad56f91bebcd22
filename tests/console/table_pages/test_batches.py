"""The pages of batches and merges: who sent what, withdrawn, tried again; merges started, watched and cancelled."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fastapi import FastAPI

from app.console.table_pages.batches import STATES
from app.console.table_pages.merges import TONES
from app.core.access import Role
from app.core.table.history import BatchState, TaskState, TaskTrigger
from app.http.parts import Parts
from tests.api.conftest import TABLES, Create, fields_of
from tests.catalog.builders import claim_next
from tests.console.conftest import Browser, SignedIn, live_part, words
from tests.services.builders import QUIET, SUM, merge_staged

BATCHES = "/console/tables/shop/wide/batches"
MERGES = "/console/tables/shop/wide/merges"
FIELDS = fields_of(id="BIGINT NOT NULL", n="BIGINT")
LARGEST = 2**63 - 1


@pytest.fixture
def table(create: Create) -> str:
    """The id of a table that adds up, and merges nothing by itself."""
    return str(create("wide", fields=FIELDS, options={**SUM, **QUIET})["id"])


def post(browser: Browser, amount: int = 1) -> str:
    """A batch of one record; its id."""
    answer = browser.client.post(f"{TABLES}/wide/batches", json={"records": [{"id": 1, "n": amount}]})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def merge(app: FastAPI, table: str) -> None:
    parts: Parts = app.state.parts
    merge_staged(parts.database, parts.warehouse, table)


def poison(app: FastAPI, browser: Browser, table: str) -> str:
    """A batch that was set aside: the total would leave its type."""
    post(browser)
    merge(app, table)
    bad = post(browser, LARGEST)
    merge(app, table)
    merge(app, table)
    return bad


def reported(browser: Browser, batch: str) -> dict[str, Any]:
    """What the API tells of it."""
    answer: dict[str, Any] = browser.client.get(f"{TABLES}/wide/batches/{batch}").json()
    return answer


def test_every_state_has_a_word_and_a_look() -> None:
    assert {*STATES} == {*BatchState}
    assert {*TONES} == {*TaskState}


@pytest.mark.usefixtures("table")
def test_a_staged_batch_is_withdrawn(browser: Browser) -> None:
    first, second = post(browser), post(browser)
    page = browser.get(f"{BATCHES}?state=staged")
    assert page.text.count(">Withdraw batch<") == 2
    answer = browser.send(f"{BATCHES}/withdraw", batch=first, state="staged")
    assert (answer.status_code, answer.headers["location"]) == (303, f"{BATCHES}?state=staged")
    assert [reported(browser, one)["state"] for one in (first, second)] == ["deleted", "staged"]
    assert re.findall(r'<th scope="row">(\d+)<', browser.get(f"{BATCHES}?state=staged").text) == ["2"]
    assert "withdrawn" in words(browser.get(f"{BATCHES}?state=deleted").text)


def test_a_batch_that_is_merged_meanwhile_is_reported_and_stays(app: FastAPI, browser: Browser, table: str) -> None:
    batch = post(browser)
    browser.get(BATCHES)
    merge(app, table)
    refused = browser.send(f"{BATCHES}/withdraw", batch=batch)
    assert (refused.status_code, "it is merged into snapshot 1" in refused.text) == (409, True)
    assert reported(browser, batch)["state"] == "merged"
    browser.get(MERGES)
    assert browser.send(f"{BATCHES}/withdraw", batch="<b>").status_code == 404
    assert "<b>" not in browser.shown


def test_what_was_set_aside_is_reported_with_its_reason_and_tried_again(
    app: FastAPI, browser: Browser, table: str
) -> None:
    bad = poison(app, browser, table)
    page = words(browser.get(f"{BATCHES}?state=poisoned").text)
    assert "Retry" in page
    assert "leaves" in page or "total" in page
    post(browser, -10)
    merge(app, table)
    browser.get(BATCHES)
    assert browser.send(f"{BATCHES}/retry", batch=bad).status_code == 303
    assert (reported(browser, bad)["state"], reported(browser, bad)["number"]) == ("staged", 4)
    assert browser.send(f"{BATCHES}/retry", batch=bad).status_code == 409


def test_a_reader_has_and_presses_no_button(app: FastAPI, browser: Browser, table: str, signed_in: SignedIn) -> None:
    bad = poison(app, browser, table)
    post(browser)
    reader = signed_in(Role.READ)
    for path in (BATCHES, MERGES):
        page = reader.get(path).text
        assert page.count('method="post"') == page.count('<form class="who"') == 1, "that to sign out"
        assert "by a command" not in page
    for path in (f"{BATCHES}/withdraw", f"{BATCHES}/retry", MERGES, f"{MERGES}/cancel"):
        assert reader.send(path, batch=bad, job="merge").status_code == 403


@pytest.mark.usefixtures("table")
def test_a_batch_names_its_sender_and_leads_admins_to_the_tokens(signed_in: SignedIn) -> None:
    writer = signed_in(Role.ADMIN, name="till")
    writer.get("/")
    assert 'href="/console/operations/tokens">' not in writer.get(BATCHES).text
    table = "/console/tables/shop/wide"
    writer.get(f"{table}/row/new")
    assert writer.send(f"{table}/row/new", **{"value.id": "1", "value.n": "2"}).status_code == 303
    page = writer.get(BATCHES).text
    assert 'href="/console/operations/tokens">till</a>' in page


def test_the_lists_are_fragments_that_are_sent_once(app: FastAPI, browser: Browser, table: str) -> None:
    post(browser)
    for path in (BATCHES, MERGES):
        live = live_part(browser.get(path).text)
        assert live.startswith(f"{path}/list?")
        assert browser.get(live).status_code == 204
        merge(app, table)
        assert browser.get(live).status_code == 200


@pytest.mark.parametrize(("job", "kind", "full"), [("merge", "merge", False), ("full", "compaction", True)])
@pytest.mark.usefixtures("table")
def test_a_merge_is_started_and_cancelled(browser: Browser, job: str, kind: str, full: bool) -> None:
    post(browser)
    browser.get(MERGES)
    assert browser.send(MERGES, job=job).headers["location"] == MERGES
    [asked] = browser.client.get(f"{TABLES}/wide/merges").json()["merges"]
    assert (asked["job"], asked["full"], asked["state"]) == (kind, full, "pending")
    assert "Cancel" in words(browser.get(MERGES).text)
    assert browser.send(f"{MERGES}/cancel", merge=asked["id"]).status_code == 303
    [asked] = browser.client.get(f"{TABLES}/wide/merges").json()["merges"]
    assert asked["state"] == "cancelled"
    assert "Cancel the" not in browser.get(MERGES).text
    assert browser.send(MERGES, job="all").status_code == 400
    browser.get(MERGES)
    assert browser.send(f"{MERGES}/cancel", merge="none").status_code == 404


def test_a_merge_and_its_batches_lead_to_what_they_changed(app: FastAPI, browser: Browser, table: str) -> None:
    post(browser)
    merge(app, table)
    for path in (BATCHES, MERGES):
        [changes] = {*re.findall(r'href="([^"]*/snapshots/changes\?version=1)"', browser.get(path).text)}
        assert browser.get(changes).status_code == 200


def test_a_merge_that_runs_has_a_bar_and_says_that_it_stops(app: FastAPI, browser: Browser, table: str) -> None:
    post(browser)
    parts: Parts = app.state.parts
    with parts.database.transaction() as repository:
        repository.tasks.request(table, TaskTrigger.REQUEST)
        claimed = claim_next(repository, "worker", 600)
        assert claimed
        repository.claimed_tasks.renew(claimed.task.id, "worker", 600, 0.5, {"tasks": 8, "tasksDone": 4})
    page = browser.get(MERGES).text
    assert '<progress max="100" value="50"' in page
    assert "4 of 8 tasks" in page
    assert "a merge now" in browser.get(BATCHES).text
    browser.get(MERGES)
    assert browser.send(f"{MERGES}/cancel", merge=claimed.task.id).status_code == 303
    assert "stops" in words(browser.get(MERGES).text)
