"""Keyfold's own application, in an empty data folder, with a constant answer before its routes and one behind them."""

from __future__ import annotations

import sys
from pathlib import Path

from app.main import create_app
from app.server.serving import StoppingServer, listen
from app.settings import Settings
from bench.over_http.routes.constant import constant

if __name__ == "__main__":
    settings = Settings(KEYFOLD_DATA=Path(sys.argv[1]), workers=0)
    app = create_app(settings)
    app.get("/last")(constant)
    app.get("/first")(constant)
    app.router.routes.insert(0, app.router.routes.pop())
    listeners = listen(settings.host, 0, 1)
    print(f"http://127.0.0.1:{listeners[0].getsockname()[1]}", flush=True)
    StoppingServer(app).run(sockets=listeners)
