"""Late records: how many a merge folded, and where values stand in an order."""
