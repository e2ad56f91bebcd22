"""A column's options: its default, its function, and how late its records may come."""
