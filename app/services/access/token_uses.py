"""When tokens were last used: noted in memory with each request, and written to the catalog once a minute."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Final

from app.catalog.database import CatalogDatabase
from app.core.errors import KeyfoldError
from app.services.shared.background import Repeated

logger = logging.getLogger(__name__)
WRITE_SECONDS: Final = 60.0


class TokenUses(Repeated):
    """The uses of tokens in this process that the catalog does not have yet, written once a minute. ``note`` is a step
    of every request: it takes no lock and no query.
    """

    def __init__(self, database: CatalogDatabase, every_seconds: float = WRITE_SECONDS) -> None:
        super().__init__("token-uses", self.write, lambda: every_seconds)
        self._database = database
        self._times: dict[str, float] = {}

    def close(self, patience_seconds: float | None = None) -> None:
        """Stop the thread, and write the uses that are not stored yet."""
        super().close(patience_seconds)
        self.write()

    def note(self, name: str, at: float) -> None:
        """Note that the token ``name`` was used ``at`` seconds after 1970-01-01 UTC."""
        self._times[name] = at

    def write(self) -> None:
        """Write the uses since the last call. If the catalog does not answer, they are kept for the next call."""
        taken, self._times = self._times, {}
        noted = dict(taken)  # a request may be just about to note itself in it
        if not noted:
            return
        times = {name: datetime.fromtimestamp(at, UTC) for name, at in noted.items()}
        try:
            with self._database.transaction(wakes=False) as repository:
                repository.tokens.note_uses(times)
        except KeyfoldError as error:
            logger.warning("when tokens were last used could not be written, and is retried: %s", error)
            self._times = noted | self._times
