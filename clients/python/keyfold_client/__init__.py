"""Keyfold from Python: ``Client`` for programs and notebooks, ``AsyncClient`` for asyncio."""

from keyfold_client.aio.client import AsyncClient
from keyfold_client.aio.table import AsyncTable
from keyfold_client.errors import (
    Busy,
    Conflict,
    Fault,
    KeyfoldError,
    Misuse,
    NotFound,
    NotKeyfold,
    NotPermitted,
    Refused,
    ServiceFault,
    Unreachable,
)
from keyfold_client.results import Batch, Change, Upserted
from keyfold_client.scans import AsyncScan, Scan
from keyfold_client.sync.client import Client
from keyfold_client.sync.table import Table

__all__ = [
    "AsyncClient",
    "AsyncScan",
    "AsyncTable",
    "Batch",
    "Busy",
    "Change",
    "Client",
    "Conflict",
    "Fault",
    "KeyfoldError",
    "Misuse",
    "NotFound",
    "NotKeyfold",
    "NotPermitted",
    "Refused",
    "Scan",
    "ServiceFault",
    "Table",
    "Unreachable",
    "Upserted",
]
