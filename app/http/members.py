"""Members of a request's scope: what the parts that answer it pass to each other and to the audit log."""

from __future__ import annotations

from typing import Final

OPERATION: Final = "keyfold.operation"  # names the operation where no route does
REFUSAL: Final = "keyfold.refusal"  # the error that was answered
