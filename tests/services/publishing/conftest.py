"""What is published is read from files."""

from __future__ import annotations

from tests.services.one_catalog import catalog_kind

__all__ = ["catalog_kind"]
