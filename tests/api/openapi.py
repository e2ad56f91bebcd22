"""The OpenAPI document that is served, and the one that is committed: ``make openapi`` writes it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from app.main import create_app
from app.settings import Settings

COMMITTED = Path(__file__).parents[2] / "docs" / "openapi.json"


def served() -> dict[str, Any]:
    """The document as a client reads it."""
    return dict(json.loads(_text()))


@cache
def _text() -> str:
    return json.dumps(create_app(Settings(workers=0)).openapi())


if __name__ == "__main__":
    COMMITTED.write_text(json.dumps(served(), indent=1, ensure_ascii=False) + "\n")
