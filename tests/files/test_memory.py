"""What the memory of a process follows: what it works on, not what it has read or freed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa

from app.files.reading import joined

MIB = 2**20
BATCHES = 32
OF_A_LONG_LIFE = """
import json
import resource
from app.files.memory import keep_memory_flat

keep_memory_flat(arenas=1)
import pyarrow as pa
from spark_jobs.parcels import run_parcels

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() >> 20

made = [pa.allocate_buffer(2**16) for _ in range(2048)]
for one in made:
    memoryview(one).cast("B")[::4096] = bytes(16)
most = resident()
del made[:-1]
before = resident()
empty = pa.record_batch([[json.dumps({"warehouse": "/", "tasks": {}})]], names=["parcel"])
assert [len(results) for results in run_parcels(iter([empty]))] == [0]
print(pa.default_memory_pool().backend_name, most - before < 32, before - resident() > 48)
"""


def test_rows_that_are_left_out_are_not_held_until_others_come() -> None:
    held: list[int] = []

    def left_out() -> Iterator[pa.RecordBatch]:
        before = pa.total_allocated_bytes()
        for _ in range(BATCHES):
            whole = pa.record_batch([pa.array(range(MIB // 8), pa.int64())], names=["token"])
            yield whole.slice(0, 0)
            del whole
            held.append(pa.total_allocated_bytes() - before)

    assert list(joined(left_out(), MIB)) == []
    assert max(held) < 4 * MIB


def test_a_worker_gives_back_behind_a_parcel_what_it_has_freed() -> None:
    """The last buffer, which is kept, lies behind the others: on its own the allocator keeps them all."""
    done = subprocess.run([sys.executable, "-c", OF_A_LONG_LIFE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["system", "True", "True"]
