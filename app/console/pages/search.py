"""The search field: tables, columns, options and functions by name."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from app.console.site.visits import Page, Visit
from app.services.operating.catalog_search import search_catalog

SEARCH_PATH: Final = "/console/search"


def show_search(visit: Visit) -> Response:
    """Show what the visitor's token may see, and has the text in its name."""
    part = visit.param("q").strip()[:255]
    results = None
    if part:
        with visit.parts.database.reading() as repository:
            results = search_catalog(repository, visit.grant.scope, part)
    return visit.page("pages/search.html", q=part, found=results)


PAGES: Final = (Page("GET", SEARCH_PATH, show_search),)
