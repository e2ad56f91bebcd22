"""Images that cannot be made are asked for again, ever less often."""

from __future__ import annotations

from pathlib import Path

from app.storage.images.asking import Asking
from app.storage.images.requests import ImageRequest, request_of
from app.storage.layout import Warehouse
from app.telemetry.metrics import Metrics
from tests.storage.imaged import PLAN, made

DAY = 86_400.0


def test_an_image_that_is_refused_again_and_again_is_asked_for_ever_less_often(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    now = [0.0]
    asking = Asking(tmp_path / "images", warehouse, 10**9, Metrics(), clock=lambda: now[0])
    asking.builds = False
    run = made(warehouse, 3)
    request = request_of("t1", run.id, run.files[0], PLAN.schema, PLAN)
    asked_at = []
    while now[0] < DAY / 12:
        if asks(asking, request, tmp_path / "images"):
            asked_at.append(now[0])
        now[0] += 30
    assert asked_at == [0, 60, 180, 420, 900, 1860, 3660, 5460]
    asking.close()


def asks(asking: Asking, request: ImageRequest, folder: Path) -> bool:
    """Whether the image is asked for now; it is then refused, as a builder without room does."""
    asking.ask(request.name, lambda: request)
    path = request.name.request_path(folder)
    if not path.exists():
        return False
    path.unlink()
    assert asking.settled(30)
    return True
