"""Progress in the log of a task, without a JVM."""

import logging

import pyarrow as pa

from reliq.spark import watched


def batch(rows: int, size: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([b"x" * size] * rows, pa.large_binary())})


def test_each_batch_that_comes_in_is_noted_with_its_megabytes_once_there_are_some(monkeypatch, caplog):
    monkeypatch.setattr(watched, "_EVERY", 0.0)
    with caplog.at_level(logging.INFO, "reliq.spark"):
        batches = watched.noted(iter([batch(2, 10), batch(3, 500_000)]), "job j, partition 0")
        assert next(batches).num_rows == 2
        assert caplog.messages == ["job j, partition 0: 2 rows have come in"]
        assert [one.num_rows for one in batches] == [3]
    assert caplog.messages[1:] == ["job j, partition 0: 5 rows have come in, 1 MB"]
