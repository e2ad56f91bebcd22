"""What is looked up now and then, by one thread, and waited for only a moment."""

from __future__ import annotations

import asyncio
import threading

from app.services.shared.polled import Refreshed
from tests.services.clocks import Seconds


def test_an_answer_is_good_for_its_time_and_looked_up_once_for_all_who_ask() -> None:
    clock, looks = Seconds(), [0]

    def look() -> int:
        looks[0] += 1
        return looks[0]

    async def ask() -> list[int | None]:
        refreshed = Refreshed(look, 5.0, 30.0, clock)
        first = await asyncio.gather(*(refreshed.now() for _ in range(10)))
        clock.time += 4.9
        second = await refreshed.now()
        clock.time += 0.2
        return [*first, second, await refreshed.now()]

    assert asyncio.run(ask()) == [1] * 10 + [1, 2]


def test_one_that_hangs_is_waited_for_a_moment_and_never_begun_twice() -> None:
    clock, hang, begun = Seconds(), threading.Event(), [0]

    def look() -> str:
        begun[0] += 1
        hang.wait()
        return "late"

    async def ask() -> list[str | None]:
        refreshed = Refreshed(look, 5.0, 0.01, clock)
        early = [await refreshed.now(), await refreshed.now()]
        hang.set()
        while (late := await refreshed.now()) is None:
            await asyncio.sleep(0.001)
        return [*early, late]

    assert asyncio.run(ask()) == [None, None, "late"]
    assert begun == [1]


def test_a_look_that_fails_is_no_answer_and_is_tried_again() -> None:
    tries = [0]

    def look() -> str:
        tries[0] += 1
        if tries[0] == 1:
            raise OSError("gone")
        return "back"

    async def ask() -> list[str | None]:
        refreshed = Refreshed(look, 5.0, 30.0)
        return [await refreshed.now(), await refreshed.now()]

    assert asyncio.run(ask()) == [None, "back"]
