"""Databases and tables, and the schemas that tables have had."""
