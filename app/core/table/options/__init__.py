"""Options of a table: their entries, how their texts are read, what they come to."""
