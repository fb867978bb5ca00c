"""Texts that are not UTF-8, headers with gaps, times of any zone: an invalid row is refused, every other is exact."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql import types as spark

from reliq.errors import InvalidMessage
from reliq.model.message import Message
from reliq.model.partitions import UNPARTITIONED
from reliq.ops.chunks import DEAD_PLACE
from reliq.spark.as_json import texts_of
from reliq.spark.rows import Rows
from reliq.spark.rules import Invalid, Rules
from reliq.spark.spread import Spread
from reliq.spark.targets import Targets
from reliq.spark.write_columns import write_columns_of
from tests.integration.spark.test_encoding import data_of, strings_of

TEXT = spark.StringType()
BAD = b'q"\xff'


def texts(*values: bytes | None) -> pa.Array:
    """A column as Spark sends it: nothing has looked whether its bytes are UTF-8."""
    return pa.array(values, pa.binary()).view(pa.string())


def rows_of(columns: dict[str, tuple[spark.DataType, pa.Array]], invalid: Invalid, **options):
    schema = spark.StructType([spark.StructField(name, kind) for name, (kind, _) in columns.items()])
    written = write_columns_of(schema, None, None, options.get("queue", "q") or None)
    rules = Rules(1_000_000, invalid=invalid, dead_queue="q", key_as="order")
    targets = Targets(options.get("queue", "q"), options.get("column", ""))
    rows = Rows("job-0", 0, written, rules, targets, Spread(lambda _: UNPARTITIONED, 0))
    batch = pa.RecordBatch.from_arrays([array for _, array in columns.values()], list(columns))
    return rows, batch


def sent(columns, invalid="skip", **options):
    """The messages of the rows, and those that became dead letters."""
    rows, batch = rows_of(columns, invalid, **options)
    good: list[Message] = []
    dead: list[Message] = []
    for _, chunks in rows.chunks(batch):
        for chunk in chunks:
            data = data_of(chunk)
            strings = list(strings_of(data[data.index(b"\n") + 1 :]))
            if not data.startswith(b"%"):  # else pairs of place and element
                strings = [part for element in strings for part in (b"0", element)]
            for place, element in zip(strings[::2], strings[1::2], strict=True):
                (dead if place == DEAD_PLACE else good).append(Message.decode("q", element))
    return good, dead


ITEMS = spark.ArrayType(TEXT)
INNER = spark.StructType([spark.StructField("a", TEXT)])
PAIRS = spark.MapType(TEXT, TEXT)
HEADER = spark.StructType([spark.StructField("key", TEXT), spark.StructField("value", spark.BinaryType())])


@pytest.mark.parametrize(
    ("kind", "made"),  # made when it runs: the first array of a process imports pandas, which takes a second
    [
        (TEXT, lambda bad: bad),
        (INNER, lambda bad: pa.StructArray.from_arrays([bad], ["a"])),
        (ITEMS, lambda bad: pa.ListArray.from_arrays([0, 1, 2, 3], bad)),
        (PAIRS, lambda bad: pa.MapArray.from_arrays([0, 1, 2, 3], texts(b"k", b"k", b"k"), bad)),
        (PAIRS, lambda _: pa.MapArray.from_arrays([0, 1, 2, 3], texts(b"ok", BAD, b"z"), texts(b"v", b"v", b"v"))),
    ],
)
def test_a_row_with_text_that_is_not_utf_8_is_invalid_and_the_others_are_json(kind, made):
    column = made(texts(b"ok", BAD, None))
    columns = {"n": (spark.IntegerType(), pa.array([0, 1, 2], pa.int32())), "data": (kind, column)}
    good, _ = sent(columns)
    assert [message.json()["n"] for message in good] == [0, 2]
    good, (letter,) = sent(columns, "dead")
    assert (len(good), letter.json()["n"]) == (2, 1)
    assert letter.extra is not None
    assert "column `data` in row 1 of partition 0: has text that is not UTF-8" in letter.extra.errors[-1].text
    with pytest.raises(InvalidMessage, match="column `data` in row 1 of partition 0: has text that is not UTF-8"):
        sent(columns, "fail")


@pytest.mark.parametrize("name", ["id", "key", "priority", "dedup_key", "headers", "queue"])
def test_an_option_that_is_not_utf_8_makes_its_row_invalid_and_no_other(name):
    column: tuple[spark.DataType, pa.Array] = (TEXT, texts(b"low", BAD))
    if name == "headers":
        column = (PAIRS, pa.MapArray.from_arrays([0, 1, 2], texts(b"k", b"k"), column[1]))
    options = {"queue": "", "column": "queue"} if name == "queue" else {}
    columns = {"value": (TEXT, texts(b"a", b"b")), name: column}
    for invalid, letters in (("skip", 0), ("dead", 1)):
        good, dead = sent(columns, invalid, **options)
        assert [message.body for message in good] == [b"a"]
        assert len(dead) == letters


def test_text_that_is_the_body_itself_is_sent_as_it_is():
    good, _ = sent({"value": (TEXT, texts(b"a", BAD))}, "fail")
    assert [message.body for message in good] == [b"a", BAD]


def test_a_dead_letter_has_an_id_of_its_own_if_that_of_its_row_is_invalid_too():
    columns = {"value": (TEXT, texts(None, None)), "id": (TEXT, texts(b"two words", None))}
    _, dead = sent(columns, "dead")
    assert [message.id for message in dead] == ["job-0-0", "job-0-1"]


def test_a_null_in_an_array_of_headers_makes_its_row_invalid():
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[{"key": "a", "value": b"1"}], [None], [{"key": None, "value": b"1"}], None], kind)
    columns = {"value": (TEXT, texts(b"a", b"b", b"c", b"d")), "headers": (spark.ArrayType(HEADER), headers)}
    good, _ = sent(columns)
    assert [(message.body, message.headers) for message in good] == [(b"a", {"a": "1"}), (b"d", {})]
    with pytest.raises(
        InvalidMessage, match="column `headers` in row 1 of partition 0: an element of the array is null"
    ):
        sent(columns, "fail")


def written(zone: str, *moments: datetime) -> list[str]:
    column = pa.array(moments, pa.timestamp("us", "UTC")).cast(pa.timestamp("us", zone))
    return [text.strip('"') for text in texts_of(column, spark.TimestampType()).to_pylist()]


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        ("GMT+8", "2026-11-22T03:00:00.000+08:00"),
        ("UTC+3", "2026-11-21T22:00:00.000+03:00"),
        ("UTC-03:30", "2026-11-21T15:30:00.000-03:30"),
        ("UT+0530", "2026-11-22T00:30:00.000+05:30"),
        ("-7", "2026-11-21T12:00:00.000-07:00"),
        ("Z", "2026-11-21T19:00:00.000Z"),
        ("GMT", "2026-11-21T19:00:00.000Z"),
        ("UTC+00:00", "2026-11-21T19:00:00.000Z"),
        ("Europe/Paris", "2026-11-21T20:00:00.000+01:00"),
        ("PST", "2026-11-21T19:00:00.000Z"),  # a zone of Java that Arrow does not know
        ("+01:00:30", "2026-11-21T19:00:00.000Z"),
    ],
)
def test_every_time_zone_of_a_session_gives_the_instant(zone, text):
    moment = datetime(2026, 11, 21, 19, tzinfo=UTC)
    assert written(zone, moment) == [text]
    assert datetime.fromisoformat(text) == moment


@pytest.mark.parametrize("zone", ["Europe/Amsterdam", "America/New_York", "Africa/Monrovia", "Asia/Kolkata", "UTC"])
def test_no_instant_loses_anything_however_old_it_is_and_in_hours_that_the_clocks_repeat(zone):
    years = [datetime(year, 7, 1, 12, 34, 56, 789_000, UTC) for year in (1583, 1880, 1900, 1936, 1971, 2026)]
    repeated = [datetime(2025, 10, 26, hour, 30, tzinfo=UTC) for hour in (0, 1)]  # Amsterdam
    repeated += [datetime(2025, 11, 2, hour, 30, tzinfo=UTC) for hour in (5, 6)]  # New York
    moments = [*years, *repeated]
    assert [datetime.fromisoformat(text) for text in written(zone, *moments)] == moments


def test_nulls_among_times_stay_nulls():
    column = pa.array([None, 0], pa.timestamp("us", "GMT+8"))
    assert texts_of(column, spark.TimestampType()).to_pylist() == [None, '"1970-01-01T08:00:00.000+08:00"']


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        ("UTC", "+55840-11-08T22:13:20.123Z"),
        ("Europe/Paris", "+55840-11-08T23:13:20.123+01:00"),
        ("-07:00", "+55840-11-08T15:13:20.123-07:00"),
        (None, "+55840-11-08T22:13:20.123"),
    ],
)
def test_milliseconds_taken_for_seconds_are_the_year_that_spark_takes_them_for(zone, text):
    column = pa.array([1_700_000_000_000_123_456, None, 0], pa.timestamp("us", zone))
    found = texts_of(column, spark.TimestampType() if zone else spark.TimestampNTZType()).to_pylist()
    assert found[:2] == [f'"{text}"', None]
    assert "19" in found[2]


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "+10000-01-01T00:00:00.000Z"),
        (-62_167_219_200_000, "0000-01-01T00:00:00.000Z"),
        (-1_577_847_600_000_000, "-48030-01-01T00:00:00.000Z"),
    ],
)
def test_times_of_any_year(ms, text):
    assert texts_of(pa.array([ms * 1000], pa.timestamp("us", "UTC")), spark.TimestampType())[0].as_py() == f'"{text}"'


@pytest.mark.parametrize(
    ("days", "text"),
    [
        (100_000_000, "+275760-09-13"),
        (3_000_000, "+10183-09-21"),
        (-100_000_000, "-271821-04-20"),
        (-719_528, "0000-01-01"),
        (20_000, "2024-10-04"),
        (None, None),
    ],
)
def test_days_of_any_year(days, text):
    found = texts_of(pa.array([days], pa.int32()).cast(pa.date32()), spark.DateType())[0].as_py()
    assert found == (text and f'"{text}"')
