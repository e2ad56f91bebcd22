"""A service as a client sees it: requests, asked again while that may help, and problems as failures."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote, urlsplit

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_before_delay, wait_exponential_jitter

from app import __version__
from app.cli.client.endings import Exit, Failure, exit_of
from app.cli.client.settings import client_settings
from app.cli.client.shown import tell
from app.core.access import TokenScope
from app.core.errors import Invalid

PATIENCE_SECONDS: Final = 30.0  # that a command asks again for
_TIMEOUT = httpx.Timeout(120.0, connect=10.0)
_MOST_FAULTS = 20  # that are shown of one answer
_ASKED_AGAIN = (409, 429, 503)  # with Retry-After
_BACKOFF = wait_exponential_jitter(multiplier=0.2, max=5.0)
Told = Mapping[str, Any]


class Refused(Failure):
    """A problem that the service answered; ``retry_seconds`` if it may pass."""

    def __init__(self, problem: Told, status: int, retry_seconds: float | None = None) -> None:
        super().__init__(exit_of(status), *_lines(problem, status), told=problem)
        self.problem = problem
        self.retry_seconds = retry_seconds


class Unreached(Failure):
    """No one answers, or the answer broke off. ``sent``: the service may have had the request."""

    def __init__(self, url: str, error: httpx.TransportError) -> None:
        self.sent = not isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))
        what = "the answer broke off" if self.sent else "nobody answers"
        fix = "is it running (keyfold serve), and is --url or KEYFOLD_URL right?"
        super().__init__(Exit.UNREACHABLE, f"{url}: {what} ({error or type(error).__name__}); {fix}")


class Service:
    """The service at ``url``. Every failure is a ``Failure``."""

    def __init__(self, url: str, token: str | None) -> None:
        headers = {"User-Agent": f"keyfold/{__version__}"}
        if token:
            if not token.isascii() or not token.isprintable():
                raise Failure(Exit.USAGE, "the token has characters that no token has: KEYFOLD_TOKEN, --token-file")
            headers["Authorization"] = f"Bearer {token}"
        self.url = url
        self.patience_seconds = PATIENCE_SECONDS
        # Proxies of the environment are for what is not on this machine.
        self.http = httpx.Client(base_url=url, headers=headers, timeout=_TIMEOUT, trust_env=not _is_here(url))
        self._answered = False

    @classmethod
    def at(cls, url: str | None, token_file: Path | None) -> Self:
        """That of the settings, or of the command line."""
        settings = client_settings(url, token_file)
        return cls(settings.url, settings.shown_token)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.http.close()

    def ask(self, method: str, path: str, *, again: bool | None = None, **request: Any) -> httpx.Response:
        """The answer of a request. ``again``: it may be repeated though the service may have had it; what only reads
        may be.
        """
        whole = partial(self._once, method, path, **request)
        return self._patiently(whole, again=method == "GET" if again is None else again)

    def json(self, method: str, path: str, **request: Any) -> Any:
        """What the answer holds."""
        return self.read(self.ask(method, path, **request))

    def read(self, answer: httpx.Response) -> Any:
        """The JSON of an answer. Raises ``Failure`` for one that has none: something else answers at the URL."""
        try:
            return answer.json()
        except ValueError as error:
            message = f"{self.url} answers, but not as Keyfold does: is --url or KEYFOLD_URL right?"
            raise Failure(Exit.REFUSED, message) from error

    def listed(self, path: str, member: str) -> Iterator[Any]:
        """All items of a list, page after page."""
        params: dict[str, str] = {"maxResults": "1000"}
        while True:
            page = self.json("GET", path, params=params)
            yield from page[member]
            if not page["nextPageToken"]:
                return
            params["pageToken"] = page["nextPageToken"]

    @contextmanager
    def streamed(self, path: str, **request: Any) -> Iterator[httpx.Response]:
        """An answer whose body has not been read yet; asked again until it begins."""

        def begun() -> httpx.Response:
            sent = self.http.send(self.http.build_request("GET", path, **request), stream=True)
            if sent.is_success:
                return sent
            try:
                sent.read()
            finally:
                sent.close()
            return self._checked(sent)

        response = self._patiently(partial(self._told, begun), again=True)
        try:
            yield response
        except httpx.TransportError as error:
            raise Unreached(self.url, error) from error
        finally:
            response.close()

    def _patiently(self, once: Any, *, again: bool) -> httpx.Response:
        retrying = Retrying(
            stop=stop_before_delay(self.patience_seconds),
            wait=_pause,
            retry=retry_if_exception(partial(self._may_pass, again=again)),
            before_sleep=_tell_of_pause,
            reraise=True,
        )
        answer: httpx.Response = retrying(once)
        self._answered = True
        return answer

    def _may_pass(self, error: BaseException, *, again: bool) -> bool:
        """Whether asking again may help and cannot harm. A service that never answered is not waited for."""
        if isinstance(error, Refused):
            return error.retry_seconds is not None
        return isinstance(error, Unreached) and self._answered and (again or not error.sent)

    def _once(self, method: str, path: str, **request: Any) -> httpx.Response:
        return self._told(lambda: self._checked(self.http.request(method, path, **request)))

    def _told(self, send: Any) -> httpx.Response:
        try:
            answer: httpx.Response = send()
        except httpx.TransportError as error:
            raise Unreached(self.url, error) from error
        return answer

    def _checked(self, response: httpx.Response) -> httpx.Response:
        if response.is_success or response.status_code == 304:
            return response
        raise Refused(_problem(response), response.status_code, _retry_seconds(response))


def _pause(state: RetryCallState) -> float:
    """What the service asked for, else longer each time."""
    error = None if state.outcome is None else state.outcome.exception()
    asked = error.retry_seconds if isinstance(error, Refused) else None
    return _BACKOFF(state) if asked is None else asked


def _tell_of_pause(state: RetryCallState) -> None:
    """No one waits without knowing what for."""
    error = None if state.outcome is None else state.outcome.exception()
    if isinstance(error, Failure):
        tell(f"{error.lines[0]}; asking again in {state.upcoming_sleep:.0f} s")


def _retry_seconds(response: httpx.Response) -> float | None:
    text = response.headers.get("Retry-After", "")
    return float(text) if response.status_code in _ASKED_AGAIN and text.isdigit() else None


def _problem(response: httpx.Response) -> Told:
    """The problem of an answer; of what answers in Keyfold's place, its status."""
    try:
        told = response.json()
    except (ValueError, UnicodeDecodeError):
        told = None
    if isinstance(told, dict):
        return told
    return {"status": response.status_code, "detail": f"the answer is {response.status_code} {response.reason_phrase}"}


def _lines(problem: Told, status: int) -> list[str]:
    """A problem in words: what is wrong, then each fault with its place and fix."""
    faults = problem.get("errors") or []
    message = str(problem.get("detail") or problem.get("message") or f"the answer has status {status}")
    shown = [line for fault in faults[:_MOST_FAULTS] for line in fault_lines(fault, fault.get("pointer") or "")]
    more = int(problem.get("errorCount") or len(faults)) - _MOST_FAULTS
    return [message, *shown, *([f"… and {more} more"] if more > 0 else [])]


def fault_lines(fault: Told, place: str) -> list[str]:
    """One fault, found at ``place``, and its fix."""
    fix = fault.get("fix")
    return [f"{place}: {fault.get('detail')}".removeprefix(": "), *([f"  → {fix}"] if fix else [])]


def _is_here(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


CATALOG: Final = "/v1/catalog/databases"


def named(table: str) -> tuple[str, str]:
    """The database and the table that ``db.table`` says; names that are not plain stand in backticks.

    Raises ``Failure`` for a text that is no such name.
    """
    try:
        [found] = TokenScope.parse([table]).tables
    except (Invalid, ValueError) as error:
        why = "a table's name is DATABASE.TABLE; what has more than letters, digits, _ and - stands in backticks"
        raise Failure(Exit.USAGE, f"{table[:100]!r}: {why}") from error
    return found


def path_of(table: str, rest: str = "") -> str:
    """The path of ``db.table`` and what is below it."""
    database, name = named(table)
    return f"{CATALOG}/{quote(database, safe='')}/tables/{quote(name, safe='')}{rest}"
