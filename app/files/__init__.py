"""Files that kernel and storage share: where they are, how they are read, written and checked."""
