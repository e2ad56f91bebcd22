"""What the API and the console share: the open parts of the process, callers, what browsers may send, and the status
of each failure. Neither of the two uses the other.
"""
