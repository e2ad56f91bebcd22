"""What a table is: schema, keys, options, records, and what it holds."""
