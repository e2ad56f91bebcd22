"""The last hour: plots that can be read as tables, processes, leases; who may see them."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi import FastAPI

from app.console.parts.plots import Line, Plot, by_powers, nice, of_bytes
from app.core.access import Role
from app.core.quantities import briefly, numbered
from app.core.table.history import TaskTrigger
from app.http.parts import Parts
from app.services.shared.polled import Refreshed
from app.telemetry.entries import Counted, Measured, SparkState, TaskOutcome
from app.telemetry.exposition import Reading
from app.telemetry.hour import STEP_SECONDS, Hour
from tests.api.conftest import TABLES, Create
from tests.catalog.builders import claim_next
from tests.console.conftest import Browser, SignedIn, fail_merge, live_part, words

OPERATIONS = "/console/operations"
HOSTILE = "<b onx=1>\"'&{{7*7}}"


def parts_of(app: FastAPI) -> Parts:
    parts: Parts = app.state.parts
    return parts


@pytest.fixture
def app(app: FastAPI) -> FastAPI:
    """With an hour of its own: the application is that of all tests, some of which asked it ten minutes ago."""
    app.state.hour = Hour(app.state.metrics)
    return app


@pytest.fixture
def busy(app: FastAPI, browser: Browser) -> Browser:
    """A browser on a service that was busy ten minutes ago."""
    hour, then = parts_of(app).hour, time.time() - 600
    metrics = hour.metrics
    hour.note(then, ())
    for seconds in (0.002, 0.002, 0.2):
        metrics.answered("getRow", 2, seconds)
    metrics.answered("postBatch", 4, 0.002)
    metrics.count(Counted.ACCEPTED_RECORDS, amount=30_000)
    metrics.observe(Counted.TASK_SECONDS, 3.0, "merge", TaskOutcome.SUCCEEDED)
    metrics.say_spark(SparkState.READY)
    hour.note(then + STEP_SECONDS, ())
    return browser


def test_each_plot_says_what_it_shows_to_who_does_not_see_it(busy: Browser) -> None:
    busy.get(OPERATIONS)
    said = re.findall(r'<svg role="img" aria-label="([^"]+)"', busy.shown)
    assert len(said) == 9
    assert re.match(r"Requests, a second, in the last hour\. answered: now \S+, at most 0\.1;", said[0])
    assert "99 % below (p99): now " in said[1]


def test_the_plots_can_be_read_as_tables(busy: Browser) -> None:
    text = busy.text(f"{OPERATIONS}?as=tables")
    assert "<svg role" not in busy.shown
    assert re.search(r"Accepted records a second Until, UTC records (\d\d:\d\d \S+ )*\d\d:\d\d 1.000 ", text)
    assert re.search(r"Merges .* \d\d:\d\d 3 s –", text)


def test_without_samples_the_page_says_so_by_dashes(browser: Browser) -> None:
    assert browser.get(OPERATIONS).status_code == 200
    assert "service" in browser.text(OPERATIONS)


def test_a_lease_is_reported_with_its_table_and_what_waits(app: FastAPI, create: Create, browser: Browser) -> None:
    for name in (HOSTILE, "waits"):
        create(name)
    for number, name in enumerate((HOSTILE, "waits")):
        with parts_of(app).database.transaction() as repository:
            table = repository.tables.get("shop", name)
            repository.tasks.request_all({table.id: TaskTrigger.REQUEST})
            if not number:
                assert claim_next(repository, "worker-<i>", 60.0)
    text = browser.text(OPERATIONS)
    assert re.search(r"worker-<i> 0 % 0 % 0 \d s for \d+ s more", text)
    assert HOSTILE in text
    assert "<b onx" not in browser.shown
    assert "worker-<i>" not in browser.shown
    assert "Waiting merges 1 0 compactions" in text


def test_a_part_that_is_as_it_was_is_not_sent_again(browser: Browser) -> None:
    answer = browser.get(live_part(browser.get(OPERATIONS).text))
    assert answer.status_code in (200, 204)  # the processes' figures may have moved
    assert "<html" not in answer.text


@pytest.mark.parametrize("on", ["shop.*", "shop.wide"])
def test_who_may_not_see_the_whole_service_is_shown_no_link_and_refused(signed_in: SignedIn, on: str) -> None:
    browser = signed_in(Role.ADMIN, (on,))
    assert OPERATIONS not in browser.get("/").text
    for path in (OPERATIONS, f"{OPERATIONS}/hour"):
        refused = browser.get(path)
        assert (refused.status_code, "this needs a token for *" in words(refused.text)) == (403, True)


def test_who_may_read_sees_the_hour_and_nothing_of_tokens(signed_in: SignedIn) -> None:
    browser = signed_in(Role.READ)
    assert browser.get(OPERATIONS).status_code == 200
    assert f"{OPERATIONS}/tokens" not in browser.shown


def test_scales_end_at_numbers_that_are_easily_read() -> None:
    assert [nice(one) for one in (0, 0.7, 1, 1.1, 4.2, 730)] == [1, 1, 1, 2, 5, 1000]
    assert of_bytes([700_000]).top == 2**20
    powers = by_powers([0.002, 0.8])
    assert (powers.bottom, powers.top, powers.share(1.0)) == (0.001, 1.0, 1.0)
    assert by_powers([]).top > by_powers([]).bottom


def test_a_line_has_gaps_and_points_that_stand_alone() -> None:
    line = Line("a", "blue", [(0, 1.0), (900, 2.0), (1800, None), (2700, 1.0), (3600, None)])
    plot = Plot("T", "m", numbered, [line], now=3600)
    assert plot.path(line) == "M0.0 50.0L150.0 0.0"
    assert plot.dots(line) == "M450.0 50.0h0"
    assert plot.scale == ["2", "1", "0"]
    assert [row.values for row in plot.rows][:4] == [["–"], ["–"], ["–"], ["1"]]


def test_a_young_service_is_drawn_over_less_than_the_hour() -> None:
    young = Plot("T", "m", numbered, [Line("a", "blue", [(3400, 1.0), (3600, 1.0)])], now=3600)
    assert (young.span, young.times) == (240, ["4 min ago", "3 min", "2 min", "1 min", "now"])
    assert Plot("T", "m", numbered, [Line("a", "blue", [(0, 1.0)])], now=3600).times[0] == "60 min ago"


def test_numbers_and_times_are_short() -> None:
    numbers = [numbered(one) for one in (0, 0.0464, 3.14159, 99.96, 12_345.6)]
    assert numbers == ["0", "0.0464", "3.14", "100", "12\u2009346"]
    assert [briefly(one) for one in (0, 0.00123, 0.5, 12.345, 75)] == ["0", "1.23 ms", "500 ms", "12.3 s", "1 min"]


def test_tiles_say_how_many_tables_fail_and_how_many_images_there_are(app: FastAPI, browser: Browser) -> None:
    parts = parts_of(app)
    numbers = {Measured.FAILING_TABLES: 2.0, Measured.IMAGES: 7.0, Measured.IMAGE_BYTES: 3.0 * 2**20}
    readings = [Reading(metric, (), number) for metric, number in numbers.items()]
    app.state.parts = replace(parts, scrapes=Refreshed(lambda: readings, 60, 5))
    page = words(browser.get(OPERATIONS).text)
    assert "Failing tables 2 see why" in page
    assert re.search(r"Images 7 ?3[.\d]* MiB of", page)


def test_restarts_of_the_last_hour_are_counted_and_the_first_start_is_none(app: FastAPI, browser: Browser) -> None:
    hour, then = parts_of(app).hour, time.time() - 600
    life = hour.metrics.lives()[0]  # the application's sampler says of it how often it was started
    assert "in the last hour" not in browser.text(OPERATIONS).partition("Processes")[2]
    for number, before in enumerate((9, 9, 0)):
        hour.note(then + number * STEP_SECONDS, [Reading(Measured.PROCESS_STARTS, (life.name,), life.starts - before)])
    assert f"{life.name} restarted 9 times in the last hour" in browser.text(OPERATIONS)


def test_the_tables_with_most_staged_records_are_named_ten_at_most(create: Create, browser: Browser) -> None:
    assert "Nothing is staged" in browser.text(OPERATIONS)
    for number in range(12):
        create(f"t{number}")
        records = [{"id": one} for one in range(number + 1)]
        browser.client.post(f"{TABLES}/t{number}/batches", json={"records": records}).raise_for_status()
    text = browser.text(OPERATIONS)
    part = text.partition("Failed merges in a row")[2].partition("Workers and their leases")[0]
    assert re.findall(r"shop\. (t\d+) (\d+) 1 ", part) == [
        (f"t{number}", f"{number + 1}") for number in range(11, 1, -1)
    ]
    assert 'href="/console/tables/shop/t11"' in browser.shown


def test_a_table_that_is_behind_says_how_often_its_merges_failed(app: FastAPI, wide: object, browser: Browser) -> None:
    browser.client.post(f"{TABLES}/wide/batches", json={"records": [{"id": 1}]}).raise_for_status()
    fail_merge(app, "wide", "disk full")
    assert re.search(r"shop\. wide 1 1 \S+ \S+ \d+ s 1 ", browser.text(OPERATIONS))


def test_a_plot_says_its_values_where_the_mouse_is() -> None:
    lines = [Line("a", "blue", [(0, 1.0), (900, 2.0), (1800, None)]), Line("b", "red", [(900, 7.0)])]
    plot = Plot("T", "m", numbered, lines, now=3600)
    assert [(moment.across, moment.width, moment.words) for moment in plot.moments] == [
        ("135.0", "15.0", "00:15 UTC: a 2, b 7")
    ]
    whole = Plot("T", "m", numbered, [Line("a", "blue", [(at, 1.0) for at in range(0, 3601, 30)])], now=3600)
    assert len(whole.moments) == 40


def test_what_is_set_aside_and_damaged_names_its_page_of_the_runbook(app: FastAPI, browser: Browser) -> None:
    assert "runbook" not in browser.text(OPERATIONS)
    reported = [Reading(Measured.SET_ASIDE_BATCHES, (), 2.0), Reading(Measured.DAMAGED_FILES, (), 1.0)]
    app.state.parts = replace(parts_of(app), scrapes=Refreshed(lambda: reported, 60, 5))
    page = words(browser.get(OPERATIONS).text)
    headings = re.findall(r"^## (\w+)$", Path("docs/runbook.md").read_text(), re.MULTILINE)
    named = re.findall(r"runbook: (\w+)", page)
    assert named == ["KeyfoldBatchesSetAside", "KeyfoldFilesDamaged"]
    assert set(named) <= set(headings)
