"""Traces of a real service, as a collector receives them."""

from __future__ import annotations

from tests.acceptance.collector import Collector
from tests.acceptance.processes import Several


def test_a_request_its_batch_a_merge_and_its_spark_job_are_spans(working: Several, collector: Collector) -> None:
    table = working.make_table("traced")
    caller, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    posted = table.post_batch([{"id": 1, "n": 1}], traceparent=f"00-{caller}-{parent}-01").json()
    refused = table.post_batch([{"id": 7, "n": "secret"}])
    merge = table.merge()
    assert (refused.status_code, merge["state"]) == (400, "succeeded")

    batch = collector.wait_for(lambda one: one.attributes.get("keyfold.batch") == posted["id"])
    request = collector.wait_for(lambda one: one.id == batch.parent)
    assert (batch.name, batch.trace, batch.service, batch.failed) == ("batch", caller, "keyfold", False)
    assert (request.trace, request.parent, request.attributes["http.response.status_code"]) == (caller, parent, 202)

    folded = collector.wait_for(lambda one: one.attributes.get("keyfold.merge") == merge["id"])
    together = collector.wait_for(lambda one: one.id == folded.parent)
    job = collector.wait_for(lambda one: one.name == "job" and one.parent == together.id)
    assert (together.name, together.parent, together.attributes["keyfold.merges"]) == ("round", "", 1)
    assert (folded.name, folded.attributes["keyfold.outcome"]) == ("merge", "succeeded")
    assert (job.name, job.attributes["keyfold.spark.tag"]) == ("job", f"keyfold-{folded.trace}")

    failed = collector.wait_for(lambda one: one.name == "batch" and one.failed)
    assert "secret" not in str(failed)
