"""Files that kernel and storage share: layout, reading, writing and checking."""
