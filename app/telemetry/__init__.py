"""What an operator sees of a running service: metrics, logs, traces (docs/decisions/0027)."""
