"""Side by side: other systems that keep rows by key, on the same data and machine, each in a separate process."""
