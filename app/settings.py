"""All settings of an operator, read once from the environment (``KEYFOLD_*``) or the command line."""

from __future__ import annotations

import ipaddress
import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from app.core.access import ClaimRule, Role, TokenScope
from app.core.errors import Invalid
from app.core.table.options.entries import Consistency
from app.core.table.schema_bounds import CatalogBounds, SchemaBounds
from app.files.object_stores import check_root
from app.telemetry.logs import LogFormat


def _octal(mode: object) -> object:
    return int(mode, 8) if isinstance(mode, str) else mode


# An origin as browsers send it: no path, lower case, and no port that is the default of the scheme.
_ORIGIN = re.compile(r"(?!http:.*:80$|https:.*:443$)https?://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")


class OidcGrant(BaseModel):
    """An entry of ``KEYFOLD_OIDC_GRANTS``: the role and scope of callers with ``value`` in ``claim``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: Role
    on: tuple[str, ...]
    claim: str | None = None
    value: str = ""

    @field_validator("on")
    @classmethod
    def _patterns(cls, on: tuple[str, ...]) -> tuple[str, ...]:
        try:
            TokenScope.parse(on)
        except Invalid as error:
            raise ValueError(error.message) from error
        return on

    @model_validator(mode="after")
    def _value_of_a_claim(self) -> Self:
        if (self.claim is None) is not (not self.value):
            raise ValueError("name claim and value, or leave both out: then every valid token has the role")
        return self

    @property
    def rule(self) -> ClaimRule:
        """Return the rule that tokens are compared with."""
        return ClaimRule(self.role, TokenScope.parse(self.on), self.claim, self.value)


class Settings(BaseSettings):
    """Every ``KEYFOLD_*`` setting, read once. OpenTelemetry and Java variables are read where they are used."""

    model_config = SettingsConfigDict(env_prefix="KEYFOLD_", frozen=True, extra="forbid")

    folder: Path = Field(
        Path("keyfold-data"), alias="KEYFOLD_DATA", description="where the embedded parts keep their files"
    )
    host: str = Field("127.0.0.1", description="address to listen on; anything but loopback needs an API token")
    port: int = Field(8080, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    tls_cert: Path | None = Field(None, description="PEM file of the certificate chain; with it only TLS is spoken")
    tls_key: Path | None = Field(
        None, validate_default=True, description="PEM file of its private key, without a passphrase"
    )
    trusted_proxies: str = Field(
        "",
        description="addresses and networks, with commas, of proxies whose X-Forwarded-For and X-Forwarded-Proto count;"
        " default: none do",
    )
    cors_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="origins (https://app.example), with commas, whose pages may call the service from a browser;"
        " default: none may",
    )
    oidc_issuer: str | None = Field(
        None, description="issuer of an OpenID Connect provider whose tokens are accepted; default: API tokens only"
    )
    oidc_audience: str | None = Field(None, validate_default=True, description="what those tokens must be for (aud)")
    oidc_client_secret: SecretStr | None = Field(
        None, description="with which the console ends a sign-in there; default: none, as public clients have"
    )
    oidc_grants: tuple[OidcGrant, ...] = Field(
        (),
        validate_default=True,
        description="their grants, of which the first match counts: a JSON list of role and on, and claim and value",
    )
    database_url: SecretStr | None = Field(None, description="catalog database; default: SQLite in the data folder")
    warehouse: str | None = Field(
        None, description="folder or URI (s3://…) of the tables' files; default: in the data folder"
    )
    spark_remote: SecretStr | None = Field(None, description="Spark Connect URL; default: an embedded server")
    spark_master: str = Field("local[*]", description="master of the embedded Spark server")
    spark_heap_mib: int | None = Field(None, ge=512, description="heap of the embedded Spark server; default: 512")
    processes: int | None = Field(
        None, ge=1, le=64, description="processes that answer requests; default: from the cores, at most 8"
    )
    workers: int = Field(1, ge=0, description="merge workers of `keyfold serve`; 0 leaves merging to `keyfold worker`")
    merges_at_once: int | None = Field(
        None, ge=1, le=64, description="merges that a worker runs at a time, one of a table; default: from the cores"
    )
    lease_seconds: float = Field(30.0, gt=0, description="how long a worker that fell silent keeps its merge")
    max_body_bytes: int = Field(
        2**30,
        gt=0,
        description="largest body of a batch, of which 0.25 GiB may have to be in memory; other bodies are smaller",
    )
    max_batch_records: int = Field(1_000_000, gt=0, lt=2**24, description="most records of one batch")
    idempotency_days: float = Field(
        7.0, ge=0, description="days that an Idempotency-Key is known after its batch; /v1/config reports it"
    )
    image_bytes: int = Field(16 * 2**30, ge=0, description="most bytes of disk for images of lookups; 0: no images")
    staged_index_mib: int = Field(
        256, ge=0, description="memory of a serving process for staged records; beyond it lookups read their files"
    )
    staged_table_mib: int = Field(4096, gt=0, description="staged bytes of a table that keep further batches out")
    staged_mib: int = Field(16_384, gt=0, description="staged bytes of all tables that keep further batches out")
    least_free_mib: int = Field(
        256, ge=0, description="room on the disks of warehouse and data folder below which batches are refused"
    )
    one_machine: bool | None = Field(
        None,
        description="whether all processes that use the catalog run with this data folder; default: yes with SQLite, no"
        " with PostgreSQL, where lookups then query the catalog for the last batch",
    )
    failures_per_minute: int = Field(
        600,
        ge=0,
        description="requests without a valid token that one address may send a minute to one process; 0: any number",
    )
    requests_per_minute: int | None = Field(
        None, ge=1, description="requests that one token may send a minute to one process; default: any number"
    )
    audit_log: str | None = Field(
        None,
        min_length=1,
        description="file, or stdout or stderr, for a line of JSON of each change of a database, table or token, and of"
        " each refusal; default: none",
    )
    umask: Annotated[int, BeforeValidator(_octal)] = Field(
        0o077,
        ge=0,
        le=0o077,
        description="umask (octal) for every file the service creates",
    )
    scrub_bytes_per_second: int = Field(
        8 * 2**20,
        ge=0,
        le=2**30,
        description="how fast each worker reads all files in the background to find damage; 0: it does not",
    )
    log_level: str = Field("INFO", description="level of the service's own log")
    log_format: LogFormat = Field(LogFormat.TEXT, description="text, or json: an object a line")
    log_requests: bool = Field(False, description="whether the log has a line for each request")
    console: bool = Field(True, description="whether there are pages for people, at /")
    open_metrics: bool = Field(
        False, description="whether /metrics needs no token from callers on this machine that name it as their host"
    )
    spark_trial: bool = Field(
        True, description="whether workers try the server at KEYFOLD_SPARK_REMOTE before they merge on it"
    )
    worker_metrics_port: int | None = Field(
        None, ge=0, le=65535, description="port on 127.0.0.1 for the metrics of keyfold worker; 0 takes a free one"
    )

    # Constants that protect a process, the same on every machine: operators cannot set them, tests subclass.
    # Seconds between two checks whether batches were added.
    poll_seconds: ClassVar[float] = 0.1
    # The consistency of lookups that set none: a lookup sees every accepted batch.
    lookup_consistency: ClassVar[Consistency] = Consistency.LATEST
    # At most this many tables have metrics of their own: a dashboard shows no more lines.
    metrics_tables: ClassVar[int] = 50
    # Open requests have this long to end at a stop; ``docker stop`` kills after 10 s.
    stop_seconds: ClassVar[int] = 5

    # Limits of a serving process for its connections.
    # Each connection takes a file descriptor, of which a process usually has 1024.
    max_connections: ClassVar[int] = 1000
    # The first line and the headers of a request must arrive within this time.
    head_seconds: ClassVar[float] = 10.0
    # A connection is closed if no byte is sent or read for this long in the middle of a request or an answer.
    silence_seconds: ClassVar[float] = 60.0
    # A body that takes longer than ``silence_seconds`` must arrive at this rate at least.
    body_bytes_per_second: ClassVar[int] = 2**14
    # Bodies that are being received take at most this much memory; the rest goes to disk.
    bodies_mib: ClassVar[int] = 256
    # Bodies that are being received take at most this much disk.
    uploads_bytes: ClassVar[int] = 2**34

    # Limits of a batch, a table and the catalog.
    # Records of a batch times columns of its table, sent or not: a wide table takes the memory of all of them.
    max_batch_values: ClassVar[int] = 2**28
    # Largest record as it is sent; also the largest value in it.
    max_record_bytes: ClassVar[int] = 2**23
    # Highest ratio of decompressed to sent bytes, for bodies above 16 MiB. Repeated rows reach 100.
    max_decompression_ratio: ClassVar[int] = 250
    # Columns of a table, with the fields inside them.
    max_columns: ClassVar[int] = 2000
    max_tables: ClassVar[int] = 10_000
    max_databases: ClassVar[int] = 10_000

    # Limits of staging beyond its bytes: many small records take little disk, but slow lookups down.
    staged_table_records: ClassVar[int] = 50_000_000
    staged_records: ClassVar[int] = 200_000_000
    # A batch may wait this long beyond merge.max-staleness before its table is full: time to repair Spark.
    staged_late_seconds: ClassVar[float] = 86_400.0

    model_config["populate_by_name"] = True

    @field_validator("tls_key")
    @classmethod
    def _beside_its_certificate(cls, key: Path | None, others: ValidationInfo) -> Path | None:
        if (key is None) is not (others.data.get("tls_cert") is None):
            raise ValueError("set both KEYFOLD_TLS_CERT and KEYFOLD_TLS_KEY, or none of them")
        return key

    @field_validator("oidc_issuer")
    @classmethod
    def _behind_tls(cls, issuer: str | None) -> str | None:
        """Raise ``ValueError`` for an issuer without TLS, whose keys others could forge."""
        parts = urlsplit(issuer or "")
        name = parts.hostname or ""
        if issuer is not None and not (
            (name and parts.scheme == "https") or (is_loopback(name) and parts.scheme == "http")
        ):
            raise ValueError("write it as its tokens have it, like https://login.example; http only on this machine")
        return issuer

    @field_validator("oidc_audience", "oidc_grants")
    @classmethod
    def _beside_its_issuer(cls, given: Any, others: ValidationInfo) -> Any:
        if bool(given) is not (others.data.get("oidc_issuer") is not None):
            raise ValueError("set KEYFOLD_OIDC_ISSUER, KEYFOLD_OIDC_AUDIENCE and KEYFOLD_OIDC_GRANTS, or none of them")
        return given

    @field_validator("oidc_client_secret")
    @classmethod
    def _of_a_client(cls, secret: SecretStr | None, others: ValidationInfo) -> SecretStr | None:
        if secret is not None and others.data.get("oidc_issuer") is None:
            raise ValueError("it goes with KEYFOLD_OIDC_ISSUER")
        return secret

    @field_validator("warehouse")
    @classmethod
    def _known_warehouse(cls, root: str | None) -> str | None:
        if root is not None:
            check_root(root)
        return root

    @field_validator("cors_origins", mode="before")
    @classmethod
    def _origins(cls, text: object) -> object:
        """Raise ``ValueError`` for a text that no browser sends as an origin: it would silently match no page."""
        if not isinstance(text, str):
            return text
        origins = [part.strip() for part in text.split(",") if part.strip()]
        for origin in origins:
            if not _ORIGIN.fullmatch(origin):
                raise ValueError(f"{origin!r} is no origin: write https://app.example: no path, no *, no usual port")
        return tuple(origins)

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, text: str) -> str:
        """Raise ``ValueError`` for a malformed address: it would silently match no proxy."""
        parts = [part.strip() for part in text.split(",") if part.strip()]
        for part in parts:
            ipaddress.ip_network(part)
        return ",".join(parts)

    @property
    def asks_for_tokens(self) -> bool:
        """Whether a token is required before one was ever made: other machines may call, or people sign in at a
        provider.
        """
        return self.oidc_issuer is not None or not is_loopback(self.host) or bool(self.trusted_proxies)

    @property
    def serving_processes(self) -> int:
        """The number of processes that answer requests."""
        return self.processes or min(8, os.cpu_count() or 1)

    @property
    def catalog_bounds(self) -> CatalogBounds:
        """The bounds of the catalog."""
        return CatalogBounds(self.max_databases, self.max_tables, SchemaBounds(self.max_columns))

    @property
    def keys_known(self) -> timedelta:
        """How long an Idempotency-Key is remembered after its batch."""
        return timedelta(days=self.idempotency_days)

    @property
    def merge_slots(self) -> int:
        """The number of merges that a worker runs at a time: small ones mostly wait, and a long one must not stop all
        others.
        """
        return self.merges_at_once or min(16, max(4, os.cpu_count() or 1))

    @property
    def shares_marks(self) -> bool:
        """Whether every process that writes to the catalog notifies this one by the marks in the data folder."""
        sqlite = self.catalog_url.startswith("sqlite")
        return sqlite if self.one_machine is None else self.one_machine

    @property
    def catalog_url(self) -> str:
        """The SQLAlchemy URL of the catalog; may hold a password, never log it."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite:///{(self.folder / 'catalog.sqlite').resolve()}"

    @property
    def embedded_catalog(self) -> bool:
        """Whether the catalog is the SQLite file of the data folder, which `keyfold serve` migrates by itself."""
        return self.database_url is None

    @property
    def warehouse_root(self) -> str:
        """The folder or URI of the warehouse."""
        return self.warehouse or str((self.folder / "warehouse").resolve())


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a service that listens on ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
