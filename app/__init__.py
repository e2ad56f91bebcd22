"""Keyfold: primary-key tables whose rows are assembled from partial, late, repeated and out-of-order updates."""

__version__ = "0.1.0"
