"""Bodies of uploads: formats, encodings, change events, faults at their place."""
