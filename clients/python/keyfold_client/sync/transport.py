"""Requests to a service: retried while that may help and cannot harm, problems as errors."""

from __future__ import annotations

import ipaddress
import logging
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import Any, Final, Self
from urllib.parse import urlsplit

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_before_delay, wait_exponential_jitter

from keyfold_client.errors import Misuse, NotKeyfold, Refused, Unreachable, refused
from keyfold_client.names import check_url

PATIENCE_SECONDS: Final = 30.0  # for which a request is retried
_TIMEOUT: Final = httpx.Timeout(120.0, connect=10.0)
_RETRIED: Final = (409, 429, 503)  # with Retry-After
_OF_PROXIES: Final = (502, 503, 504)  # without a problem: a proxy answers that the service does not
_BACKOFF: Final = wait_exponential_jitter(multiplier=0.2, max=5.0)
_NOT_MODIFIED: Final = 304
logger = logging.getLogger(__name__)
Answering = Callable[[], Any]  # of a response
Paused = Callable[[Exception, float], None]


def log_pause(error: Exception, seconds: float) -> None:
    """Log the error that is retried, and the seconds until then."""
    logger.warning("%s; asking again in %.0f s", str(error).partition("\n")[0], seconds)


class Transport:
    """The service at ``url``. Every error is a ``KeyfoldError``.

    ``patience_seconds``: how long temporary failures are retried. ``paused`` is called before each pause.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        agent: str = "keyfold-client",
        paused: Paused = log_pause,
    ) -> None:
        """Open no connection yet. Raise ``Misuse`` for a malformed URL or token."""
        check_url(url)
        headers = {"User-Agent": agent}
        if token:
            if not token.isascii() or not token.isprintable():
                raise Misuse("the token has characters that no token has")
            headers["Authorization"] = f"Bearer {token}"
        self.url = url
        self.patience_seconds = patience_seconds
        self.paused = paused
        # Proxies of the environment are for what is not on this machine.
        self._settings: dict[str, Any] = {
            "base_url": url,
            "headers": headers,
            "timeout": _TIMEOUT,
            "trust_env": not _is_here(url),
            "verify": _trusted(url),
        }
        self._http = httpx.Client(**self._settings)
        self._streams = self._for_streams()
        self._answered = False

    def apart(self) -> Self:
        """Return a copy with separate connections."""
        other = copy(self)
        other._http = httpx.Client(**self._settings)
        other._streams = other._for_streams()
        return other

    def _for_streams(self) -> httpx.Client:
        """Return the client of streamed answers. A feed keeps its connection, so others must not wait for it."""
        return httpx.Client(**self._settings, limits=httpx.Limits(max_connections=None))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()
        self._streams.close()

    def ask(self, method: str, path: str, *, again: bool | None = None, **request: Any) -> httpx.Response:
        """Return the answer of a request. ``again``: it may be repeated though the service may have had it; what only
        reads may be. Raise ``Refused``, ``Unreachable``.
        """
        once = partial(self._once, method, path, **request)
        return self._patiently(once, again=method == "GET" if again is None else again)

    def json(self, method: str, path: str, **request: Any) -> Any:
        """Return what the answer holds. Raise as ``ask``, and ``NotKeyfold``."""
        return self.read(self.ask(method, path, **request))

    def read(self, answer: httpx.Response) -> Any:
        """Return the JSON of an answer. Raise ``NotKeyfold`` where something else answers at the URL."""
        try:
            return answer.json()
        except ValueError as error:
            raise NotKeyfold(self.url) from error

    def listed(self, path: str, member: str) -> Iterator[Any]:
        """Yield all items of a list, page after page."""
        params: dict[str, str] = {"maxResults": "1000"}
        while True:
            page = self.json("GET", path, params=params)
            for item in page[member]:
                yield item
            if not page["nextPageToken"]:
                return
            params["pageToken"] = page["nextPageToken"]

    @contextmanager
    def streamed(self, path: str, **request: Any) -> Iterator[httpx.Response]:
        """Give an answer whose body has not been read yet; the request is retried until it begins. What breaks off
        while it is read raises ``Unreachable``.
        """
        response = self.begun(path, **request)
        try:
            yield response
        except httpx.TransportError as error:
            raise self.broken(error) from error
        finally:
            response.close()

    def begun(self, path: str, **request: Any) -> httpx.Response:
        """Return the answer of a request whose body has not been read yet: the caller closes it. Raise as ``ask``."""

        def begin() -> httpx.Response:
            sent = self._streams.send(self._streams.build_request("GET", path, **request), stream=True)
            if sent.is_success:
                return sent
            try:
                sent.read()
            finally:
                sent.close()
            return _checked(sent)

        return self._patiently(partial(self._reached, begin), again=True)

    def broken(self, error: httpx.TransportError) -> Unreachable:
        """Return what an error of the connection means."""
        return Unreachable(self.url, error, sent=not isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)))

    def _patiently(self, once: Answering, *, again: bool) -> httpx.Response:
        retrying = Retrying(
            stop=stop_before_delay(self.patience_seconds),
            wait=_pause,
            retry=retry_if_exception(partial(self._may_pass, again=again)),
            before_sleep=self._tell_of_pause,
            reraise=True,
        )
        answer: httpx.Response = retrying(once)
        return answer

    def _may_pass(self, error: BaseException, *, again: bool) -> bool:
        """Return whether asking again may help and cannot harm. A service that never answered is not waited for."""
        if isinstance(error, Refused):
            return error.retry_seconds is not None
        return isinstance(error, Unreachable) and self._answered and (again or not error.sent)

    def _once(self, method: str, path: str, **request: Any) -> httpx.Response:
        def send() -> httpx.Response:
            return _checked(self._http.request(method, path, **request))

        return self._reached(send)

    def _reached(self, send: Answering) -> httpx.Response:
        if self._http.is_closed:
            raise Misuse("the client is closed: call it before it is closed, or make another")
        try:
            answer: httpx.Response = send()
        except httpx.TransportError as error:
            raise self.broken(error) from error
        except Refused:
            self._answered = True
            raise
        self._answered = True
        return answer

    def _tell_of_pause(self, state: RetryCallState) -> None:
        error = None if state.outcome is None else state.outcome.exception()
        if isinstance(error, Exception):
            self.paused(error, state.upcoming_sleep)


def _pause(state: RetryCallState) -> float:
    """Return the pause that the service named, else a longer one each time."""
    error = None if state.outcome is None else state.outcome.exception()
    named = error.retry_seconds if isinstance(error, Refused) else None
    return _BACKOFF(state) if named is None else named


def _checked(response: httpx.Response) -> httpx.Response:
    if response.is_success or response.status_code == _NOT_MODIFIED:
        return response
    problem = _problem(response)
    if problem is None and response.status_code in _OF_PROXIES:
        instead = f"a proxy answers {response.status_code} {response.reason_phrase}"
        raise Unreachable(str(response.url.join("/")), instead, sent=True)
    text = response.headers.get("Retry-After", "")
    seconds = float(text) if response.status_code in _RETRIED and text.isdigit() else None
    detail = f"the answer is {response.status_code} {response.reason_phrase}"
    raise refused(problem or {"detail": detail}, response.status_code, seconds)


def _problem(response: httpx.Response) -> Mapping[str, Any] | None:
    """Return the problem of an answer; None if something else answers in Keyfold's place."""
    try:
        body = response.json()
    except (ValueError, UnicodeDecodeError):
        body = None
    return body if isinstance(body, dict) else None


def _trusted(url: str) -> ssl.SSLContext:
    """Return the certificates that are trusted; none for plain HTTP. Reading them takes longer than most requests."""
    if urlsplit(url).scheme == "http":
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx.create_ssl_context(trust_env=not _is_here(url))


def _is_here(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
