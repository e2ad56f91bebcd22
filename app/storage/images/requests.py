"""Requests for images: small files that any process writes and the builder of images reads (decision 17)."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.table.history import DataFile
from app.core.table.schema import TableSchema

WANTED = "wanted"
SUFFIX = ".image"
# The name, in the place of a form, of the image of the state rows.
STATES = "states"


@dataclass(frozen=True)
class ImageName:
    """Which image: of a data file of a run, the answers of a form, or the state rows (``STATES``)."""

    table_id: str
    run_id: str
    file: str
    form: str

    def path(self, folder: Path) -> Path:
        """Return where the image is below the folder of images."""
        return folder / self.table_id / self.run_id / f"{self.file}.{self.form}{SUFFIX}"

    def request_path(self, folder: Path) -> Path:
        """Return where it is asked for."""
        return folder / WANTED / f"{self.table_id}.{self.run_id}.{self.file}.{self.form}.json"


@dataclass(frozen=True)
class ImageRequest:
    """A requested image of a data file as the catalog has it. An image of state rows needs no schemas."""

    name: ImageName
    file: DataFile
    written: TableSchema | None = None
    shown: TableSchema | None = None

    def post(self, folder: Path) -> None:
        """Leave the request for the builder; it is seen whole or not at all."""
        path = self.name.request_path(folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        schemas = {role: _schema_json(schema) for role, schema in (("written", self.written), ("shown", self.shown))}
        aside = path.with_name(f"{path.name}.{os.getpid()}.writing")
        aside.write_text(json.dumps({"image": asdict(self.name), "stored": _file_json(self.file), **schemas}))
        aside.replace(path)

    @property
    def plans(self) -> tuple[MergePlan, MergePlan] | None:
        """The plans that the rows were written under and are shown with; None for state rows."""
        if self.written is None or self.shown is None:
            return None
        return compile_plan(self.written), compile_plan(self.shown)


def read_request(path: Path) -> ImageRequest:
    """Return the request in a file. Raise ``FileNotFoundError``, and ``ValueError`` for a file that is none."""
    body = json.loads(path.read_text())
    try:
        name, file = ImageName(**body["image"]), _file_of(body["stored"])
        return ImageRequest(name, file, _schema_of(body["written"]), _schema_of(body["shown"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} asks for no image") from error


def request_of(table_id: str, run_id: str, file: DataFile, written: TableSchema, plan: MergePlan) -> ImageRequest:
    """Return a request for the answers of ``plan``."""
    return ImageRequest(ImageName(table_id, run_id, file.name, plan.answer_form), file, written, plan.schema)


def _file_json(file: DataFile) -> dict[str, Any]:
    blocks = file.block_digests
    return asdict(file) | {"block_digests": None if blocks is None else blocks.hex()}


def _file_of(body: dict[str, Any]) -> DataFile:
    blocks = body["block_digests"]
    return DataFile(**body | {"block_digests": None if blocks is None else bytes.fromhex(blocks)})


def _schema_json(schema: TableSchema | None) -> dict[str, Any] | None:
    if schema is None:
        return None
    extra = {"remembers_removals": schema.remembers_removals, "epoch": schema.epoch}
    return {"declared": schema.to_json(), **extra}


def _schema_of(body: Any) -> TableSchema | None:
    if body is None:
        return None
    declared = TableSchema.from_json(body["declared"])
    return replace(declared, remembers_removals=body["remembers_removals"], epoch=body["epoch"])
