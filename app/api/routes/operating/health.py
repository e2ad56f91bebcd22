"""Liveness and readiness: whether the process serves, and whether catalog and warehouse answer."""

from __future__ import annotations

from fastapi import Response

from app.api.document.payloads import Health, Readiness
from app.api.middleware.routing import Router
from app.api.shared.deps import PartsDep

router = Router(tags=["health"])


@router.get("/healthz", operation_id="getHealth")
async def get_health() -> Health:
    """Answer 200: the process serves. The check needs no thread, so that many long requests do not fail it."""
    return Health(status="ok")


@router.get("/readyz", operation_id="getReadiness", responses={503: {"model": Readiness, "description": "Not ready"}})
async def get_readiness(parts: PartsDep, response: Response) -> Readiness:
    """Answer 200 once the catalog answers and is migrated and a file can be written to the warehouse; 503 until then.

    While only Spark is missing it is 200 with the reason: uploads and lookups work, and merges wait. The check runs
    every few seconds at most.
    """
    condition = await parts.condition.now()
    spark = None if parts.spark_ready() else "it does not answer"
    faults = {"catalog": condition.catalog, "warehouse": condition.warehouse, "spark": spark}
    reasons = {part: reason for part, reason in faults.items() if reason is not None}
    serves = not reasons.keys() - {"spark"}
    response.status_code = 200 if serves else 503
    if not serves:
        response.headers["Retry-After"] = "1"
    return Readiness(
        status="ok" if serves else "unavailable",
        **{part: reason is None for part, reason in faults.items()},
        reasons=reasons,
    )
