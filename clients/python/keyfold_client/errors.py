"""The client's errors, one class for each kind. Every message says what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Final, Self

MOST_FAULTS: Final = 20  # that a message shows


class KeyfoldError(Exception):
    """What every error of this package is."""


class Misuse(KeyfoldError, ValueError):
    """The call cannot be understood; nothing was sent."""


class Unreachable(KeyfoldError):
    """There is no answer of the service, or it broke off. ``error`` is a text where a proxy answers instead.
    ``sent``: the service may have had the request.
    """

    def __init__(self, url: str, error: Exception | str, *, sent: bool) -> None:
        how = "the answer broke off" if sent and isinstance(error, Exception) else "no answer"
        self.what = f"{url}: {how} ({error or type(error).__name__})"
        self.sent = sent
        super().__init__(f"{self.what}; is the service running, and is the URL right?")


class NotKeyfold(KeyfoldError):
    """Something else than Keyfold answers."""

    def __init__(self, url: str) -> None:
        super().__init__(f"{url} answers, but not as Keyfold does: is the URL right?")


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with a request. ``pointer`` is its place in the body, ``row`` the record from 0."""

    code: str
    message: str
    fix: str
    pointer: str = ""
    row: int | None = None
    column: str | None = None
    table: str | None = None

    @classmethod
    def from_answer(cls, answer: Mapping[str, Any]) -> Fault:
        """Return the fault that an answer describes."""
        code, message, fix, pointer = (str(answer.get(name) or "") for name in ("code", "detail", "fix", "pointer"))
        return cls(code, message, fix, pointer, answer.get("row"), answer.get("column"), answer.get("table"))

    def lines(self, place: str) -> list[str]:
        """Return the fault in words, found at ``place``, and its fix."""
        return [f"{place}: {self.message}".removeprefix(": "), *([f"  → {self.fix}"] if self.fix else [])]


class Refused(KeyfoldError):
    """A problem that the service answered. ``code`` is its name, ``faults`` are all that was found, the first hundred
    or so; ``retry_seconds`` is set where it may pass. ``stored`` counts the records of the same call that came before
    and are stored.
    """

    stored = 0

    def __init__(self, problem: Mapping[str, Any], status: int, retry_seconds: float | None = None) -> None:
        self.problem = problem
        self.status = status
        self.retry_seconds = retry_seconds
        self.code = str(problem.get("errorCode") or "")
        self.faults: Sequence[Fault] = [Fault.from_answer(fault) for fault in problem.get("errors") or ()]
        self.message = str(problem.get("detail") or problem.get("message") or f"the answer has status {status}")
        super().__init__("\n".join(self.lines))

    def behind(self, stored: int) -> Self:
        """Return the same of records behind those that are ``stored``: rows are those of the whole call."""
        self.stored = stored
        rows = [fault.row if fault.row is None else fault.row + stored for fault in self.faults]
        self.faults = [replace(fault, row=row) for fault, row in zip(self.faults, rows, strict=True)]
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.problem, self.status, self.retry_seconds)

    @property
    def lines(self) -> list[str]:
        """The problem in words: what is wrong, then each fault with its place and fix."""
        shown = [line for fault in self.faults[:MOST_FAULTS] for line in fault.lines(fault.pointer)]
        return [self.message, *shown, *self.more]

    @property
    def more(self) -> list[str]:
        """A line that counts the faults beyond those that are shown, if there are."""
        more = int(self.problem.get("errorCount") or len(self.faults)) - MOST_FAULTS
        return [f"… and {more} more"] if more > 0 else []


class NotFound(Refused):
    """The database, table, row or snapshot is not there."""


class NotPermitted(Refused):
    """No token, one that is not valid, or one that may not do this."""


class Conflict(Refused):
    """It contradicts what is there, or what is under way."""


class Busy(Refused):
    """The service cannot do it now, and could not during the retries."""


class ServiceFault(Refused):
    """An error inside the service; its log says more, under the request's id."""


_OF_STATUS: Final = {
    HTTPStatus.UNAUTHORIZED: NotPermitted,
    HTTPStatus.FORBIDDEN: NotPermitted,
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.CONFLICT: Conflict,
    HTTPStatus.TOO_MANY_REQUESTS: Busy,
    HTTPStatus.SERVICE_UNAVAILABLE: Busy,
}


def refused(problem: Mapping[str, Any], status: int, retry_seconds: float | None = None) -> Refused:
    """Return the error of an answer with this status."""
    other = ServiceFault if status >= 500 and status != HTTPStatus.NOT_IMPLEMENTED else Refused
    kind: type[Refused] = next((known for of, known in _OF_STATUS.items() if of == status), other)
    return kind(problem, status, retry_seconds)
