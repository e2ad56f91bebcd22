"""The documents as a site: every page, no dead link, nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted(ROOT.glob("docs/**/*.md"))


@pytest.mark.slow(reason="builds the whole site")
def test_the_documents_become_a_site_without_a_dead_link_or_anything_from_elsewhere(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    for page in PAGES:
        html = (tmp_path / page.relative_to(ROOT / "docs")).with_suffix(".html").read_text()
        elsewhere = re.findall(r'<(?:script|link|img|iframe)\b[^>]*?(?:src|href)="?(https?://[^" >]+)', html)
        assert elsewhere == [], page


def test_the_first_page_leads_to_every_other_but_decisions() -> None:
    docs = ROOT / "docs"
    linked = set(re.findall(r"\]\(([\w/-]+\.md)\)", (docs / "index.md").read_text()))
    pages = {page.relative_to(docs).as_posix() for page in PAGES}
    assert {page for page in linked if not page.startswith("decisions/")} == {
        page for page in pages - {"index.md"} if not page.startswith("decisions/")
    }
