"""Everything that an operator can set, read once from the environment (``KEYFOLD_*``) or the command line."""

from __future__ import annotations

import ipaddress
import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from app.core.table.options.entries import Consistency
from app.core.table.schema_bounds import CatalogBounds, SchemaBounds
from app.files.object_stores import check_root
from app.telemetry.logs import LogFormat


def _octal(mode: object) -> object:
    return int(mode, 8) if isinstance(mode, str) else mode


# As browsers write it: no path, a name in lower case, a port only where it is not the scheme's own.
_ORIGIN = re.compile(r"(?!http:.*:80$|https:.*:443$)https?://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")


class Settings(BaseSettings):
    """One frozen value for the whole process; nothing else of a service reads the environment."""

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
    poll_seconds: float = Field(0.1, gt=0, description="how often a worker looks for staged batches")
    max_body_bytes: int = Field(
        2**30,
        gt=0,
        description="largest body of a batch, of which a quarter GiB may have to be held whole; no other is larger",
    )
    max_batch_records: int = Field(1_000_000, gt=0, lt=2**24, description="most records of one batch")
    max_batch_values: int = Field(
        2**28, gt=0, description="most values of one batch: records times the columns of the table, sent or not"
    )
    max_record_bytes: int = Field(
        2**23, ge=2**22, le=2**28, description="most bytes of one record as it is sent, and of each value in it"
    )
    max_decompression_ratio: int = Field(
        250, gt=0, description="how many times larger a body of more than 16 MiB may become when it is decompressed"
    )
    max_connections: int = Field(1000, ge=1, description="most connections that a serving process keeps at a time")
    head_seconds: float = Field(10.0, gt=0, description="how long the line and headers of a request may take")
    stop_seconds: int = Field(5, ge=0, description="how long requests may take to end when the service is stopped")
    bodies_mib: int = Field(
        256,
        ge=16,
        description="memory of a serving process for bodies that are being received; of a batch, more goes to disk",
    )
    uploads_bytes: int = Field(2**34, ge=0, description="most bytes of the disk that bodies take while they are read")
    silence_seconds: float = Field(
        60.0,
        gt=0,
        description="how long a client may neither send the rest of a request nor read the rest of an answer",
    )
    body_bytes_per_second: int = Field(
        2**14, ge=0, description="how fast a body must come at least, once it has taken KEYFOLD_SILENCE_SECONDS"
    )
    max_columns: int = Field(2000, ge=1, description="most columns of a table, with the fields inside them")
    max_tables: int = Field(10_000, ge=0, description="most tables of the catalog")
    max_databases: int = Field(10_000, ge=0, description="most databases of the catalog")
    idempotency_days: float = Field(
        7.0, ge=0, description="days that an Idempotency-Key is known after its batch; told by /v1/config"
    )
    image_bytes: int = Field(
        16 * 2**30, ge=0, description="most bytes of the disk that images for lookups take; 0: there are none"
    )
    lookup_consistency: Consistency = Field(
        Consistency.LATEST, description="what a lookup sees where neither it nor its table says: latest or merged"
    )
    staged_index_mib: int = Field(
        256, ge=0, description="memory of a serving process for staged records; beyond it lookups read their files"
    )
    staged_table_mib: int = Field(4096, gt=0, description="staged bytes of a table that keep further batches out")
    staged_table_records: int = Field(
        50_000_000, gt=0, description="staged records of a table that keep further batches out"
    )
    staged_late_seconds: float = Field(
        86_400.0,
        ge=0,
        description="how long beyond merge.max-staleness a batch may wait for its merge until others are kept out",
    )
    staged_mib: int = Field(16_384, gt=0, description="staged bytes of all tables that keep further batches out")
    staged_records: int = Field(
        200_000_000, gt=0, description="staged records of all tables that keep further batches out"
    )
    least_free_mib: int = Field(
        256, ge=0, description="room on the disks of warehouse and data folder below which batches are kept out"
    )
    one_machine: bool | None = Field(
        None,
        description="whether all processes that use the catalog run with this data folder; default: yes with SQLite, no"
        " with PostgreSQL, where lookups then ask the catalog for the last batch",
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
        description="permissions, in octal, that no file of the service has, whoever started it with what umask",
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
    metrics_tables: int = Field(
        50,
        ge=0,
        le=10_000,
        description="tables that have metrics of their own, those with most staged; the others share one",
    )
    console: bool = Field(True, description="whether there are pages for people, at /")
    open_metrics: bool = Field(
        False, description="whether /metrics needs no token from callers on this machine that name it as their host"
    )

    spark_trial: bool = Field(
        True, description="whether workers try the server at KEYFOLD_SPARK_REMOTE before they merge on it"
    )
    worker_metrics_port: int | None = Field(
        None, ge=0, le=65535, description="port on 127.0.0.1 where keyfold worker tells its metrics; 0 takes a free one"
    )

    model_config["populate_by_name"] = True

    @field_validator("tls_key")
    @classmethod
    def _beside_its_certificate(cls, key: Path | None, others: ValidationInfo) -> Path | None:
        if (key is None) is not (others.data.get("tls_cert") is None):
            raise ValueError("set both KEYFOLD_TLS_CERT and KEYFOLD_TLS_KEY, or none of them")
        return key

    @field_validator("warehouse")
    @classmethod
    def _known_warehouse(cls, root: str | None) -> str | None:
        if root is not None:
            check_root(root)
        return root

    @field_validator("cors_origins", mode="before")
    @classmethod
    def _origins(cls, text: object) -> object:
        """Raises ``ValueError`` for what no browser sends as an origin: no page would be let in, in silence."""
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
        """Raises ``ValueError`` for what is no address: it would be trusted by no one, in silence."""
        parts = [part.strip() for part in text.split(",") if part.strip()]
        for part in parts:
            ipaddress.ip_network(part)
        return ",".join(parts)

    @property
    def asks_for_tokens(self) -> bool:
        """Whether a token is needed though none was ever made: others than this machine may call."""
        return not is_loopback(self.host) or bool(self.trusted_proxies)

    @property
    def serving_processes(self) -> int:
        """Processes that answer requests."""
        return self.processes or min(8, os.cpu_count() or 1)

    @property
    def catalog_bounds(self) -> CatalogBounds:
        """How much the catalog may hold."""
        return CatalogBounds(self.max_databases, self.max_tables, SchemaBounds(self.max_columns))

    @property
    def keys_known(self) -> timedelta:
        """How long an Idempotency-Key is known after its batch."""
        return timedelta(days=self.idempotency_days)

    @property
    def merge_slots(self) -> int:
        """Merges that a worker runs at a time. Small ones mostly wait, and a long one must not stop all others."""
        return self.merges_at_once or min(16, max(4, os.cpu_count() or 1))

    @property
    def shares_marks(self) -> bool:
        """Whether every process that writes to the catalog tells this one by the marks in the data folder."""
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
    """Whether only this machine can reach a service that listens on ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
