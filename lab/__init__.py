"""What is run by hand and is no test of a commit: faults, flips, fuzz, mutants, Debezium (docs/make.md)."""
