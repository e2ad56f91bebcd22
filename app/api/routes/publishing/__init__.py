"""Routes for other engines that read a table."""
