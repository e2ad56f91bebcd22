"""By how much records are late: in the unit of the sequence, and exactly."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.services.shared.executor import MergeSite
from tests.services.builders import QUIET, create_table
from tests.services.one_catalog import catalog_kind
from tests.services.upkeep.test_late_counting import START, count, report, send

__all__ = ["catalog_kind"]


def test_how_late_is_measured_in_the_unit_of_a_padding(site: MergeSite) -> None:
    """Of times that a padding takes for one, another one would be compared where tasks cut the keys otherwise."""
    options = {"sequence.field": "t", "sequence.auto-padding": "millis-to-micro", **QUIET}
    table = create_table(site.database, options, columns=(("id", "INT"), ("t", "TIMESTAMP(6)")))
    times = [START + timedelta(microseconds=micros) for micros in (5_000, 5_999, 1_001, 1_000)]
    send(site.database, site, "", *({"id": 1, "t": time.isoformat()} for time in times))
    send(site.database, site, "", *({"id": key, "t": times[0].isoformat()} for key in (2, 3)))
    assert count(site, table)
    [lane] = report(site.database, table).lanes
    [one] = lane.senders
    assert (one.counts.late, one.counts.largest) == (2, 0.004)


@pytest.mark.parametrize(
    ("kind", "late", "horizon", "largest"), [("TIMESTAMP(6)", 100_000, "100 ms", 0.1), ("BIGINT", 10, "10", 10.0)]
)
def test_what_is_as_late_as_the_horizon_is_not_later(
    site: MergeSite, kind: str, late: int, horizon: str, largest: float
) -> None:
    """Times with fractions of a second, and numbers that a double does not have."""
    options = {"sequence.field": "t", "sequence.late-horizon": horizon, **QUIET}
    options |= {"merge-engine": "aggregation", "fields.e.aggregate-function": "listagg"}
    table = create_table(site.database, options, columns=(("id", "INT"), ("t", kind), ("e", "STRING")))
    firsts = (
        range(1_800_000_000_000_000_300, 1_800_000_000_000_000_340) if kind == "BIGINT" else range(7, 999_999, 9_973)
    )

    def told(value: int) -> Any:
        return value if kind == "BIGINT" else (START + timedelta(microseconds=value)).isoformat()

    send(site.database, site, "", *({"id": key, "t": told(first + late), "e": "x"} for key, first in enumerate(firsts)))
    send(site.database, site, "", *({"id": key, "t": told(first), "e": "y"} for key, first in enumerate(firsts)))
    assert count(site, table)
    [lane] = report(site.database, table).lanes
    [one] = lane.senders
    assert (one.counts.late, one.counts.too_late) == (len(firsts), 0)
    assert one.counts.largest == pytest.approx(largest, abs=1e-12)
    assert sum(count for step, count in zip(lane.steps, one.counts.steps, strict=False) if step <= 10) == len(firsts)
