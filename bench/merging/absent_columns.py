"""What it costs that records say which columns they name: the same batch in tables with and without the option."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from app.core.table.history import Batch, Table
from app.files.layout import data_file
from app.services.rows.lookups import find
from app.services.rows.views import View
from app.storage.images import Images
from app.storage.images.builder import Builder
from bench.figures import interleaved
from bench.merging.costs import Cost, Goal, lines
from bench.merging.tasks import Ground
from bench.site import NO_COMPACTION
from bench.wide_table import GROUPS, KEY, PLAIN, batch_records

TABLE_ROWS = 1_000_000  # whose keys are half of the batch's; tasks read none of its files
MOST = 1.15
LOOKUPS = 500
ONE, BOTH = f"{LOOKUPS} lookups of keys in one run", f"{LOOKUPS} of keys in both runs"
MERGE, TWICE, COMPACTION = "merge", "merge of each key twice", "compaction"
PRODUCERS = (*((field, *names) for field, names in GROUPS.items()), PLAIN)
MEANINGS: Mapping[str, Mapping[str, str]] = {
    "null": NO_COMPACTION,
    "unchanged": {**NO_COMPACTION, "record.absent-columns": "unchanged"},
}


def measure_absent_columns(ground: Ground) -> Iterator[str]:
    """Return the costs of merge, compaction and lookups for both meanings, in turns."""
    steps: dict[str, Callable[[], Cost]] = {}
    staged: dict[str, int] = {}
    for meaning, options in MEANINGS.items():
        made = ground.site.create_table(f"absent_{meaning}", options)
        first = _stage(ground, made, 1)
        staged[meaning] = first.size_bytes
        again = _stage(ground, made, 1)
        steps[f"{MERGE}, {meaning}"] = ground.step(ground.here, [ground.merge_task(made, [first])])
        steps[f"{TWICE}, {meaning}"] = ground.step(ground.here, [ground.merge_task(made, [first, again])])
        ground.site.merge(made)
        _stage(ground, made, 2)
        ground.site.merge(made)
        steps[f"{COMPACTION}, {meaning}"] = ground.step(ground.here, [ground.compaction_task(made)])
        steps |= {f"{kind}, {meaning}": act for kind, act in _lookups(ground, made).items()}
    costs = interleaved(dict(sorted(steps.items())), ground.sizes.rounds, warm_ups=1)
    added = (staged["unchanged"] - staged["null"]) / ground.sizes.records
    yield from ("### Absent columns", "")
    yield (
        f"A batch of {ground.sizes.records:,} records, merged in this process, with `record.absent-columns` = `null` "
        "and `unchanged`. Three producers take turns: the columns of one group, of the other, of none; six in ten of "
        f"what they name is null. Lookups have images. Staging files are {added:+.1f} bytes a record larger."
    )
    yield ""
    kinds = (MERGE, TWICE, COMPACTION, ONE, BOTH)
    yield from lines(costs, [Goal(f"{kind}, unchanged", f"{kind}, null", MOST, cpu=True) for kind in kinds])


def _stage(ground: Ground, made: Table, number: int) -> Batch:
    """Stage a batch of records of which each names the columns of one producer, and is null elsewhere."""
    records = batch_records(number, ground.sizes.rows(TABLE_ROWS), ground.sizes.records)
    turns = np.arange(len(records)) % len(PRODUCERS)
    for turn, names in enumerate(PRODUCERS):
        for name in names:
            place = records.column_names.index(name)
            others = pa.nulls(len(records), records[name].type)
            records = records.set_column(place, name, pc.if_else(pa.array(turns == turn), records[name], others))
    return ground.site.stage(made, records, [(KEY, *PRODUCERS[turn]) for turn in turns.tolist()])


def _lookups(ground: Ground, made: Table) -> Mapping[str, Callable[[], Cost]]:
    """Return what measures some lookups, of keys that one of two runs has and of keys that both have."""
    site = ground.site
    snapshot, plan, warehouse = site.snapshot(made), site.plan(made), site.merges.warehouse
    images = Images(site.folder / f"images_{made.name}", warehouse)
    images.asking.builds = False
    builder = Builder(images.folder, warehouse, 2**40)
    keys = []
    for run in snapshot.runs:
        images.want(made.id, run, made.schema, plan)
        _make_all(images, builder)
        images.find(made.id, run, run.files[0].min_token, (KEY,), (-1,))  # state rows are made once they are missed
        _make_all(images, builder)
        paths = [warehouse.path(*data_file(made.id, run.id, file.name)) for file in run.files]
        keys.append({key for path in paths for key in pq.read_table(path, columns=[KEY])[KEY].to_pylist()})
    view = View(made, plan, snapshot, {made.schema_id: made.schema})

    def look_up(wanted: Sequence[int]) -> None:
        for key in wanted:
            find(view, images, (key,), view.columns)

    first, second = keys
    drawn = {ONE: sorted(first - second)[:LOOKUPS], BOTH: sorted(first & second)[:LOOKUPS]}
    return {name: partial(ground.meter.cost, partial(look_up, of)) for name, of in drawn.items()}


def _make_all(images: Images, builder: Builder) -> None:
    while builder.work():
        pass
    images.asking.settled(60.0)  # state rows are not asked for while answers seem to be on their way
