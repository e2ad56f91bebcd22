"""Which options may stand together, and with which columns: one function for each rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from app.core.errors import Violation
from app.core.plan.checks.event_checks import EVENT_CHECKS
from app.core.plan.checks.function_checks import FUNCTION_CHECKS
from app.core.plan.checks.mode_checks import MODE_CHECKS
from app.core.plan.checks.order_checks import ORDER_CHECKS
from app.core.plan.checks.publication_checks import PUBLICATION_CHECKS
from app.core.plan.columns.column_defaults import DEFAULT_CHECKS
from app.core.plan.columns.late_horizon import HORIZON_CHECKS
from app.core.table.options.parsed import TableOptions
from app.core.table.schema import TableSchema

# Most faults of one schema: one option can conflict with every column.
MOST_FAULTS = 1000
Check = Callable[[TableSchema, TableOptions], Iterator[Violation]]

CHECKS: tuple[Check, ...] = (
    *FUNCTION_CHECKS,
    *ORDER_CHECKS,
    *MODE_CHECKS,
    *DEFAULT_CHECKS,
    *HORIZON_CHECKS,
    *PUBLICATION_CHECKS,
    *EVENT_CHECKS,
)


def check_options(schema: TableSchema) -> list[Violation]:
    """Return the faults of the options as a whole, the first thousand of them; what could not be read at all is not
    looked at again.
    """
    return [*islice((fault for check in CHECKS for fault in check(schema, schema.parsed)), MOST_FAULTS)]
