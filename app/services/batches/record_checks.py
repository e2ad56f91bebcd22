"""What decides of records beside what they say themselves: the rows that are there (``Check``)."""

from __future__ import annotations

from app.core.plan.merging.merge_plan import MergePlan
from app.core.plan.records.record_decoder import Check, DecodedRecords, no_check
from app.services.batches.first_records import check_of_first_records
from app.services.batches.late_refusals import check_of_late_records
from app.services.rows.known_rows import KnownRows

_CHECKS = (check_of_first_records, check_of_late_records)


def check_of_records(plan: MergePlan, known: KnownRows) -> Check:
    """All that the table's rows refuse of the records of one body."""
    checks = [check for made in _CHECKS if (check := made(plan, known)) is not no_check]

    def check_all(records: DecodedRecords) -> None:
        for check in checks:
            check(records)

    return check_all if checks else no_check
