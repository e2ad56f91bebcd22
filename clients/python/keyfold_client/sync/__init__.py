"""The client without asyncio. Its modules are made of those of ``keyfold_client.aio`` by ``make client``."""
