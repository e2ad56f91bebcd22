"""The page about Python answers what it shows."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

PAGE = Path("docs/python.md")


def test_the_page_answers_what_it_shows(url: str) -> None:
    blocks = re.findall(r"```pycon\n(.*?)```", PAGE.read_text(), re.DOTALL)
    text = "\n".join(blocks).replace("http://127.0.0.1:8080", url)
    session = doctest.DocTestParser().get_doctest(text, {}, PAGE.name, str(PAGE), 0)
    reported: list[str] = []
    result = doctest.DocTestRunner().run(session, out=reported.append)
    assert (result.failed, result.attempted > 10) == (0, True), "".join(reported)
