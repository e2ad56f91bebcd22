"""Shared by API and console, which do not use each other: the open parts of the process, callers, browser rules, and
the status of each failure.
"""
