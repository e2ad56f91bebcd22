"""deploy/envoy.yaml against what the service expects of a proxy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from app.api.routes.snapshots.following import Following
from app.server.serving import _KEEP_ALIVE_SECONDS

ENVOY: dict[str, Any] = yaml.safe_load((Path(__file__).parent.parent / "deploy" / "envoy.yaml").read_text())
[LISTENER], [CLUSTER] = ENVOY["static_resources"]["listeners"], ENVOY["static_resources"]["clusters"]
[FILTER] = LISTENER["filter_chains"][0]["filters"]
MANAGER: dict[str, Any] = FILTER["typed_config"]


def test_an_idle_connection_is_closed_before_keyfold_does() -> None:
    # Without it, 8 of 120 posts on connections that were idle for 74.97 s were answered 503 by Envoy.
    [options] = CLUSTER["typed_extension_protocol_options"].values()
    idle = int(options["common_http_protocol_options"]["idle_timeout"].removesuffix("s"))
    assert 0 < idle <= _KEEP_ALIVE_SECONDS - 10


def test_long_answers_are_not_cut_off() -> None:
    [host] = MANAGER["route_config"]["virtual_hosts"]
    assert [route["route"]["timeout"] for route in host["routes"]] == ["0s"]
    assert "stream_idle_timeout" not in MANAGER, "its default is 300 seconds, more than between two heartbeats"
    assert Following.heartbeat_seconds < 300


def test_the_client_and_its_request_id_are_passed_on() -> None:
    assert MANAGER["use_remote_address"] is True
    assert MANAGER["preserve_external_request_id"] is True
