"""Tasks read of staging files the row groups of their tokens, and those of older releases whole: to the same states."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from app.core.plan.merging.merge_plan import compile_plan
from app.core.plan.records.record_decoder import DecodedRecords
from app.core.table.history import Batch
from app.core.table.records import ARRIVAL_COLUMN, POSITION_BITS
from app.files import row_groups
from app.kernel.records import records_of
from app.kernel.tasks import LEAST_TOKEN, Task, Work, schema_text
from tests.builders import schema_of
from tests.histories import ENGINES, cut, examples, random_history, random_table
from tests.kernel.expected import expected_rows, shown, visible
from tests.oracle import TableCase
from tests.site import Site
from tests.storage.staged import write_as_before


class OlderSite(Site):
    """A site whose staging files are as older releases wrote them."""

    def stage_decoded(self, decoded: DecodedRecords) -> Batch:
        batch = super().stage_decoded(decoded)
        found = write_as_before(self.warehouse, self.table_id, batch.file, self.plan.schema, [decoded])
        self.batches[-1] = replace(batch, size_bytes=found.size_bytes, digest=found.digest)
        return self.batches[-1]


@settings(max_examples=examples(30))
@given(seed=st.integers(0, 2**32), engine=st.sampled_from(list(ENGINES)))
def test_sorted_files_and_those_of_older_releases_come_to_the_same_states(
    engine: str, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    random = Random(seed)
    table, retracts = random_table(random, engine)
    note(str(table))
    history = random_history(random, table, retracts, 100)
    pieces = [history[piece] for piece in cut(random, len(history), 4)]
    ranges = random.choice((1, 2, 8))
    states = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_groups, "_NARROW_ROWS", 0)
        patch.setattr(row_groups, "_GROUP_ROWS", random.choice((1, 4)))
        for kind in (Site, OlderSite):
            site = kind(tmp_path_factory.mktemp("warehouse"), compile_plan(schema_of(table)))
            site.ranges = ranges
            site.merge(pieces)
            assert shown(table, site) == visible(expected_rows(table, history))
            states.append([repr(site.table(run).to_pylist()) for run in site.runs])
    assert states[0] == states[1]


PLAIN = TableCase((("k", "BIGINT"), ("v", "BIGINT")), ("k",), {})


@pytest.mark.parametrize(("kind", "groups"), [(Site, 8), (OlderSite, 1)])
def test_a_task_reads_the_row_groups_of_its_tokens(kind: type[Site], groups: int, tmp_path: Path) -> None:
    site = kind(tmp_path, compile_plan(schema_of(PLAIN)))
    keys = [number * 7919 % 40_000 for number in range(40_000)]
    kinds, places = pa.array([0] * len(keys), pa.int8()), pa.array(range(len(keys)), pa.int32())
    batch = site.stage_decoded(DecodedRecords({"k": pa.array(keys), "v": pa.array(keys)}, kinds, places))
    whole = Task(Work.MERGE, site.table_id, {"0": schema_text(site.plan.schema)}, 0, "r", 1_000, (batch,))
    found: dict[int, int] = {}
    for place in range(8):
        first = LEAST_TOKEN + place * 2**61
        pieces = [*records_of(site.warehouse, replace(whole, first_token=first, last_token=first + 2**61 - 1), batch)]
        assert len(pieces) == 1
        for piece in pieces:
            assert ((piece.tokens >= first) & (piece.tokens < first + 2**61)).all()
            arrivals = piece.rows.column(ARRIVAL_COLUMN).to_pylist()
            found |= dict(zip(arrivals, piece.rows.column("k").to_pylist(), strict=True))
    assert found == {batch.number << POSITION_BITS | place: key for place, key in enumerate(keys)}
    assert len([*records_of(site.warehouse, whole, batch)]) == groups
