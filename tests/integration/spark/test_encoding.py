"""Elements that are made by columns are those that reliq.message makes and reads."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema

from reliq.contract.values import is_id
from reliq.errors import InvalidMessage, InvalidName
from reliq.features.staging.spark.naming import id_prefix
from reliq.model.keys import instance_queue, new_owner
from reliq.model.message import Message
from reliq.model.partitions import UNPARTITIONED
from reliq.ops.chunks import LARGEST, MOST_MESSAGES, Chunk, bodies_of, chunks_of, cuts, elements_of
from reliq.ops.request import Packed
from reliq.spark.encoding import merged
from reliq.spark.options import Given
from reliq.spark.rows import Rows
from reliq.spark.rules import Rules
from reliq.spark.spread import Spread
from reliq.spark.targets import Targets
from reliq.spark.write_columns import write_columns_of


def data_of(chunk: Chunk) -> bytes:
    return chunk.head + chunk.frames


def packed_in(chunk: Chunk) -> Packed:
    packed = elements_of(data_of(chunk))
    assert packed is not None
    return packed


def messages_of(chunk: Chunk) -> list[Message]:
    packed = packed_in(chunk)
    found = [Message.decode("q", element) for element in strings_of(b"".join(packed.pieces))]
    assert len(found) == packed.count
    return found


def strings_of(rest: bytes) -> Iterator[bytes]:
    while rest:
        length, _, rest = rest[1:].partition(b"\r\n")
        yield rest[: int(length)]
        rest = rest[int(length) + 2 :]


def encoder(batch: pa.RecordBatch, max_body: int = 1_000_000) -> Rows:
    columns = write_columns_of(from_arrow_schema(batch.schema), None, None, "q")
    return Rows("job-0", 0, columns, Rules(max_body), Targets("q"), Spread(lambda _: UNPARTITIONED, 0))


def rows_of(columns: dict) -> list[Message]:
    """The messages of the rows, with their bodies wherever they are."""
    batch = pa.RecordBatch.from_pydict(columns)
    found: list[Message] = []
    apart: dict[bytes, bytes] = {}
    for _, chunks in encoder(batch).chunks(batch):
        for one in chunks:
            bodies = bodies_of(data_of(one))
            if bodies is None:
                found += messages_of(one)
            else:
                strings = list(strings_of(b"".join(bodies.pieces)))
                apart |= dict(zip(strings[::2], strings[1::2], strict=True))
    for message in found:
        if message.reference:
            message.with_body(apart.pop(message.reference))
    assert not apart
    return found


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.binary(max_size=70_000), st.text("abc-_!~", min_size=1, max_size=128)), min_size=1))
def test_any_body_and_any_id_come_out_as_they_went_in(rows):
    found = rows_of({"value": [body for body, _ in rows], "id": [identity for _, identity in rows]})
    assert [(message.body, message.id) for message in found] == rows
    assert all((one.deliveries, one.failures, one.redelivered) == (0, 0, False) for one in found)


def test_small_and_large_bodies_of_one_batch_keep_their_rows():
    bodies = [bytes([65 + number]) * size for number, size in enumerate((10, 1024, 1025, 0, 70_000, 1))]
    found = rows_of({"value": bodies})
    assert [message.body for message in found] == bodies
    assert [bool(message.reference) for message in found] == [False, False, True, False, True, False]
    assert max(len(message.element) for message in found if message.reference) < 200


def test_no_two_elements_are_equal():
    found = rows_of({"value": ["x"] * 1000, "id": ["same"] * 1000})
    assert len({message.element for message in found}) == 1000


def test_an_element_never_ends_with_a_body_that_reads_as_a_key():
    for bytes_after in (15, 16):
        body = b"\xa5group\xb0" + b"0" * bytes_after
        (message,) = rows_of({"value": [body]})
        assert (message.body, message.group, message.element[:1]) == (body, "", b"\x99")


def test_the_ids_of_a_job_are_valid_however_long_its_name_is_and_follow_from_it():
    for length in range(1, 129):
        assert is_id(f"{id_prefix('j' * length)}-{2**31}-{10**12 - 1}")
    assert id_prefix("j" * 104) == "j" * 104
    long = [id_prefix("j" * 127 + end) for end in "aba"]
    assert long[0] == long[2] != long[1]


def test_a_slice_of_a_batch_is_encoded_alone():
    whole = pa.RecordBatch.from_pydict({"value": [f"{number}" for number in range(10)]})
    ((_, chunks),) = encoder(whole).chunks(whole.slice(3, 4))
    (chunk,) = chunks
    assert [message.body for message in messages_of(chunk)] == [b"3", b"4", b"5", b"6"]


def test_rows_are_numbered_across_batches():
    batch, found = pa.RecordBatch.from_pydict({"value": ["x"] * 6}), []
    rows = encoder(batch)
    for _ in range(2):
        for _, chunks in rows.chunks(batch):
            found += [message.id for chunk in chunks for message in messages_of(chunk)]
    assert found == [f"job-0-{number}" for number in range(12)]


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"value": ["x", None]}, "column `value` in row 1 of partition 0: is null"),
        ({"value": ["x", "y" * 1_000_001]}, "column `value` in row 1 of partition 0: the body has 1,000,001 bytes"),
        ({"value": ["x", "y"], "id": ["a", "b\n"]}, "column `id` in row 1 of partition 0"),
        ({"value": ["x", "y"], "id": ["a", "é"]}, "column `id` in row 1 of partition 0"),
        ({"value": ["x", "y"], "delay_ms": [None, -1]}, "column `delay_ms` in row 1 of partition 0: is -1"),
        ({"value": ["x", "y"], "key": [b"a", b"\xff"]}, "column `key` in row 1 of partition 0: b'.xff' is not UTF-8"),
        ({"value": ["x", "y"], "key": ["a", ""]}, "column `key` in row 1 of partition 0: key is ''"),
        ({"value": ["x", "y"], "key": ["a", "k" * 513]}, "column `key` in row 1 of partition 0: key is 'kkk"),
        (
            {"value": ["x", "y"], "priority": ["low", "urgent"]},
            "column `priority` in row 1 of partition 0: is 'urgent'",
        ),
        (
            {"value": ["x", "y"], "ttl_ms": [1, 0]},
            "column `ttl_ms` in row 1 of partition 0: is 0: it must be from 1 to",
        ),
        ({"value": ["x", "y"], "dedup_key": ["a", ""]}, "column `dedup_key` in row 1 of partition 0"),
    ],
)
def test_one_bad_row_and_no_row_of_its_batch_is_answered(columns, sentence):
    batch = pa.RecordBatch.from_pydict(columns)
    with pytest.raises(InvalidMessage, match=sentence):
        next(iter(encoder(batch).chunks(batch)))


@given(st.lists(st.integers(0, LARGEST // 2), max_size=40))
def test_chunks_have_everything_once_and_none_is_too_large(sizes):
    elements = [bytes(size) for size in sizes]
    chunks = list(chunks_of(elements))
    assert sum(chunk.messages for chunk in chunks) == len(sizes)
    assert b"".join(piece for chunk in chunks for piece in packed_in(chunk).pieces).count(b"$") == len(sizes)
    assert all(chunk.size <= LARGEST + 100 or chunk.messages == 1 for chunk in chunks)


def test_a_chunk_has_no_more_messages_than_it_may():
    ends = list(cuts(range(2 * MOST_MESSAGES + 2)))
    assert ends == [(0, MOST_MESSAGES), (MOST_MESSAGES, 2 * MOST_MESSAGES), (2 * MOST_MESSAGES, 2 * MOST_MESSAGES + 1)]


def test_a_row_cannot_name_the_queue_of_a_broadcast():
    name = instance_queue("orders", new_owner())
    with pytest.raises(InvalidName, match="belongs to a broadcast"):
        Targets(column="queue").of(name)
    with pytest.raises(InvalidName, match="belongs to a broadcast"):
        Given({"queue": name}, None).for_writing()


def test_rows_for_several_queues_are_taken_together_up_to_a_size():
    """Each queue's share of a batch is a call to Redis: of small batches it would be a few rows."""
    batches = [pa.record_batch({"value": [f"{batch}-{row}" for row in range(10)]}) for batch in range(7)]
    sizes = [batch.nbytes for batch in batches]
    together = list(merged(iter(batches), sum(sizes[:3])))
    assert [batch.num_rows for batch in together] == [30, 30, 10]
    assert pa.Table.from_batches(together).equals(pa.Table.from_batches(batches).combine_chunks())
    assert list(merged(iter(()), 100)) == []
