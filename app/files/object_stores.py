"""Object stores: reading ``s3://`` URIs, opening buckets, and the meaning of errors (docs/decisions/0029)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from pyarrow import fs

SCHEME: Final = "s3://"
SPARK_SCHEME: Final = "s3a://"  # what Hadoop calls the same objects; its own ``s3`` is gone
# Characters that mean the same in a key, in a URI and in Hadoop's paths: nothing is ever escaped.
_LOCATION: Final = re.compile(r"s3://[A-Za-z0-9][A-Za-z0-9._-]{1,62}(/[A-Za-z0-9_=-][A-Za-z0-9._=-]*)*/?")
_ATTEMPTS: Final = 3
_SECONDS: Final = {"connect_timeout": 2.0, "request_timeout": 5.0}
_HINTS: Final[Mapping[str, str]] = {
    "s3a://": "write s3://…; Spark is given s3a:// by itself",
    "s3n://": "write s3://…; Spark is given s3a:// by itself",
}


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= 60:
        raise ValueError(text)
    return seconds


def _attempts(text: str) -> int:
    attempts = int(text)
    if not 1 <= attempts <= 10:
        raise ValueError(text)
    return attempts


def _one_of(*words: str) -> Callable[[str], str]:
    def known(text: str) -> str:
        if text not in words:
            raise ValueError(text)
        return text

    return known


def _flag(text: str) -> bool:
    return _one_of("true", "false")(text) == "true"


# What may stand behind the ``?`` of a URI, by the names of pyarrow's S3FileSystem, and how it is read; ``max_attempts``
# is that of its retry strategy. No secret is among them: tables show their paths, and logs their warehouse.
PARAMETERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "region": str,
    "endpoint_override": str,
    "scheme": _one_of("http", "https"),
    "force_virtual_addressing": _flag,
    "tls_ca_file_path": str,
    "role_arn": str,
    "connect_timeout": _seconds,
    "request_timeout": _seconds,
    "max_attempts": _attempts,
}


@dataclass(frozen=True)
class Bucket:
    """The bucket of an ``s3://`` URI; ``location`` is the URI without parameters and without a trailing slash."""

    location: str
    parameters: Mapping[str, Any]

    @property
    def path(self) -> str:
        """Bucket and prefix, in pyarrow's form."""
        return self.location.removeprefix(SCHEME)

    def open(self) -> fs.FileSystem:
        """Return the store, without a request yet; credentials are those of the environment, as AWS's tools find them.

        An object of up to 10 MB is one PUT, and exists when that ends; a larger one exists when its last part is
        confirmed.
        """
        options = _SECONDS | dict(self.parameters)
        retries = fs.AwsStandardS3RetryStrategy(max_attempts=options.pop("max_attempts", _ATTEMPTS))
        return fs.S3FileSystem(allow_delayed_open=True, retry_strategy=retries, **options)


def is_object_store(root: str) -> bool:
    """Return whether a warehouse is the bucket of an object store."""
    return root.startswith(SCHEME)


def read_uri(root: str) -> Bucket:
    """Return the bucket that an ``s3://`` URI names. Raise ``ValueError``, whose text contains no secret part of the
    URI.
    """
    parts = urlsplit(root)
    if "@" in parts.netloc:
        raise ValueError("credentials do not belong into the URI; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    location = root.partition("?")[0].partition("#")[0]
    if parts.fragment or not _LOCATION.fullmatch(location):
        raise ValueError(
            "it is not s3://bucket/prefix of letters, digits, '.', '_', '-', '=' (no segment begins with '.')"
        )
    options: dict[str, Any] = {}
    for name, text in parse_qsl(parts.query, keep_blank_values=True):
        known = PARAMETERS.get(name)
        if known is None:
            raise ValueError(f"it has a parameter that is not known; those that are: {', '.join(sorted(PARAMETERS))}")
        try:
            options[name] = known(text)
        except ValueError:
            raise ValueError(f"its parameter {name} has a value that is not taken") from None
    return Bucket(location.rstrip("/"), options)


def check_root(root: str) -> None:
    """Raise ``ValueError`` for a warehouse that no service could use, with the fix."""
    for scheme, fix in _HINTS.items():
        if root.startswith(scheme):
            raise ValueError(fix)
    if is_object_store(root):
        read_uri(root)


# What the kinds of errors mean that AWS's library gives (``AWS Error <kind> during …``), and which status stands for
# one without a kind. All else is reported by its kind.
_KINDS: Final[Mapping[str, str]] = {
    "NETWORK_CONNECTION": "the object store does not answer",
    "SLOW_DOWN": "the object store has too much to do",
    "SERVICE_UNAVAILABLE": "the object store has too much to do",
    "THROTTLING": "the object store has too much to do",
    "REQUEST_TIMEOUT": "the object store does not answer in time",
    "INTERNAL_FAILURE": "the object store reports an internal error",
    "NO_SUCH_BUCKET": "its bucket is not there",
    "ACCESS_DENIED": "the object store refuses the service",
    "INVALID_ACCESS_KEY_ID": "the object store does not know the service's credentials",
    "SIGNATURE_DOES_NOT_MATCH": "the object store does not know the service's credentials",
    "INVALID_CLIENT_TOKEN_ID": "the object store does not know the service's credentials",
    "EXPIRED_TOKEN": "the service's credentials have expired",
    "REQUEST_TIME_TOO_SKEWED": "this machine's clock is not that of the object store",
    "(HTTP status 403)": "the object store refuses the service",
    "(HTTP status 500)": "the object store reports an internal error",
    "(HTTP status 503)": "the object store has too much to do",
}
_KIND: Final = re.compile(r"AWS Error (\w+)(?: (\(HTTP status \d+\)))?")


def reason_of_store(error: OSError) -> str | None:
    """Return the meaning of an object store's error, in words without names of objects, hosts or keys; None for other
    errors.
    """
    match = _KIND.search(str(error))
    if match is None:
        return None
    kind, status = match.groups()
    return _KINDS.get(kind) or _KINDS.get(status or "") or f"the object store answered {kind} {status or ''}".rstrip()
