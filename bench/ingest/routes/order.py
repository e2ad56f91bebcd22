"""The rows of the benchmark, as a web developer declares them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from pydantic import BaseModel

COLUMNS = {
    "id": "BIGINT",
    "customer": "STRING",
    "city": "STRING",
    "status": "VARCHAR(20)",
    "qty": "INT",
    "stock": "BIGINT",
    "price": "DOUBLE",
    "weight": "DOUBLE",
    "paid": "DECIMAL(10, 2)",
    "booked": "TIMESTAMP(3)",
    "active": "BOOLEAN",
    "note": "STRING",
}
KEY = "id"


class Order(BaseModel):
    """A row; its fields are ``COLUMNS``."""

    id: int
    customer: str
    city: str
    status: str
    qty: int
    stock: int
    price: float
    weight: float
    paid: Decimal
    booked: datetime
    active: bool
    note: str


class Orders(BaseModel):
    """A body of JSON."""

    records: list[Order]

    def rows(self) -> Sequence[tuple[Any, ...]]:
        """Values in the order of ``COLUMNS``."""
        return [tuple(vars(order).values()) for order in self.records]
