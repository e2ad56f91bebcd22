"""A real Chromium of this machine, what it complains about, and axe."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

EXECUTABLE = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MISSING = "there is no Chromium on this machine (Debian: apt install chromium); tests over HTTP run all the same"
WIDTHS = {"desk": 1280, "phone": 390}
Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
_OTHER: dict[Scheme, Scheme] = {"light": "dark", "dark": "light"}
MOST_WEIGHT = 150_000
NEEDS_CHROMIUM = (
    pytest.mark.skipif(EXECUTABLE is None, reason=MISSING),
    pytest.mark.slow(reason="starts a service and a browser"),
)
"""What the tests of a file are marked with that opens pages in it."""


def needs_chromium(test: Any) -> Any:
    """A test that opens pages in it, in a file of others."""
    for mark in NEEDS_CHROMIUM:
        test = mark(test)
    return test


_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser; it downloads nothing and speaks to nobody."""
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=EXECUTABLE, args=["--no-sandbox", "--disable-background-networking"]
        )
        yield opened
        opened.close()


@dataclass
class Person:
    """One person's browser window: what its console said, and which hosts it asked."""

    page: Page
    scheme: Scheme = "light"
    complaints: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    weight: int = 0

    def open(self, path: str) -> None:
        """Opens a page, and waits until nothing is loaded any more."""
        self.weight = 0
        self.page.goto(path)
        self.page.wait_for_load_state("load")

    def axe(self) -> list[str]:
        """Return what axe finds on the page that is shown, and of its contrast in the other color scheme, too."""
        found = self.axe_in_scheme()
        for scheme in (_OTHER[self.scheme], self.scheme):
            self.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # at once, without a transition
            if scheme != self.scheme:
                found += self._violations(["color-contrast"])
        return found

    def axe_in_scheme(self) -> list[str]:
        """Return what axe finds on the page that is shown, in the color scheme that it has now."""
        self.page.evaluate(AXE_SCRIPT)
        return self._violations(_TAGS)

    def _violations(self, rules: list[str]) -> list[str]:
        options = json.dumps({"runOnly": rules, "resultTypes": ["violations"]})  # the rest is most of a second
        found = self.page.evaluate(f"axe.run({options}).then(found => found.violations)")
        return [f"{one['id']}: {[node['html'][:200] for node in one['nodes']]}" for one in found]

    def wider_than_window(self) -> bool:
        """Whether the page itself, not a part of it, has to be scrolled sideways."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > window.innerWidth"))


@contextmanager
def person(browser: Browser, url: str, width: str = "desk", scheme: Scheme = "light", **more: Any) -> Iterator[Person]:
    """A window of some width on the service at ``url``."""
    context: BrowserContext = browser.new_context(
        base_url=url, viewport={"width": WIDTHS[width], "height": 900}, color_scheme=scheme, **more
    )
    opened = Person(context.new_page(), scheme)
    opened.page.on(
        "console", lambda reported: opened.complaints.append(reported.text) if reported.type != "log" else None
    )
    opened.page.on("pageerror", lambda error: opened.complaints.append(str(error)))
    opened.page.on("request", lambda asked: opened.hosts.add(urlsplit(asked.url).netloc))
    opened.page.on("response", lambda answer: _weigh(opened, answer))
    yield opened
    context.close()


def _weigh(window: Person, answer: Any) -> None:
    """Counts what came over the wire, as far as the answer says how much that is."""
    window.weight += int(answer.headers.get("content-length", "0"))


def faults_of(browser: Browser, url: str, path: str) -> list[str]:
    """Return what is wrong with a page of the service at ``url``: what axe and the browser complain about, too wide,
    too heavy, asked of another host. A desk shows it in the light scheme, then a phone in the dark one: a scheme is
    another value of the same variables, whatever the width.
    """
    with person(browser, url, "desk", "light") as window:
        window.open(path)
        found = _faults_shown(window, "desk")
        if window.weight >= MOST_WEIGHT:
            found.append(f"it weighs {window.weight} bytes")
        window.page.set_viewport_size({"width": WIDTHS["phone"], "height": 900})
        window.scheme = "dark"
        window.page.emulate_media(color_scheme=window.scheme, reduced_motion="reduce")
        window.open(path)  # the current tab is scrolled into sight where a page begins
        found += _faults_shown(window, "phone")
        found += [complaint for complaint in window.complaints if "404" not in complaint]
        return found + [f"it asks {host}" for host in window.hosts - {urlsplit(url).netloc}]


def _faults_shown(window: Person, width: str) -> list[str]:
    wide = [f"{width}: it is wider than the window"] if window.wider_than_window() else []
    return [f"{width}: {one}" for one in window.axe_in_scheme()] + wide
