"""What a column's options say: its default, its function, how late its records may come."""
