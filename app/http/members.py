"""Members of a request's scope, through which middleware, routes and audit log pass values to each other."""

from __future__ import annotations

from typing import Final

OPERATION: Final = "keyfold.operation"  # names the operation where no route does
REFUSAL: Final = "keyfold.refusal"  # the error that was answered
