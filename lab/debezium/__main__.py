"""``python -m lab.debezium --changes 100000``: a database that changes, a real Debezium that posts its events, and
the service; each is killed once, and in the end every row is compared with the source.

Ends with 77, and says why, where Debezium cannot be had.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from lab.debezium.feeder import LIST, SINGLE
from lab.debezium.pipeline import SOURCES, Pipeline, Watcher
from lab.debezium.source import Impossible

SKIPPED = 77


def main() -> int:
    """0 if all rows are equal and no value went back."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=100_000)
    parser.add_argument("--source", choices=[*SOURCES], default="postgres")
    parser.add_argument("--mode", choices=[LIST, SINGLE], default=LIST)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with ExitStack() as exits:
        folder = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="keyfold-debezium-")))
        folder.chmod(0o755)  # the user of PostgreSQL goes there
        try:
            pipeline = Pipeline(folder, given.source, given.mode, given.seed, exits)
        except Impossible as reason:
            print(f"skipped: {reason}")  # noqa: T201
            return SKIPPED
        began, watcher = time.monotonic(), Watcher(pipeline)
        watcher.start()
        pipeline.run(given.changes)
        seconds = time.monotonic() - began
        watcher.end()
        faults = [*watcher.faults, *pipeline.differences()]
        summary = f"{given.changes} changes in {seconds:.0f} s, {pipeline.count()} rows compared, {watcher.looks} looks"
        print("\n".join([summary, f"{len(faults)} faults", *faults[:40]]))  # noqa: T201
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
