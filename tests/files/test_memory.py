"""What the memory of a process follows: what it works on, not what it has read or freed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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

OF_A_SERVICE = """
import asyncio
import resource
import sys
import time
from app.files.memory import keep_memory_flat

keep_memory_flat(arenas=1)
import pyarrow as pa
from app import main
from app.settings import Settings

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() >> 20

async def serve():
    main.MEMORY_SECONDS = 0.01
    app = main.create_app(Settings(KEYFOLD_DATA=sys.argv[1], workers=0))
    async with app.router.lifespan_context(app):
        made = [pa.allocate_buffer(2**16) for _ in range(2048)]
        for one in made:
            memoryview(one).cast("B")[::4096] = bytes(16)
        most = resident()
        del made[:-1]
        for _ in range(1000):
            if most - resident() > 48:
                return True
            time.sleep(0.01)

print(asyncio.run(serve()))
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


def test_a_service_gives_back_what_it_has_freed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OF_A_SERVICE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"]
