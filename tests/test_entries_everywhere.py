"""One option, function or rule, one entry: whoever adds one is told of every place that must know it, too."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from app.core.functions.entries import ALIASES, FUNCTIONS
from app.core.plan.explaining.explanations import EXPLANATIONS
from app.core.rules.replays.replay import Replay
from app.core.rules.rule import Rule
from app.core.table.options.entries import DEFAULT_FUNCTION, FIELD_OPTIONS, TABLE_OPTIONS
from tests.histories import FUNCTION_TYPES, RETRACTABLE
from tests.oracle import STEPS
from tests.oracle_collections import COLLECTIONS

ROOT = Path(__file__).parent.parent
ENTRIES = ROOT / "app/core/table/options/entries.py"
FILES = [path for path in sorted(ROOT.glob("tests/cases/*.json")) if path.name != "ddl_docs.json"]
CASES = [case for path in FILES for case in json.loads(path.read_text())]


def literals() -> set[str]:
    """The texts in the code of the service and its jobs, but for the entries themselves."""
    sources = [path for folder in ("app", "spark_jobs") for path in (ROOT / folder).rglob("*.py") if path != ENTRIES]
    nodes = (node for path in sources for node in ast.walk(ast.parse(path.read_text())))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_every_option_that_has_an_effect_is_read_somewhere() -> None:
    options = [*TABLE_OPTIONS.values(), *FIELD_OPTIONS.values()]
    # The default function is read by the name of its constant.
    assert {option.key for option in options if option.effect} - literals() == {DEFAULT_FUNCTION}


def test_random_histories_draw_every_function_and_its_retracts() -> None:
    assert FUNCTION_TYPES.keys() == FUNCTIONS.keys()
    assert set(RETRACTABLE) == {name for name, function in FUNCTIONS.items() if function.retracts}


def test_the_independent_fold_knows_every_function() -> None:
    assert STEPS.keys() | COLLECTIONS.keys() == FUNCTIONS.keys() | ALIASES.keys()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_conformance_case_uses_the_function(name: str) -> None:
    used = {value for case in CASES for key, value in case["options"].items() if key.endswith("aggregate-function")}
    assert name in used


def test_every_rule_of_columns_can_be_explained() -> None:
    rules = {rule for rule in Rule.__subclasses__() if rule.__module__.startswith("app.")}
    assert rules - {Replay} == EXPLANATIONS.keys()
