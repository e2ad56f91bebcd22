"""What engines that are no dependency of the tests read of published tables."""
