"""Whether the process serves, and whether what it needs answers."""

from __future__ import annotations

from fastapi import APIRouter, Response

from app.api.deps import PartsDep
from app.api.payloads import Health, Readiness
from app.services.readiness import catalog_ready

router = APIRouter(tags=["health"])


@router.get("/healthz", operation_id="getHealth")
async def get_health() -> Health:
    """Always 200: the process serves. It waits for no thread, so that many long requests do not end it."""
    return Health(status="ok")


@router.get("/readyz", operation_id="getReadiness", responses={503: {"model": Readiness, "description": "Not ready"}})
def get_readiness(parts: PartsDep, response: Response) -> Readiness:
    """200 once the catalog answers and is migrated, and Spark answers if this service merges; 503 until then."""
    catalog = catalog_ready(parts.database)
    spark = parts.spark_ready()
    ready = catalog and spark
    response.status_code = 200 if ready else 503
    return Readiness(status="ok" if ready else "unavailable", catalog=catalog, spark=spark)
