"""Search for tables, columns, options and functions by a part of their names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from app.catalog.repository import Repository
from app.core.access import TokenScope
from app.core.functions.entries import ALIASES, FUNCTIONS, AggregateFunction
from app.core.table.history import Table
from app.core.table.options.entries import FIELD_OPTIONS, TABLE_OPTIONS
from app.core.table.options.option import Option
from app.core.table.schema import Column

# At most this many results of a kind.
MOST_RESULTS: Final = 20
MOST_RANKED: Final = 200  # tables of which the nearest are shown
# The columns and options of at most this many tables are read.
MOST_TABLES: Final = 1_000
# At most this many columns of these tables are read.
MOST_COLUMNS: Final = 50_000
_MOST_EXAMPLES: Final = 3  # tables that are named for an option
_PAGE_TABLES: Final = 100


@dataclass(frozen=True)
class FoundColumn:
    """A column and its table."""

    table: Table
    column: Column


@dataclass(frozen=True)
class FoundOption:
    """An option, and some of the tables that set it. ``of_column``: its keys begin with ``fields.`` and a column."""

    option: Option
    of_column: bool
    tables: list[Table] = field(default_factory=list)

    @property
    def key(self) -> str:
        """The key as documents write it."""
        return f"fields.<column>.{self.option.key}" if self.of_column else self.option.key

    def note(self, table: Table) -> None:
        """Keep the table as an example if it sets the option."""
        if len(self.tables) < _MOST_EXAMPLES and any(self._is(key) for key in table.schema.options):
            self.tables.append(table)

    def _is(self, key: str) -> bool:
        if self.of_column:
            return key.startswith("fields.") and key.endswith(f".{self.option.key}")
        return key in (self.option.key, *self.option.aliases)


@dataclass(frozen=True)
class SearchResult:
    """The matches of a search, up to ``MOST_RESULTS`` of each kind. ``read`` of ``count`` tables were searched for
    columns; ``first`` is the first of them.
    """

    tables: Sequence[Table]
    matching: int
    columns: Sequence[FoundColumn]
    options: Sequence[FoundOption]
    functions: Sequence[AggregateFunction]
    read: int
    count: int
    first: Table | None

    @property
    def nothing(self) -> bool:
        """Whether there are no matches of any kind."""
        return not (self.tables or self.columns or self.options or self.functions)


def search_catalog(repository: Repository, scope: TokenScope, part: str) -> SearchResult:
    """Return the tables of ``scope`` and their columns with ``part`` in their names, and the options and functions
    with ``part`` in their name or meaning.
    """
    known = repository.overview
    tables = sorted(known.tables(scope, limit=MOST_RANKED, part=part), key=lambda table: _distance(table.name, part))
    columns: list[FoundColumn] = []
    options = _options(part)
    first, read = None, 0
    for table in _first_tables(repository, scope):
        first, read = first or table, read + 1
        named = (column for column in table.schema.columns if part.lower() in column.name.lower())
        columns += (FoundColumn(table, column) for column in named)
        for option in options:
            option.note(table)
    columns.sort(key=lambda found_column: _distance(found_column.column.name, part))
    matching, count = known.count(scope, part), known.count(scope)
    described = options[:MOST_RESULTS], _functions(part)[:MOST_RESULTS]
    return SearchResult(tables[:MOST_RESULTS], matching, columns[:MOST_RESULTS], *described, read, count, first)


def _first_tables(repository: Repository, scope: TokenScope) -> Iterator[Table]:
    """Yield the tables in name order, as far as they are read."""
    after, tables, columns = None, 0, 0
    while tables < MOST_TABLES and columns < MOST_COLUMNS:
        page = repository.overview.tables(scope, after=after, limit=_PAGE_TABLES)
        yield from page
        if len(page) < _PAGE_TABLES:
            return
        after = page[-1].database, page[-1].name
        tables, columns = tables + len(page), columns + sum(len(table.schema.columns) for table in page)


def _options(part: str) -> list[FoundOption]:
    """Return the matching options, exact names first, options without effect last."""
    known = [*(FoundOption(option, False) for option in TABLE_OPTIONS.values())]
    known += (FoundOption(option, True) for option in FIELD_OPTIONS.values())
    words = part.lower()
    matching = [
        found_option
        for found_option in known
        if words in found_option.key or words in found_option.option.meaning.lower()
    ]
    return sorted(matching, key=lambda found_option: (not found_option.option.effect, words not in found_option.key))


def _functions(part: str) -> list[AggregateFunction]:
    """Return the matching functions, exact names first, including old names."""
    words = part.lower()
    called = {name for name in FUNCTIONS if words in name} | {name for old, name in ALIASES.items() if words in old}
    matching = [function for function in FUNCTIONS.values() if function.name in called or words in function.meaning]
    return sorted(matching, key=lambda aggregate_function: aggregate_function.name not in called)


def _distance(name: str, part: str) -> tuple[bool, bool, str]:
    """Return the sort key of search results: the name itself, names that begin with it, all others."""
    words, whole = part.lower(), name.lower()
    return words.rpartition(".")[2] != whole, not whole.startswith(words), whole
