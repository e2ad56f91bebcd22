"""What operators see: stats, readiness, metrics, the audit log."""
