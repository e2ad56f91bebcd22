"""The pure core: values, rules and their meaning; no I/O."""
