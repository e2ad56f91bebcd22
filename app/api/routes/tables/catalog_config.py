"""The settings of the catalog, which Paimon's clients request first."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from app.api.document.payloads import CatalogConfig
from app.api.middleware.routing import Router
from app.api.shared.deps import SettingsDep
from app.api.shared.paimon_clients import CONFIG_OVERRIDES
from app.api.shared.problems import PROBLEM_RESPONSES

router = Router(tags=["catalog"], responses=PROBLEM_RESPONSES)


@router.get("/v1/config", operation_id="getConfig")
async def get_config(
    settings: SettingsDep,
    warehouse: Annotated[  # noqa: ARG001  # Paimon's clients send it
        str | None, Query(description="Paimon's; there is one warehouse, so it says nothing.")
    ] = None,
) -> CatalogConfig:
    """Return the settings of Paimon's REST clients."""
    return CatalogConfig(defaults={}, overrides=CONFIG_OVERRIDES, idempotency_key_lifetime=settings.keys_known)
