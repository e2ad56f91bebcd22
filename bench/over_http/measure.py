"""All parts, on one data folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.over_http.client import CONNECTIONS
from bench.over_http.ground import KINDS, Ground
from bench.over_http.lookups import compared, many_at_once, staged, three_runs
from bench.over_http.standing import idle, memory, two_processes
from bench.over_http.turns import TURN_SECONDS
from bench.reads.orders import COLUMNS
from bench.sizes import Sizes

ROWS = 5_000_000


def measure_http(sizes: Sizes) -> Iterator[Sequence[str]]:
    """Lookups over real sockets, one figure after the other."""
    with TemporaryDirectory(prefix="keyfold-bench-") as made:
        ground = Ground(Path(made), sizes.rows(ROWS))
        with ground.served("one", ("--processes", "1")) as one:
            for name in KINDS:
                ground.image(one.client, name)
            yield [*_heading(ground.rows), *compared(ground, one, sizes.rounds)]
            yield list(two_processes(ground, one, sizes.rounds))
            yield list(many_at_once(ground, one, sizes.rounds))
            yield list(staged(ground, one, sizes.rounds))
            yield list(three_runs(ground, one, sizes.rounds))
        yield list(memory(ground))
        yield list(idle(ground))
        ground.close()


def _heading(rows: int) -> Iterator[str]:
    yield (
        f"Tables of {rows:,} rows × {len(COLUMNS)} columns, keys drawn at random, {CONNECTIONS} kept-alive connections"
        f" of one client on this machine. Medians of turns of {TURN_SECONDS:.0f} s, one contender after the other; CPU"
        " is that of a request, of all processes of the server. No merge worker, no Spark. The stores are reached over"
        " Unix sockets and have their own settings; Redis keeps nothing on disk."
    )
    yield ""
