"""OpenTelemetry traces, if ``keyfold[otlp]`` is installed and the standard ``OTEL_*`` variables name a receiver.

FastAPI makes the span of a request; the spans from here are inside of it, or in the worker.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Protocol

from opentelemetry import trace

logger = logging.getLogger(__name__)
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
Attribute = str | int | float | bool


class _Provider(Protocol):
    """The part of the SDK's provider that ends it."""

    def shutdown(self) -> None:
        """Export the remaining spans, and stop."""


_provider: list[_Provider] = []  # of this process, at most one: OpenTelemetry knows one a process


def _wanted() -> bool:
    """Return whether the environment enables traces: by an endpoint, or by an exporter that needs none."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = os.environ.get("OTEL_TRACES_EXPORTER", "otlp")
    return exporter == "console" or (exporter == "otlp" and any(os.environ.get(name) for name in _ENDPOINTS))


def start_tracing() -> None:
    """Start to export spans, if enabled and possible. Call it after the fork, since it starts a thread."""
    if _provider or not _wanted():
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415  # an extra
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415  # the same
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter  # noqa: PLC0415  # the same
    except ImportError:
        logger.warning("OTEL_* variables ask for traces, and there are none: pip install 'keyfold[otlp]'")
        return
    if "service.name=" not in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        os.environ.setdefault("OTEL_SERVICE_NAME", "keyfold")
    console = os.environ.get("OTEL_TRACES_EXPORTER") == "console"
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter() if console else OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    _provider.append(provider)


def stop_tracing() -> None:
    """Export the remaining spans, and stop."""
    for provider in _provider:
        provider.shutdown()


@contextmanager
def span(name: str, attributes: Mapping[str, Attribute]) -> Iterator[trace.Span]:
    """Record the body as a span of the current trace, or of a new one. Do nothing if traces are off.

    A failed span is marked as failed, without its error: the message may quote data.
    """
    named = {f"keyfold.{key}": value for key, value in attributes.items()}
    begun = trace.get_tracer("keyfold").start_as_current_span(
        name, attributes=named, record_exception=False, set_status_on_exception=False
    )
    with begun as current:
        try:
            yield current
        except BaseException:
            current.set_status(trace.StatusCode.ERROR)
            raise


def trace_id() -> str | None:
    """Return the id of the current trace, in hexadecimal."""
    context = trace.get_current_span().get_span_context()
    return trace.format_trace_id(context.trace_id) if context.is_valid else None


def job_tag() -> str:
    """Return a tag for Spark jobs: the id of the current trace, which then finds both; random without a trace."""
    return f"keyfold-{trace_id() or uuid.uuid4().hex}"
