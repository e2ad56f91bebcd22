"""Which tests ``make quick`` leaves out for what they were seen to take: ``tests/slow.txt``, written by
``python -m tests.slow`` from a run of all of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import mean
from xml.etree import ElementTree

MOST_SECONDS = 0.06
SLOW = Path(__file__).with_name("slow.txt")
ALL = "KEYFOLD_ALL_QUICK"  # in the environment: nothing is left out for what it took
_ROOT = Path(__file__).parents[1]


def slow_functions() -> frozenset[str]:
    """The tests that took more than ``MOST_SECONDS`` when they were measured, as ``folder/file.py::function``; none
    where somebody measures.
    """
    return frozenset() if os.environ.get(ALL) else frozenset(SLOW.read_text().split())


def seen(report: Path) -> list[str]:
    """The functions of a JUnit report whose tests took more than ``MOST_SECONDS`` each, on average."""
    took: dict[str, list[float]] = defaultdict(list)
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314  # our own
        module, name = case.get("classname", ""), case.get("name", "")
        function = name.partition("[")[0]
        took[f"{module.replace('.', '/')}.py::{function}"].append(float(case.get("time", "0")))
    return sorted(function for function, seconds in took.items() if mean(seconds) > MOST_SECONDS)


def main() -> int:
    """Run what ``make quick`` could run, and write down what takes long there."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        asked = ["make", "quick", f"QUICK_OPTIONS=--junitxml={report}"]
        status = subprocess.run(asked, cwd=_ROOT, env=os.environ | {ALL: "1"}, check=False).returncode
        SLOW.write_text("".join(f"{function}\n" for function in seen(report)))
    return status


if __name__ == "__main__":
    sys.exit(main())
