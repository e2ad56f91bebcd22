"""Shared by routes: names in a path, paging, answers, problems, preferences."""
