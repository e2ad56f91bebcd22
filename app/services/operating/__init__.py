"""For operators: stats, readiness, metrics, the audit log."""
