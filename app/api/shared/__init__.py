"""What routes share: the names in a path, paging, answers, problems, preferences."""
