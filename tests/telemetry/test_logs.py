"""Lines of the log: whatever a message holds, one line, and the ids of what it is about."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

HOSTILE = 'first\nsecond\r\x1b[31m\u2028"quoted"\x00'


def logged(log_format: str, code: str) -> list[str]:
    """What a process of its own writes to standard error: the log of this one belongs to the tests."""
    program = f"""
import logging
from app.telemetry.logs import LogFormat, about, log_to_stderr
log_to_stderr("debug", LogFormat("{log_format}"))
logger = logging.getLogger("app.here")
{textwrap.dedent(code)}
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stderr.rstrip("\n").split("\n")


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_message_is_one_line_whatever_it_holds(log_format: str) -> None:
    lines = logged(log_format, f"logger.info('%s', {HOSTILE!r})\nlogger.info('next')")
    assert len(lines) == 2
    assert lines[0].isprintable()


def test_text_has_time_level_logger_message_and_ids() -> None:
    [line] = logged("text", "with about(merge='m1', table='t1'): logger.warning('waits %d s', 3)")
    assert line.endswith(" WARNING app.here: waits 3 s merge=m1 table=t1")
    assert line[10] == "T"


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        ("OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))", "a disk is full: make room on it (docs/runbook.md,"),
        ("Unavailable('the catalog does not answer (its disk is full)')", "a disk is full: make room on it"),
        ("Unavailable('the catalog does not answer')", "the catalog does not answer"),
    ],
)
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_what_an_operator_can_mend_is_one_line_and_no_traceback(log_format: str, error: str, reported: str) -> None:
    code = f"""
    import errno, os
    from app.core.errors import Unavailable
    try:
        try:
            raise {error}
        except Exception as error:
            raise Unavailable("the catalog does not answer") from error
    except Unavailable:
        logger.warning("merge %s is 100%% late", "m1", exc_info=True)
    """
    [line] = logged(log_format, code)
    assert f"merge m1 is 100% late: {reported}" in line
    assert "Traceback" not in line
    assert "exc_info" not in line


def test_json_has_ids_and_what_is_reported_as_members_and_an_error_in_one_of_them() -> None:
    code = """
    with about(merge="m1"), about(table="t1"):
        try:
            1 / 0
        except ZeroDivisionError:
            logger.exception("it failed", extra={"outcome": "failed"})
    logger.info("after")
    """
    failed, after = map(json.loads, logged("json", code))
    assert {name: failed[name] for name in ("level", "logger", "message", "merge", "table", "outcome")} == {
        "level": "ERROR",
        "logger": "app.here",
        "message": "it failed",
        "merge": "m1",
        "table": "t1",
        "outcome": "failed",
    }
    assert "ZeroDivisionError" in failed["exc_info"]
    assert failed["time"].endswith("+00:00")
    assert set(after) == {"time", "level", "logger", "message"}
