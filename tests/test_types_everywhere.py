"""One data type, one entry: whoever adds a kind of type is told of every table that needs a line for it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from app.core.alter.nested_fields import STEPS
from app.core.rules.widening import NESTED
from app.core.types.datatype import ENTRIES, DataType
from app.core.types.kinds import Family, Kind
from app.files.arrow import ARROW_TYPES

ROOT = Path(__file__).parent.parent
SOURCES = [path for folder in ("app", "spark_jobs") for path in (ROOT / folder).rglob("*.py")]
# Words that are spelled as kinds and mean something else: Spark's types, resources of HTTP.
OTHER_WORDS = ("spark", "resource_type")
SCALARS = [kind for kind in Kind if not ENTRIES[kind].inside]
HOLDING = [kind for kind in Kind if ENTRIES[kind].inside]


def literals(tree: ast.AST) -> Iterator[ast.Constant]:
    """The constants of a module that stand for what they spell."""
    if isinstance(tree, ast.keyword) and tree.arg in OTHER_WORDS:
        return
    if isinstance(tree, ast.Constant):
        yield tree
    for child in ast.iter_child_nodes(tree):
        yield from literals(child)


def test_no_kind_is_written_as_a_text_outside_its_enum() -> None:
    own = ROOT / "app/core/types/kinds.py"
    found = [
        f"{path.relative_to(ROOT)}:{constant.lineno} {constant.value}"
        for path in SOURCES
        if path != own
        for constant in literals(ast.parse(path.read_text()))
        if constant.value in set(Kind)
    ]
    assert found == []


def test_a_kind_is_compared_with_no_text() -> None:
    """A misspelt one would never be equal, and the type checker lets a text be compared with an enum of texts."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute) and node.left.attr == "kind"
        for constant in (inner for side in node.comparators for inner in ast.walk(side))
        if isinstance(constant, ast.Constant) and isinstance(constant.value, str)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("table", "kinds"),
    [(ENTRIES, Kind), (ARROW_TYPES, Kind), *((t, HOLDING) for t in (NESTED, STEPS))],
    ids=["core", "Arrow", "widening", "paths of ALTER"],
)
def test_every_table_by_kind_has_exactly_the_kinds(table: Mapping[Kind, object], kinds: list[Kind]) -> None:
    assert set(table) == set(kinds)


@pytest.mark.parametrize("kind", SCALARS)
def test_every_scalar_is_a_key_and_has_an_order(kind: Kind) -> None:
    entry = ENTRIES[kind]
    assert entry.hashed, "app.core.table.keys needs the bytes that Spark's xxhash64 reads"
    assert entry.ordered


def test_every_family_has_kinds_and_numbers_are_the_kinds_of_numbers() -> None:
    assert {entry.family for entry in ENTRIES.values()} == set(Family)
    numbers = {Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT, Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL}
    assert {kind for kind in Kind if DataType(kind).numeric} == numbers


def test_a_kind_widens_only_within_its_family_or_to_another_number() -> None:
    for old, entry in ENTRIES.items():
        families = {ENTRIES[new].family for new in entry.widens}
        assert families <= {entry.family} or all(DataType(kind).numeric for kind in (old, *entry.widens))
