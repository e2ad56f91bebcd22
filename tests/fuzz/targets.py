"""Everything that is fuzzed, by name; each has a folder of inputs in ``corpus``."""

from __future__ import annotations

from collections.abc import Mapping

from tests.fuzz.bodies import BODIES
from tests.fuzz.files import FILES
from tests.fuzz.requests import REQUESTS
from tests.fuzz.target import Target
from tests.fuzz.texts import TEXTS

TARGETS: Mapping[str, Target] = {**BODIES, **TEXTS, **FILES, **REQUESTS}
