"""The layers that every request passes: limits, tokens, permits, conditions, compression, the audit log."""
