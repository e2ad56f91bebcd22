"""The pictures of docs/console.md: all of them are there, named, and small."""

from __future__ import annotations

import re

from tests.console.chromium import SCHEMES
from tests.console.screenshots import FOLDER, MOST_BYTES, MOST_BYTES_TOGETHER, SHOTS, picture_of


def test_each_page_has_a_picture_in_both_schemes_and_no_other_is_kept() -> None:
    assert {picture_of(shot, scheme) for shot in SHOTS for scheme in SCHEMES} == {*FOLDER.iterdir()}


def test_the_tour_shows_each_picture() -> None:
    tour = (FOLDER.parent / "console.md").read_text()
    named = set(re.findall(r"\]\(screenshots/([\w-]+\.png)\)", tour))
    assert named == {path.name for path in FOLDER.iterdir()}


def test_pictures_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in FOLDER.iterdir()}
    assert {name for name, size in sizes.items() if size > MOST_BYTES} == set()
    assert sum(sizes.values()) <= MOST_BYTES_TOGETHER
