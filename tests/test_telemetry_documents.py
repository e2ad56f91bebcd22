"""The dashboard, the alert rules and the documents name metrics that there are, with labels that they have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from app.telemetry.entries import ENTRIES, Entry, Kind

DOCS = Path(__file__).parent.parent / "docs"
MONITORING = (DOCS / "monitoring.md").read_text()
RUNBOOK = (DOCS / "runbook.md").read_text()
RULES: list[dict[str, Any]] = yaml.safe_load((DOCS / "alerts.yml").read_text())["groups"][0]["rules"]
DASHBOARD: dict[str, Any] = json.loads((DOCS / "grafana-dashboard.json").read_text())
OF_PROMETHEUS = {"up": {"job", "instance"}}
_SUFFIXES: Mapping[Kind, tuple[str, ...]] = {
    Kind.COUNTER: ("_total",),
    Kind.GAUGE: ("",),
    Kind.HISTOGRAM: ("_bucket", "_sum", "_count"),
}
SERIES = {entry.name + suffix: entry for entry in ENTRIES for suffix in _SUFFIXES[entry.kind]}


def expressions() -> dict[str, str]:
    """What the rules and the dashboard ask Prometheus, by where they do."""
    found = {rule["alert"]: rule["expr"] for rule in RULES}
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            found[f"{panel['title']}: {target['legendFormat']}"] = target["expr"].replace("$__rate_interval", "5m")
    return found


def selectors(expression: Any) -> Iterator[Any]:
    """Every selector of series in a parsed expression."""
    if isinstance(expression, promql_parser.VectorSelector):
        yield expression
    for name in ("expr", "lhs", "rhs", "param", "vector_selector"):
        inner = getattr(expression, name, None)
        if inner is not None and not isinstance(inner, str):
            yield from selectors(inner)
    for inner in getattr(expression, "args", None) or ():
        yield from selectors(inner)


def groupings(expression: Any) -> Iterator[str]:
    """Every label that an aggregation of the expression keeps."""
    modifier = getattr(expression, "modifier", None)
    yield from getattr(modifier, "labels", None) or ()
    for name in ("expr", "lhs", "rhs", "vector_selector"):
        inner = getattr(expression, name, None)
        if inner is not None and not isinstance(inner, str):
            yield from groupings(inner)
    for inner in getattr(expression, "args", None) or ():
        yield from groupings(inner)


def labels_of(entry: Entry, series: str) -> set[str]:
    return {*entry.labels, "job", "instance", *(["le"] if series.endswith("_bucket") else [])}


@pytest.mark.parametrize("where", expressions())
def test_an_expression_names_series_and_labels_that_exist(where: str) -> None:
    parsed = promql_parser.parse(expressions()[where])
    asked = list(selectors(parsed))
    assert asked
    known: set[str] = set()
    for selector in asked:
        if selector.name in OF_PROMETHEUS:
            known |= OF_PROMETHEUS[selector.name]
            continue
        entry = SERIES[selector.name]
        known |= labels_of(entry, selector.name)
        for matcher in selector.matchers.matchers:
            assert matcher.name in labels_of(entry, selector.name)
            closed = entry.labels.get(matcher.name)
            if closed:
                assert any(re.fullmatch(matcher.value, one) for one in closed), matcher.value
    assert set(groupings(parsed)) <= known


def test_legends_and_summaries_name_labels_that_the_query_keeps() -> None:
    reported = {rule["alert"]: rule["annotations"]["summary"] for rule in RULES}
    legends = {expression: expression for expression in expressions() if expression not in reported}
    for where, text in (reported | legends).items():
        named = set(re.findall(r"\$labels\.(\w+)|\{\{(\w+)\}\}", text))
        parsed = promql_parser.parse(expressions()[where])
        all_labels = {label for selector in selectors(parsed) for label in _all_labels(selector.name)}
        assert {first or second for first, second in named} <= all_labels, where


def _all_labels(series: str) -> set[str]:
    return OF_PROMETHEUS.get(series) or labels_of(SERIES[series], series)


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {
        selector.name
        for expression in expressions().values()
        for selector in selectors(promql_parser.parse(expression))
    }
    left_out = {"process_virtual_memory_bytes", "process_start_time_seconds"}
    missing = {entry.name for entry in ENTRIES if not any(f"{entry.name}{s}" in shown for s in _SUFFIXES[entry.kind])}
    assert missing == left_out


def test_the_operations_page_lists_every_metric_with_its_labels_and_meaning() -> None:
    listed = re.findall(r"^\| `((?:keyfold|process)_\w+)` \| ([^|]*) \| ([^|]*) \|$", MONITORING, re.MULTILINE)
    expected = [(entry.exposed_name, ", ".join(entry.labels), entry.meaning) for entry in ENTRIES]
    assert sorted(listed) == sorted(expected)


def test_every_alert_has_its_section_in_the_runbook_and_every_section_its_alert() -> None:
    sections = re.findall(r"^## (\w+)$", RUNBOOK, re.MULTILINE)
    assert sections == [rule["alert"] for rule in RULES]


def test_metrics_that_the_runbook_names_exist() -> None:
    named = set(re.findall(r"\b(?:keyfold|process)_\w+\b", RUNBOOK + (DOCS / "alerts.yml").read_text()))
    assert named <= SERIES.keys()


def test_alerts_say_how_urgent_they_are() -> None:
    for rule in RULES:
        assert rule["labels"]["severity"] in ("page", "warn")
        assert rule["annotations"]["summary"]
