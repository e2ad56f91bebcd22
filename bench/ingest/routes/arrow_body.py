"""The body of a request as an Arrow table, for libraries that take nothing else."""

from __future__ import annotations

import pyarrow as pa
from fastapi import Request


async def arrow_body(request: Request) -> pa.Table:
    """The rows of an Arrow IPC stream. Raises ``pyarrow.ArrowInvalid`` for anything else."""
    return pa.ipc.open_stream(await request.body()).read_all()
