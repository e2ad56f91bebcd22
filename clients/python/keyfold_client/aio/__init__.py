"""The client for asyncio; ``keyfold_client.sync`` is made of it (``make client``)."""
