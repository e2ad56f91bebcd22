"""Delta Lake through delta-rs: MERGE, which rewrites every file that holds a matched key."""

from __future__ import annotations

from importlib.metadata import version

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from bench.peers.meaning import VALUES, inserted, updated
from bench.peers.system import System, run
from bench.wide_table import KEY


class Delta(System):
    """A Delta table in a folder."""

    version = f"deltalake {version('deltalake')}"

    def load(self, base: pa.Table) -> None:
        write_deltalake(self.folder / "table", base)

    def update(self, batch: pa.Table) -> None:
        (
            DeltaTable(self.folder / "table")
            .merge(batch, predicate=f"t.{KEY} = s.{KEY}", source_alias="s", target_alias="t")
            .when_matched_update({name: updated(name) for name in VALUES})
            .when_not_matched_insert({KEY: f"s.{KEY}", **{name: inserted(name) for name in VALUES}})
            .execute()
        )

    def read(self) -> pa.Table:
        return DeltaTable(self.folder / "table").to_pyarrow_table()


if __name__ == "__main__":
    run(Delta)
