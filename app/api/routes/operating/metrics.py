"""``/metrics``, in Prometheus's format (docs/decisions/0027)."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

from fastapi import Header, Response

from app.api.middleware.auth import METRICS_PATH
from app.api.middleware.routing import Router
from app.api.shared.deps import PartsDep
from app.telemetry.entries import Measured
from app.telemetry.exposition import Reading, exposed

router = Router()
_NOT_IN_TIME: Final = (Reading(Measured.CATALOG_UP, (), 0.0),)


# Not in the OpenAPI document: it is no route for clients, and its answer is no JSON.
@router.get(METRICS_PATH, operation_id="getMetrics", response_class=Response, include_in_schema=False)
async def get_metrics(parts: PartsDep, accept: Annotated[str, Header()] = "") -> Response:
    """Return the metrics of all processes of this service, from any of them. No request waits for another's thread."""
    readings, condition = await asyncio.gather(parts.scrapes.now(), parts.condition.now())
    readings_of_process = (parts.build, Reading(Measured.WAREHOUSE_WRITABLE, (), float(condition.warehouse is None)))
    text, media_type = exposed(
        parts.database.metrics, [*readings_of_process, *(_NOT_IN_TIME if readings is None else readings)], accept
    )
    return Response(text, headers={"Content-Type": media_type})
