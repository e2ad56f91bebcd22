"""The HTTP surface; the only code that knows FastAPI. Handlers parse, call one service function, and answer."""
