"""Digests of bodies and answers (RFC 9530): ``Content-Digest`` and ``Want-Content-Digest``."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

from http_sfv.dictionary import Dictionary
from starlette.datastructures import Headers

from app.core.errors import FaultCode, Invalid, Violation

CONTENT_DIGEST: Final = "content-digest"
WANT_CONTENT_DIGEST: Final = "want-content-digest"
_EXAMPLES: Final = {CONTENT_DIGEST: "sha-256=:<base64>:", WANT_CONTENT_DIGEST: "sha-256=1"}
# The algorithms that the RFC calls active; any other may be ignored.
_ALGORITHMS: Final[Mapping[str, Callable[[], Any]]] = {"sha-256": hashlib.sha256, "sha-512": hashlib.sha512}


class ContentDigest:
    """The digest that a sender declares, compared with the body as it arrives."""

    def __init__(self, declared: Mapping[str, bytes]) -> None:
        self._declared = declared
        self._hashes = {name: _ALGORITHMS[name]() for name in declared}

    @classmethod
    def from_headers(cls, headers: Headers) -> Self | None:
        """Return the declared digest; None if it has no known algorithm. Raise ``Invalid``."""
        lines = headers.getlist(CONTENT_DIGEST)
        declared = _members(CONTENT_DIGEST, ",".join(lines)) if lines else {}
        if any(not isinstance(value, bytes) for value in declared.values()):
            raise _bad_header(CONTENT_DIGEST)
        return cls(declared) if declared else None

    def add(self, part: bytes) -> None:
        """Take the next part of the body."""
        for algorithm in self._hashes.values():
            algorithm.update(part)

    def check(self) -> None:
        """Raise ``Invalid`` if the body has another digest."""
        for name, declared in self._declared.items():
            computed = self._hashes[name].digest()
            if computed != declared:
                message = f"the body has the {name} {written(computed)}, its Content-Digest says {written(declared)}"
                fix = "send the body again: it was altered or cut, or it was compressed after its digest was made"
                raise Invalid(message, violations=[Violation("", FaultCode.WRONG_DIGEST, message, fix)])


def wanted_digest(header: str) -> str | None:
    """Return the known algorithm that a caller prefers. Raise ``Invalid``."""
    weights = _members(WANT_CONTENT_DIGEST, header)
    if any(type(weight) is not int for weight in weights.values()):
        raise _bad_header(WANT_CONTENT_DIGEST)
    return max((name for name in weights if weights[name]), key=weights.__getitem__, default=None)


def new_digest(algorithm: str) -> Any:
    """Return a hash, as ``hashlib`` has it, of one of the known algorithms."""
    return _ALGORITHMS[algorithm]()


def digest_field(algorithm: str, digest: bytes) -> str:
    """Return the value of ``Content-Digest``."""
    return f"{algorithm}={written(digest)}"


def written(digest: bytes) -> str:
    """Return bytes as a structured field (RFC 8941)."""
    return f":{base64.b64encode(digest).decode()}:"


def _members(name: str, header: str) -> dict[str, Any]:
    """Return the digests of a header, by known algorithms."""
    members = Dictionary()
    try:
        members.parse(header.encode("latin-1"))
    except ValueError as error:
        raise _bad_header(name) from error
    return {algorithm: getattr(item, "value", None) for algorithm, item in members.items() if algorithm in _ALGORITHMS}


def _bad_header(name: str) -> Invalid:
    message = f"the header {name.title()} does not follow RFC 9530"
    fix = f"write {name.title()}: {_EXAMPLES[name]}"
    return Invalid(message, violations=[Violation("", FaultCode.BAD_HEADER, message, fix)])
