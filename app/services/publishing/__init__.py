"""Tables for other engines: their data files, Delta versions, copies for Paimon."""
