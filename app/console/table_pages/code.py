"""A table as CREATE TABLE, and programs that read it and post to it, to be pasted."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from starlette.responses import Response

from app.console.parts.curl import table_path
from app.console.parts.references import with_option_links
from app.console.parts.snippets import LANGUAGES, Target
from app.console.site.tabs import key_texts
from app.console.site.visits import Page, Visit
from app.console.table_pages.rows import WantedRows, rows_of
from app.console.table_pages.table import TABLE_PAGE, table_name, table_page
from app.core.access import pattern_of
from app.core.ddl.writer import table_ddl
from app.core.errors import Invalid, KeyfoldError
from app.core.table.history import Table
from app.core.table.options.entries import Integers
from app.core.table.published import Format
from app.core.types.dialects import Dialect
from app.http.typed_columns import example_of
from app.services.publishing.publication_state import Endpoint, publication_state


def show_code(visit: Visit) -> Response:
    """Show all snippets on one page."""
    with visit.parts.database.reading() as repository:
        table = repository.tables.get(*table_name(visit))
        service = str(visit.request.base_url).rstrip("/")
        endpoint = Endpoint(service, visit.signed_in)
        published = {
            form: publication_state(repository, visit.parts.warehouse, table, form, endpoint) for form in Format
        }
    target = Target(
        service + table_path(*table_name(visit)),
        visit.signed_in,
        _key(visit, table),
        {column.name: example_of(column.type, Integers.NUMBER) for column in table.schema.columns},
        {form: state.read_by for form, state in published.items()},
        service,
        pattern_of(*table_name(visit)),
    )
    languages = [(language.name, language.title, [*language.snippets(target)]) for language in LANGUAGES]
    return table_page(visit, "code", statements=_statements(table), languages=languages, published=published)


def _statements(table: Table) -> list[tuple[Dialect, str, Invalid | None]]:
    statements: list[tuple[Dialect, str, Invalid | None]] = []
    for dialect in Dialect:
        try:
            ddl = table_ddl(table.name, table.schema, dialect)
            statements.append((dialect, with_option_links(ddl, ("primary-key", *table.schema.options)), None))
        except Invalid as invalid:  # Spark has no words for some types
            statements.append((dialect, "", invalid))
    return statements


def _key(visit: Visit, table: Table) -> list[str]:
    """Return a key that there is, so that what is pasted finds something; an example of one in a table without rows."""
    with suppress(KeyfoldError):  # the page is the same without it
        page = rows_of(visit, WantedRows(), None, most=1)
        for row in page.rows:
            return key_texts(row[name] for name in page.keys)
    return key_texts(example_of(column.type, Integers.NUMBER) for column in table.schema.key_columns)


PAGES: Final = (Page("GET", f"{TABLE_PAGE}/code", show_code),)
