"""Telemetry: metrics, logs, traces (docs/decisions/0027)."""
