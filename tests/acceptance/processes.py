"""A service of several processes, and what clients of some of them see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType

from tests.service import Client, Service, TableClient, summed

SCHEMA = summed(merge__max_staleness="1 d")
PATIENCE_SECONDS = 30
NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


class Several:
    """A service of some processes. Clients have one connection each, which the kernel gives to some process; they are
    closed with ``stack``.
    """

    def __init__(self, service: Service, stack: ExitStack) -> None:
        self.service = service
        self.stack = stack

    def client(self) -> Client:
        return self.stack.enter_context(Client(base_url=self.service.url, timeout=PATIENCE_SECONDS, trust_env=False))

    def table(self, name: str = "wide") -> TableClient:
        return TableClient(self.client(), "shop", name)

    def make_table(self, name: str = "wide") -> TableClient:
        client = self.client()
        if client.get("/v1/catalog/databases/shop").status_code == 404:
            client.create_database("shop")
        client.create_table("shop", name, SCHEMA).raise_for_status()
        return TableClient(client, "shop", name)

    def children(self) -> list[int]:
        pid = self.service.process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def several(
    data: Path, count: int = 3, variables: Mapping[str, str] = NO_VARIABLES, **environment: str
) -> Iterator[Several]:
    """A service of ``count`` processes that answer; ``variables`` are those that are no settings."""
    named = {f"KEYFOLD_{name.upper()}": value for name, value in environment.items()}
    service = Service(data, {"KEYFOLD_PROCESSES": str(count), "KEYFOLD_WORKERS": "0", **named, **variables})
    try:
        with ExitStack() as stack:
            yield Several(service, stack)
    finally:
        service.stop()
