"""How the records of a key become a state: one rule for each column."""
