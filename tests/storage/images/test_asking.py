"""Images that cannot be made are asked for again, ever less often; those that nobody needs any more are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.files.layout import Warehouse
from app.storage.images.asking import Asking
from app.storage.images.builder import Builder
from app.storage.images.requests import SUFFIX, ImageRequest, request_of
from app.storage.images.room import Room
from app.telemetry.metrics import Metrics
from tests.storage.images.imaged import PLAN, made

DAY = 86_400.0


def test_an_image_that_is_refused_again_and_again_is_requested_ever_less_often(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.storage.images.asking._LOOK_SECONDS", 0.005)
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


def test_what_is_withdrawn_is_not_made_and_may_be_asked_for_again(warehouse: Warehouse, tmp_path: Path) -> None:
    folder, metrics = tmp_path / "images", Metrics()
    asking = Asking(folder, warehouse, 10**9, metrics)
    asking.builds = False
    old, new = (
        request_of("t1", run.id, run.files[0], PLAN.schema, PLAN)
        for run in (made(warehouse, 3, run_id=name) for name in ("old", "new"))
    )
    for request in (old, new):
        asking.ask(request.name, lambda request=request: request)
    builder = Builder(folder, warehouse, 10**9)
    builder._waiting.extend(builder._requests())  # it knows of both before one is withdrawn
    asking.withdraw("t2", {"new"})
    asking.withdraw("t1", {"old"})
    assert builder.work()
    assert not builder.work()
    assert asking.settled(30)
    assert [request.name.path(folder).exists() for request in (old, new)] == [False, True]
    asking.ask(old.name, lambda: old)
    assert old.name.request_path(folder).exists(), "it was not refused"
    old.name.request_path(folder).unlink()
    asking.close()


def test_what_another_process_withdraws_is_not_refused_at_once(warehouse: Warehouse, tmp_path: Path) -> None:
    """Processes see a compaction at different times; each withdraws what it has asked for."""
    folder = tmp_path / "images"
    run = made(warehouse, 3)
    request = request_of("t1", run.id, run.files[0], PLAN.schema, PLAN)
    askings = [Asking(folder, warehouse, 10**9, Metrics()) for _ in range(2)]
    for asking in askings:
        asking.builds = False
        asking.ask(request.name, lambda: request)
    for asking in askings:
        asking._look()
        asking.withdraw("t1", {run.id})
    for asking in askings:
        asking.ask(request.name, lambda: request)
        assert request.name.request_path(folder).exists()
        request.name.request_path(folder).unlink()
        asking.close()


def test_images_are_not_listed_while_there_is_room_enough(tmp_path: Path) -> None:
    def image(name: str) -> Path:
        path = tmp_path / "t" / "r" / f"{name}{SUFFIX}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(100))
        os.utime(path, (0, 0))
        return path

    room = Room(tmp_path, 250)
    assert room.fits(100)
    room.take(100)
    images = [image(name) for name in "abc"]  # of two of which the room was not told
    assert room.fits(150)
    assert [image.exists() for image in images] == [True, True, True], "nobody has looked"
    assert not room.fits(251)
    assert [image.exists() for image in images] == [True, True, True], "none leaves in vain"
    assert room.fits(150)
    assert sum(image.exists() for image in images) == 1
