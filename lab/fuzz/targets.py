"""Everything that is fuzzed, by name; each has a folder of inputs in ``corpus``."""

from __future__ import annotations

from collections.abc import Mapping

from lab.fuzz.bodies import BODIES
from lab.fuzz.files import FILES
from lab.fuzz.requests import REQUESTS
from lab.fuzz.target import Target
from lab.fuzz.texts import TEXTS

TARGETS: Mapping[str, Target] = {**BODIES, **TEXTS, **FILES, **REQUESTS}
