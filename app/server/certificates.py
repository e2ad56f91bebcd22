"""The TLS certificate of a serving process, read from files, and reloaded when they change."""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path
from typing import Final

from app.core.errors import Unavailable

logger = logging.getLogger(__name__)
_Stamp = tuple[tuple[int, int, int], ...]


class Certificate:
    """The certificate chain in the PEM file ``chain`` and its private ``key``, which must have no passphrase."""

    def __init__(self, chain: Path, key: Path) -> None:
        self._chain: Final = chain
        self._key: Final = key
        self._context: ssl.SSLContext | None = None
        self._stamp: _Stamp = ()

    def context(self) -> ssl.SSLContext:
        """Return the server's SSL context, loaded once; TLS 1.2 and newer.

        Raise ``Unavailable`` for files that are not a certificate and its key.
        """
        if self._context is None:
            self._stamp = self._seen()
            self._context = self._load(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH))
        return self._context

    def renew(self) -> None:
        """Read the files again if they changed. New connections use the new certificate, open ones keep the old one.

        Files that do not belong together (one is written before the other) are logged, and the old ones stay in use.
        """
        stamp = self._seen()
        if self._context is None or stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            # Into another context first: a key that does not match would break the current one.
            self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
            self._load(self._context)
        except Unavailable as error:
            logger.warning("the certificate is not replaced: %s", error)
        else:
            logger.info("the certificate in %s is used from now on", self._chain)

    def _load(self, context: ssl.SSLContext) -> ssl.SSLContext:
        try:
            context.load_cert_chain(self._chain, self._key, password=_no_passphrase)
        except (OSError, ValueError) as error:  # SSLError is an OSError
            reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
            message = (
                f"{self._chain} and {self._key} are no certificate and its private key without a passphrase: {reason}; "
                "set KEYFOLD_TLS_CERT and KEYFOLD_TLS_KEY"
            )
            raise Unavailable(message) from error
        return context

    def _seen(self) -> _Stamp:
        """Return a stamp that changes with the files; empty if one of them is missing."""
        try:
            statuses = [os.stat(path) for path in (self._chain, self._key)]
        except OSError:
            return ()
        return tuple((status.st_mtime_ns, status.st_size, status.st_ino) for status in statuses)


def _no_passphrase() -> str:
    """Return no passphrase. Without this OpenSSL would prompt at the terminal, and wait."""
    raise ValueError("the key has a passphrase")
