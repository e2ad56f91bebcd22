"""The facts that every format needs of the runs of a version."""
