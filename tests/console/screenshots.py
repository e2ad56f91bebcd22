"""``make screenshots``: the pictures of docs/console.md, of a real service with Spark in a real Chromium.

A page that is to be shown is an entry of ``SHOTS``, and docs/console.md names its pictures; tests compare. The service
is used for ``--minutes`` before the pictures are taken, so that the plots of its last hour have something to show.
"""

from __future__ import annotations

import argparse
import io
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from PIL import Image
from playwright.sync_api import Browser, Page

from app.services.explaining.examples import EXAMPLES
from tests.console.chromium import EXECUTABLE, MISSING, SCHEMES, chromium
from tests.service import Client, TableClient, serving

FOLDER: Final = Path(__file__).parents[2] / "docs" / "screenshots"
MOST_BYTES: Final = 100_000  # of one
MOST_BYTES_TOGETHER: Final = 800_000
WIDTH: Final = 1100
COLOURS: Final = 256
ORDERS: Final = """CREATE TABLE orders (
  id BIGINT NOT NULL, edited TIMESTAMP(3), status STRING, city STRING, booked TIMESTAMP(3), paid DECIMAL(10, 2),
  PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'merge-engine' = 'partial-update', 'fields.edited.sequence-group' = 'status,city',
  'fields.booked.sequence-group' = 'paid', 'fields.paid.aggregate-function' = 'sum', 'merge.max-staleness' = '10 s'
)"""


def _as_it_is(_: Page) -> None:
    """Nothing has to be done on the page."""


def _try_an_edit(page: Page) -> None:
    page.get_by_label("address STRING").fill("Rue Bleue 2, Lyon")
    page.get_by_role("button", name="Try it first").click()
    page.get_by_role("heading", name="What it would do").wait_for()


def _lengthened(page: Page) -> None:
    """Somebody changes two options, one of them wrongly."""
    page.get_by_label("merge.max-staleness").fill("5 min")
    page.get_by_label("merge.max-staged-rows").fill("many")
    page.get_by_text("write a whole number").wait_for()
    page.evaluate("scrollTo(0, 0)")


def _read_on(heading: str) -> Callable[[Page], None]:
    """Somebody goes down to a heading."""
    return lambda page: page.get_by_role("heading", name=heading).evaluate("one => one.scrollIntoView()")


@dataclass(frozen=True)
class Shot:
    """One picture: its name, the page, how high it is, and what is done on the page before."""

    name: str
    path: str
    height: int = 640
    does: Callable[[Page], None] = _as_it_is


SHOTS: Final = (
    Shot("home", "/", 420),
    Shot("example", "/console/examples/parcels", 760),
    Shot("row", "/console/tables/examples/parcels/row?key=1", 700, _read_on("Its story")),
    Shot("edit", "/console/tables/examples/parcels/row/edit?key=1", 860, _try_an_edit),
    Shot("playground", "/console/playground", 960),
    Shot("table", "/console/tables/shop/orders/snapshots", 620),
    Shot("settings", "/console/tables/shop/orders/settings", 620, _lengthened),
    Shot("operations", "/console/operations", 860),
    Shot("tokens", "/console/operations/tokens", 560),
)


def picture_of(shot: Shot, scheme: str, folder: Path = FOLDER) -> Path:
    """The file of a picture."""
    return folder / f"{shot.name}-{scheme}.png"


def take(folder: Path, minutes: float) -> None:
    """Takes all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data, serving(Path(data)) as (_, client), chromium() as browser:
        _load_examples(browser, str(client.base_url))
        with _used(client):
            time.sleep(minutes * 60)
            orders = TableClient(client, "shop", "orders")
            orders.merge()
            client.post(f"{orders.path}/tags", json={"tagName": "end-of-day"}).raise_for_status()
            orders.merge()
            for scheme in SCHEMES:
                _take_all(browser, str(client.base_url), scheme, folder)


def _load_examples(browser: Browser, url: str) -> None:
    """As a person does: each is loaded, and all of its records are played."""
    page = browser.new_page(base_url=url)
    for example in EXAMPLES.values():
        page.goto(f"/console/examples/{example.name}")
        page.get_by_role("button", name="Load").first.click()
        for number in range(1, len(example.records) + 1):
            page.get_by_role("button", name=f"Play record {number}").click()
    page.close()


@contextmanager
def _used(client: Client) -> Iterator[None]:
    """Somebody posts and reads orders, while the block runs."""
    client.create_database("shop")
    client.post("/v1/catalog/databases/shop/tables:fromDdl", json={"ddl": ORDERS}).raise_for_status()
    ended = threading.Event()
    thread = threading.Thread(target=_use, args=(TableClient(client, "shop", "orders"), ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _use(orders: TableClient, ended: threading.Event) -> None:
    chance = random.Random(7)
    while not ended.wait(0.2):
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
        edits = [{"id": chance.randrange(5_000), "edited": at, "status": "packed", "city": "Lyon"} for _ in range(40)]
        paid = [{"id": chance.randrange(5_000), "booked": at, "paid": "2.50"} for _ in range(chance.randrange(40))]
        orders.post_batch([*edits, *paid])
        for _ in range(chance.randrange(1, 8)):
            orders.get_row(str(chance.choice(edits)["id"]))


def _take_all(browser: Browser, url: str, scheme: str, folder: Path) -> None:
    context = browser.new_context(base_url=url, color_scheme="dark" if scheme == "dark" else "light")
    page = context.new_page()
    for shot in SHOTS:
        page.set_viewport_size({"width": WIDTH, "height": shot.height})
        page.goto(shot.path)
        shot.does(page)
        _keep(page.screenshot(), picture_of(shot, scheme, folder))
    context.close()


def _keep(png: bytes, path: Path) -> None:
    """Writes a picture of few colours, which pages have: a third of the bytes."""
    few = Image.open(io.BytesIO(png)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    few.save(path, optimize=True)


if __name__ == "__main__":
    assert EXECUTABLE, MISSING
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long the service is used before")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    given = parser.parse_args()
    take(given.folder, given.minutes)
