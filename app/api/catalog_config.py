"""What Paimon's clients ask first: the settings of the catalog."""

from __future__ import annotations

from fastapi import APIRouter

from app.api.payloads import CatalogConfig
from app.api.problems import PROBLEM_RESPONSES

PREFIX = "catalog"  # clients put it into every path: /v1/catalog/…
router = APIRouter(tags=["catalog"], responses=PROBLEM_RESPONSES)


@router.get("/v1/config", operation_id="getConfig")
def get_config() -> CatalogConfig:
    """The settings of Paimon's REST clients. Their parameter ``warehouse`` is not needed and ignored."""
    return CatalogConfig(defaults={}, overrides={"prefix": PREFIX})
