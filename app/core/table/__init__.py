"""Tables: schema, keys, options, records, and history."""
