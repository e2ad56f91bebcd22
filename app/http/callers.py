"""Callers: the grants of credentials, and their rate limits (docs/decisions/0025)."""

from __future__ import annotations

import math
from typing import Final

import anyio
from anyio.to_thread import run_sync
from starlette.types import Scope

from app.core.access import Grant
from app.core.errors import FaultCode, TooMany, Unauthorized, Violation
from app.http.iceberg_clients import ICEBERG_TOKENS
from app.services.access.token_gate import TokenGate
from app.services.shared.rates import Rate, network_of

# With credentials in the body: a request needs no token there, and the route checks the credentials.
CREDENTIAL_PATHS: Final = frozenset({"/auth/authenticate", "/auth/refreshToken", "/auth/token", ICEBERG_TOKENS})


async def granted(gate: TokenGate, authorization: str | None, turns: anyio.CapacityLimiter | None = None) -> Grant:
    """Return the grant of ``authorization``. If it is not cached, read it from the catalog in a thread of ``turns``.

    Raise ``Unauthorized``, or ``Unavailable`` if the catalog does not answer.
    """
    recalled = gate.recall(authorization)
    if recalled is not None:
        return recalled
    return await run_sync(gate.check, authorization, limiter=gate.turns_of(authorization) or turns)


def address_of(scope: Scope) -> str | None:
    """Return the address of the client; None over a Unix socket."""
    address: str | None = (scope.get("client") or (None,))[0]
    return address


def count_failure(failures: Rate, address: str | None, error: Unauthorized) -> None:
    """Count a failure. Raise ``TooMany``.

    A valid token is still accepted: a failing client does not lock out others at its address, and 256 bits cannot be
    guessed.
    """
    wait = failures.spend(network_of(address))
    if wait:
        message = f"too many requests without a valid token came from {address}; the last one: {error.message}"
        fix = f"send a valid token, or wait for {math.ceil(wait)} seconds"
        fault = Violation("", FaultCode.TOO_MANY_FAILURES, message, fix)
        raise TooMany(message, violations=[fault], retry_seconds=wait) from error


def count_request(requests: Rate, grant: Grant) -> None:
    """Count a request. Raise ``TooMany``."""
    wait = requests.spend(grant.name)
    if wait:
        message = f"the token {grant.name!r} was used more often than KEYFOLD_REQUESTS_PER_MINUTE allows"
        fault = Violation("", FaultCode.TOO_MANY_REQUESTS, message, f"wait for {math.ceil(wait)} seconds")
        raise TooMany(message, violations=[fault], retry_seconds=wait)
