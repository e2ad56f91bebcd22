"""``keyfold load``: every format, every break, nothing lost and nothing twice."""

from __future__ import annotations

import gzip
import io
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from app.cli.client.endings import Exit
from app.cli.client.pieces import PIECE_RECORDS
from tests.cli.terminal import DATABASE, Terminal, numbered_csv
from tests.service import Service

pytestmark = pytest.mark.slow(reason="loads files of several batches, and breaks loads in the middle")
ROWS = 2 * PIECE_RECORDS + 1000


def batches(terminal: Terminal, table: str) -> int:
    path = f"/v1/catalog/databases/{DATABASE}/tables/{table.partition('.')[2]}/batches"
    return len(terminal.http("GET", path).json()["batches"])


def wait_for_batches(terminal: Terminal, table: str, count: int) -> None:
    deadline = time.monotonic() + 120
    while batches(terminal, table) < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def records() -> pa.Table:
    numbers = list(range(ROWS))
    return pa.table({"id": numbers, "word": [f"w{number}" for number in numbers], "n": [1] * ROWS})


def write_arrow(path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, records().schema) as file:
        file.write_table(records())


def write_stream(path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, records().schema) as file:
        file.write_table(records())


def write_ndjson(path: Path) -> None:
    path.write_text(
        "".join(f"{json.dumps({'id': number, 'word': f'w{number}', 'n': 1})}\n\n" for number in range(ROWS))
    )


FILES: dict[str, Callable[[Path], object]] = {
    "a.csv": lambda path: path.write_text(numbered_csv(range(ROWS))),
    "a.ndjson": write_ndjson,
    "a.parquet": lambda path: pq.write_table(records(), path, row_group_size=70_001),
    "a.arrow": write_arrow,
    "a.arrows": write_stream,
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_each_format_counts_once_however_often_it_is_loaded(terminal: Terminal, name: str) -> None:
    table = terminal.table(name.replace(".", "_"))
    FILES[name](terminal.folder / name)
    [first] = terminal.result("load", table, name)
    assert (first["records"], first["replayed"]) == (ROWS, 0)
    assert first["batches"] >= 3
    [second] = terminal.result("load", table, name)
    assert (second["records"], second["replayed"]) == (ROWS, first["batches"])
    assert terminal.sums(table) == (ROWS, ROWS)


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_a_packed_file_is_the_same_load_as_its_text(terminal: Terminal, pack: Callable[[bytes], bytes]) -> None:
    ending = {gzip.compress: "gz", zstandard.compress: "zst"}[pack]
    table = terminal.table(f"packed_{ending}")
    text = numbered_csv(range(ROWS)).encode()
    packed = pack(text[: len(text) // 2]) + pack(text[len(text) // 2 :])  # as two that were put behind each other
    (terminal.folder / f"packed.csv.{ending}").write_bytes(packed)
    (terminal.folder / f"cut.csv.{ending}").write_bytes(packed[:-20])
    (terminal.folder / "packed.csv").write_bytes(text)
    [first] = terminal.result("load", table, f"packed.csv.{ending}")
    assert first["records"] == ROWS
    assert terminal.result("load", table, "packed.csv")[0]["replayed"] == first["batches"]
    assert terminal.sums(table) == (ROWS, ROWS)
    broken = terminal.run("load", table, f"cut.csv.{ending}")
    assert (broken.returncode, f"cut.csv.{ending} cannot be read" in broken.stderr) == (Exit.USAGE, True)


def test_what_was_loaded_is_loaded_once_more_if_that_is_said(terminal: Terminal) -> None:
    table = terminal.table("twice")
    (terminal.folder / "twice.csv").write_text(numbered_csv(range(3)))
    assert terminal.result("load", table, "twice.csv")[0]["replayed"] == 0
    assert terminal.result("load", table, "twice.csv", "--again", "tuesday")[0]["replayed"] == 0
    assert terminal.result("load", table, "twice.csv", "--again", "tuesday")[0]["replayed"] == 1
    assert terminal.sums(table) == (3, 6)


def test_a_load_whose_batches_were_withdrawn_has_not_done_what_it_was_asked(terminal: Terminal) -> None:
    table = terminal.table("withdrawn")
    (terminal.folder / "withdrawn.csv").write_text(numbered_csv(range(3)))
    terminal.result("load", table, "withdrawn.csv")
    path = f"/v1/catalog/databases/{DATABASE}/tables/withdrawn/batches"
    [batch] = terminal.http("GET", path).json()["batches"]
    terminal.http("DELETE", f"{path}/{batch['id']}")
    done = terminal.run("load", table, "withdrawn.csv")
    assert done.returncode == Exit.REFUSED
    assert "1 of the batches, posted before" in done.stderr
    assert "--again" in done.stderr


def test_a_load_that_is_killed_in_the_middle_goes_on_where_it_was(terminal: Terminal) -> None:
    """The file is one that is still written: what of it has come is posted, and no more, however slow anything is."""
    table = terminal.table("killed")
    text = numbered_csv(range(5 * PIECE_RECORDS)).encode()
    for count in (1, 3):
        os.mkfifo(terminal.folder / "killed.csv")
        broken = terminal.begin("load", table, "killed.csv")
        with (terminal.folder / "killed.csv").open("wb", buffering=0) as file:
            file.write(b"".join(text.splitlines(keepends=True)[: count * PIECE_RECORDS + 2]))
            wait_for_batches(terminal, table, count)
            broken.kill()
            broken.communicate()
        assert broken.returncode < 0
        assert batches(terminal, table) == count
        (terminal.folder / "killed.csv").unlink()
    (terminal.folder / "killed.csv").write_bytes(text)
    [whole] = terminal.result("load", table, "killed.csv")
    assert whole["replayed"] == 3
    assert terminal.sums(table) == (5 * PIECE_RECORDS, 5 * PIECE_RECORDS)


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_a_pipe_that_has_a_name_is_a_file_like_others(terminal: Terminal, name: str) -> None:
    """What a shell makes of ``<(zcat orders.csv.gz)``."""
    table = terminal.table(f"named_{name.replace('.', '_')}")
    FILES[name](terminal.folder / name)
    pipe = terminal.folder / f"pipe.{name}"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes((terminal.folder / name).read_bytes()))
    writer.start()
    [loaded] = terminal.result("load", table, pipe.name)
    writer.join()
    assert loaded["records"] == ROWS
    assert terminal.result("load", table, name)[0]["replayed"] == loaded["batches"]


def test_what_came_by_standard_input_is_known_when_it_comes_as_a_file(terminal: Terminal) -> None:
    table = terminal.table("piped")
    text = numbered_csv(range(ROWS))
    broken = terminal.begin("load", table, "-", "--format", "csv")
    assert broken.stdin is not None
    broken.stdin.write(text.encode()[: len(text) * 3 // 4])
    broken.stdin.flush()
    wait_for_batches(terminal, table, 1)
    broken.kill()
    broken.communicate()
    (terminal.folder / "whole.csv").write_text(text)
    [whole] = terminal.result("load", table, "whole.csv")
    assert whole["replayed"] >= 1
    assert terminal.sums(table) == (ROWS, ROWS)


def test_small_batches_of_an_arrow_file_are_gathered(terminal: Terminal) -> None:
    table = terminal.table("gathered")
    words = pa.array(["a", "b"]).dictionary_encode()
    other = pa.array(["c", "d"]).dictionary_encode()
    schema = pa.schema([("id", pa.int64()), ("word", words.type), ("n", pa.int64())])
    with pa.OSFile(str(terminal.folder / "small.arrows"), "wb") as sink, pa.ipc.new_stream(sink, schema) as stream:
        for first, texts in ((0, words), (2, other), (4, words)):
            columns = [pa.array([first, first + 1]), texts, pa.array([1, 1])]
            stream.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    [loaded] = terminal.result("load", table, "small.arrows")
    assert (loaded["records"], loaded["batches"]) == (6, 1)
    assert {(row["id"], row["word"]) for row in terminal.rows(table)} == {*enumerate("abcdab")}


def test_a_parquet_file_comes_by_standard_input(terminal: Terminal) -> None:
    table = terminal.table("piped_parquet")
    pq.write_table(records().slice(0, 10), terminal.folder / "ten.parquet")
    sent = (terminal.folder / "ten.parquet").read_bytes()
    assert terminal.run("load", table, "-", "--format", "parquet", stdin=sent).returncode == 0
    assert terminal.sums(table) == (10, 10)


def test_a_load_outlives_a_service_that_is_killed_and_restarted(tmp_path: Path) -> None:
    service = Service(tmp_path / "data", {"KEYFOLD_WORKERS": "0"})
    terminal = Terminal(tmp_path, service.url)
    try:
        assert terminal.run("database", "create", DATABASE).returncode == 0
        table = terminal.table("restarted")
        (tmp_path / "a.csv").write_text(numbered_csv(range(4 * PIECE_RECORDS)))
        going = terminal.begin("load", table, "a.csv")
        wait_for_batches(terminal, table, 1)
        service.kill()
        service = Service(tmp_path / "data", {"KEYFOLD_WORKERS": "0"}, port=int(service.url.rpartition(":")[2]))
        _, err = going.communicate(timeout=200)
        assert going.returncode == 0, err
        assert terminal.sums(table) == (4 * PIECE_RECORDS, 4 * PIECE_RECORDS)
    finally:
        service.stop()


def test_a_bad_record_is_named_by_line_and_column_and_what_was_corrected_counts_once(terminal: Terminal) -> None:
    table = terminal.table("corrected")
    lines = numbered_csv(range(PIECE_RECORDS + 10)).splitlines()
    lines[0] = 'id,"word",n'
    lines[1] = '0,"two\nlines",1'
    good = "\n".join(lines) + "\n"
    lines[PIECE_RECORDS + 5] = f"{PIECE_RECORDS + 4},w,many"
    (terminal.folder / "bad.csv").write_text("\n".join(lines) + "\n")
    refused = terminal.run("load", table, "bad.csv")
    assert refused.returncode == 1
    assert f"bad.csv, line {PIECE_RECORDS + 7}, column n: " in refused.stderr, "the header and a line break more"
    assert "→ send" in refused.stderr
    assert f"the {PIECE_RECORDS} records before line {PIECE_RECORDS + 3} are stored" in refused.stderr
    (terminal.folder / "bad.csv").write_text(good)
    assert terminal.run("load", table, "bad.csv").returncode == 0
    assert terminal.sums(table) == (PIECE_RECORDS + 10, PIECE_RECORDS + 10)


def test_a_bad_row_of_columns_is_named_by_its_number(terminal: Terminal) -> None:
    table = terminal.table("bad_columns")
    columns = {"id": [1, None], "word": ["a", "b"], "n": [1, 1]}
    pq.write_table(pa.table(columns), terminal.folder / "bad.parquet")
    refused = terminal.run("load", table, "bad.parquet")
    assert refused.returncode == 1
    assert "bad.parquet, row 2, column id: " in refused.stderr
    assert "nothing of the file was stored" in refused.stderr


def with_empty_pages() -> bytes:
    """A Parquet file of which PyArrow yields no row, and no error."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": [1], "word": [["x"]]}), sink, data_page_size=1)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("pages.parquet", with_empty_pages(), "1 of its 1 rows cannot be read"),
        ("a.xls", b"", "--format csv|ndjson|parquet|arrow"),
        ("a.parquet", b"id,n\n", "it is no Parquet file that can be read"),
        ("a.arrow", b"id,n\n", "it is no Arrow file that can be read"),
        ("missing.csv", None, "missing.csv cannot be read: No such file"),
        ("old_mac.csv", b'"id",n\r1,1\r2,1\r', "its lines end with CR alone"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_fault_of_the_command(
    terminal: Terminal, name: str, content: bytes | None, said: str
) -> None:
    table = terminal.table(f"unread_{len(said)}")
    if content is not None:
        (terminal.folder / name).write_bytes(content)
    done = terminal.run("load", table, name)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_line_of_blanks_is_a_record_of_csv_as_the_service_reads_it(terminal: Terminal) -> None:
    sql = "CREATE TABLE blanks (word STRING, PRIMARY KEY (word) NOT ENFORCED)"
    assert terminal.run("table", "create", "-d", DATABASE, "-f", "-", stdin=sql).returncode == 0
    (terminal.folder / "blanks.csv").write_text("word\n  \n\n")
    assert terminal.run("load", f"{DATABASE}.blanks", "blanks.csv").stderr == "blanks.csv: 1 record in 1 batch\n"
    assert terminal.rows(f"{DATABASE}.blanks") == [{"word": "  "}]


def test_what_scan_writes_as_csv_loads_into_the_same_rows(terminal: Terminal) -> None:
    first, second = terminal.table("source"), terminal.table("copy")
    words = ["", None, 'say "hi"', "a,b", "two\nlines", "\u2028ünïcode", "null", " edge "]
    typed = "".join(f"{json.dumps({'id': place, 'word': word, 'n': place})}\n" for place, word in enumerate(words))
    assert terminal.run("load", first, "-", "--format", "ndjson", stdin=typed).returncode == 0
    written = terminal.run("scan", first, "--format", "csv").stdout
    assert terminal.run("load", second, "-", "--format", "csv", stdin=written).returncode == 0
    rows = terminal.rows(second)
    assert rows == terminal.rows(first)
    assert {row["word"] for row in rows} == {*words}


def test_a_load_into_no_table_reads_nothing(terminal: Terminal) -> None:
    done = terminal.run("load", "shop.none", "-", "--format", "csv")
    assert (done.returncode, done.stderr) == (3, "keyfold: table 'none' does not exist\n")


def test_a_line_that_is_no_json_is_named_as_it_stands_in_the_file(terminal: Terminal) -> None:
    table = terminal.table("no_json")
    good = "".join(f'{{"id": {number}, "n": 1}}\n' for number in range(PIECE_RECORDS + 2))
    refused = terminal.run("load", table, "-", "--format", "ndjson", stdin=f"{good}{{\n")
    assert refused.returncode == 1
    assert f"-, line {PIECE_RECORDS + 3}: line 3 is not JSON" in refused.stderr
    assert f"its line 1 is line {PIECE_RECORDS + 1} of the file" in refused.stderr
