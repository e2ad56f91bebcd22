"""Batches: checked, admitted, staged durably, listed, withdrawn."""
