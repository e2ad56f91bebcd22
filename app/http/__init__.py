"""What everything that answers over HTTP shares: the open parts of the process, who calls, what browsers may send, and
which status a failure has. The API and the console stand on it, beside each other.
"""
