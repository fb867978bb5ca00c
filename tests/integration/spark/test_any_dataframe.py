"""DataFrames of any columns, all options of a message as columns, and rows that cannot be sent."""

import json
import uuid

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as sql

from reliq import ops
from reliq.model.keys import QueueKeys
from tests.integration.spark.test_batch_writer import claimed, keys_left, write

KEYS = QueueKeys("orders")

MIXED = """
    SELECT id, if(id % 3 = 0, NULL, id * 7) AS number, cast(id AS decimal(38, 10)) / 3 AS price, NULL AS nothing,
        timestamp'2026-03-29 01:59:59.123456' + make_interval(0, 0, 0, 0, cast(id AS int)) AS at, id % 2 = 0 AS even,
        timestamp_ntz'2026-03-29 02:30:00.5' AS local, date'2026-02-03' AS day, cast(id / 8 AS double) AS ratio,
        cast(0.1 AS float) AS tenth, if(id = 4, double('NaN'), 1e20d) AS huge, cast(concat('a', id) AS binary) AS raw,
        if(id = 1, NULL, array(1, NULL, id)) AS list, map('k', cast(NULL AS int), 'l"', 2) AS pairs,
        map(id, struct(id AS x)) AS by_number, struct(1 AS x, cast(NULL AS string) AS y) AS inner,
        if(id = 2, NULL, struct(array(map('z', array(1.5))) AS deep)) AS nested,
        struct(cast(NULL AS int) AS x) AS empty,
        concat('a"b\\\\c/\u00e9\n\u0001<>', id) AS text, if(id = 3, NULL, parse_json('{"a": [1, 2.5, null]}')) AS free,
        array() AS none, map() AS no_pairs, cast(12345678901234567890 AS decimal(38, 0)) AS big, 'x' AS `we"ird name`
    FROM range(0, 12, 1, 2)
"""


def test_any_row_is_sent_as_to_json_writes_it_and_read_back_cell_by_cell(spark, orders):
    spark.conf.set("spark.sql.session.timeZone", "Europe/Paris")
    try:
        rows = spark.sql(MIXED)
        write(rows)
        wanted = {
            row.id: json.loads(row.text)
            for row in rows.select("id", sql.to_json(sql.struct("*")).alias("text")).collect()
        }
        back = spark.read.format("reliq").option("queue", "orders").load()
        no_schema = (
            "free",
            "nothing",
            "none",
            "by_number",
            "no_pairs",
        )  # from_json reads no variant, void or such keys
        schema = rows.drop(*no_schema).schema
        options = {"timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSS"}
        again = back.select(sql.from_json(sql.col("value").cast("string"), schema, options).alias("row")).select(
            "row.*"
        )
        sent = rows.drop(*no_schema).withColumn("at", sql.date_trunc("millisecond", "at"))
        as_text = [sql.to_json(sql.struct("*")).alias("text")]
        assert sorted(again.select(as_text).collect()) == sorted(sent.select(as_text).collect())
        assert {row.id: row["raw"] for row in again.collect()} == {row.id: row["raw"] for row in sent.collect()}
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    messages = claimed(orders)
    assert {int(message.id): str(message.json()) for message in messages} == {
        key: str(row) for key, row in wanted.items()
    }


@pytest.mark.parametrize(
    ("select", "body"),
    [
        ("struct(id AS order, 'x' AS note)", b'{"order":7,"note":"x"}'),
        ("array(id, NULL)", b"[7,null]"),
        ("id", b"7"),
        ("cast(id AS decimal(10, 2))", b"7.00"),
        ("parse_json('[1]')", b"[1]"),
    ],
)
def test_a_value_that_is_neither_text_nor_bytes_is_json(spark, orders, select, body):
    write(spark.range(7, 8).selectExpr(f"{select} AS value"))
    assert claimed(orders)[0].body == body


def test_ids_and_keys_of_many_types_are_texts(spark, orders):
    token = str(uuid.uuid4())
    ids = ["1", f"'{token}'", "cast(7 AS bigint)", "1.50BD", "date'2026-11-21'", "timestamp'2026-11-21 08:00:00.5Z'"]
    for one in ids:
        write(spark.range(1).selectExpr("'x' AS value", f"{one} AS id", f"{one} AS key"), keyAs="order")
    wanted = ["1", token, "7", "1.50", "2026-11-21", "2026-11-21T08:00:00.500000Z"]
    assert [(message.id, message.key, message.headers) for message in claimed(orders)] == [
        (one, one, {}) for one in wanted
    ]


def test_the_whole_row_may_have_a_column_value_and_says_which_columns_are_options(spark, orders):
    row = spark.sql("SELECT 7L AS id, 'eu' AS key, 3 AS priority, 2.5d AS value, 'a.b' AS topic")
    write(row, body="row", columns="id")
    (message,) = claimed(orders)
    assert (message.id, message.key) == ("7", "")
    assert message.json() == {"id": 7, "key": "eu", "priority": 3, "value": 2.5, "topic": "a.b"}


def test_every_option_of_a_send_is_a_column(spark, orders, app):
    rows = [
        ("a", "plain", None, None, None, None, None),
        ("b", "first of k", "k", None, None, None, None),
        ("c", "second of k", "k", "high", None, None, None),
        ("d", "urgent", None, "high", None, None, None),
        ("e", "late", None, "low", None, 3_600_000, None),
        ("f", "short-lived", None, None, 60_000, None, None),
        ("g", "once", None, None, None, None, "one"),
        ("h", "twice", None, None, None, None, "one"),
    ]
    columns = "id string, value string, key string, priority string, ttl_ms long, delay_ms long, dedup_key string"
    write(spark.createDataFrame(rows, columns).coalesce(1), keyAs="order", dedupWindow="1h")
    with orders.consumer() as consumer:
        first = consumer.claim(100)
        assert sorted(message.id for message in first) == ["a", "b", "d", "f", "g"]  # c waits for b, h repeats g
        by_id = {message.id: message for message in first}
        assert by_id["b"].key == "k"
        assert 0 < by_id["f"].expires_at - by_id["f"].enqueued_at <= 61_000
        assert app.store.call(ops.command("ZCARD", KEYS.waiting)) == 1
        consumer.ack(*first)
        assert [message.id for message in consumer.claim(100)] == ["c"]
    stats = orders.stats()
    assert (stats.delayed, stats.counters["deduplicated"]) == (1, 1)
    assert 3_500_000 < app.store.call(ops.command("PTTL", KEYS.dedup("one"))) <= 3_600_000
    write(spark.createDataFrame(rows[6:7], columns), keyAs="order")
    assert orders.stats().counters["deduplicated"] == 2


def test_six_rows_of_one_key_are_held_one_at_a_time_and_in_order(spark, orders):
    write(spark.range(0, 6, 1, 1).selectExpr("cast(id AS string) AS value", "'k' AS key", "id"), keyAs="order")
    held = []
    with orders.consumer() as consumer:
        while batch := consumer.claim(10):
            assert len(batch) == 1
            held.append(batch[0].body)
            consumer.ack(*batch)
    assert held == [b"0", b"1", b"2", b"3", b"4", b"5"]


@pytest.mark.parametrize(
    ("key_as", "headers", "key"), [(None, {"key": "k"}, "k"), ("header", {"key": "k"}, ""), ("order", {}, "k")]
)
def test_a_key_was_a_header_and_is_both_for_one_version(spark, orders, key_as, headers, key):
    write(spark.range(1).selectExpr("'x' AS value", "'k' AS key"), **({"keyAs": key_as} if key_as else {}))
    (message,) = claimed(orders)
    assert (message.headers, message.key) == (headers, key)


def test_large_bodies_are_stored_apart_with_and_without_options(spark, orders, app):
    df = spark.range(0, 40, 1, 2).selectExpr(
        "repeat(cast(id % 10 AS string), if(id % 2 = 0, 5000, 10)) AS value", "id", "if(id < 4, 'k', NULL) AS key",
        "if(id = 39, 3600000, 0) AS delay_ms", "if(id IN (20, 22), 'same', NULL) AS dedup_key",
    )  # fmt: skip
    write(df, keyAs="order")
    stats = orders.stats()
    assert (stats.delayed, stats.counters["deduplicated"], stats.counters["dedup_conflicts"]) == (1, 1, 1)
    assert app.store.call(ops.command("HLEN", KEYS.bodies)) == 19
    found = {int(message.id): message.body for message in claimed(orders)}
    assert found == {
        n: str(n % 10).encode() * (5000 if n % 2 == 0 else 10)
        for n in range(40)
        if n not in (39, max({20, 22} - set(found)))
    }
    assert app.store.call(ops.command("HLEN", KEYS.bodies)) == 0
    assert keys_left(app) == set()


BAD = """
    SELECT if(id = 3, NULL, if(id = 5, repeat('x', 3000), 'ok')) AS value,
        if(id = 7, 'two words', concat('row-', id)) AS id, if(id = 9, 'urgent', 'low') AS priority
    FROM range(0, 12, 1, 2)
"""


def test_rows_that_cannot_be_sent_are_skipped_and_the_rest_is_not(spark, orders, app):
    write(spark.sql(BAD), invalid="skip", maxBody="2000")
    assert sorted(message.id for message in claimed(orders)) == sorted(
        f"row-{n}" for n in range(12) if n not in (3, 5, 7, 9)
    )
    assert orders.stats().dead == 0
    assert keys_left(app) == set()


def test_rows_that_cannot_be_sent_are_dead_letters_with_their_reason(spark, orders, app):
    write(spark.sql(BAD), invalid="dead", maxBody="2000")
    assert len(claimed(orders)) == 8
    letters = {letter.id: letter for letter in orders.dead.list(limit=10)}
    assert len(letters) == 4
    assert {letter.reason for letter in letters.values()} == {"invalid"}
    assert letters["row-5"].body == b"x" * 2000
    assert "column `priority` in row 3 of partition 1: is 'urgent'" in letters["row-9"].errors[-1].text
    stats = orders.stats()
    assert [stats.counters[name] for name in ("enqueued", "acked", "dead_lettered", "dead:invalid")] == [12, 8, 4, 4]
    read = spark.read.format("reliq").options(queue="orders", state="dead").load().where("reason = 'invalid'")
    assert read.count() == 4


def test_invalid_routes_go_to_the_queue_for_dead_letters(spark, app):
    rows = spark.sql("SELECT 'x' AS value, if(id = 1, 'not a name', 'q') AS queue FROM range(3)")
    with pytest.raises(PySparkException, match=r'option."deadQueue", "orders"'):
        rows.write.format("reliq").option("invalid", "dead").mode("append").save()
    rows.write.format("reliq").options(invalid="dead", deadQueue="bad").mode("append").save()
    assert (app.queue("q").stats().ready, app.queue("bad").stats().dead) == (2, 1)


def test_an_invalid_row_fails_at_the_first_attempt_and_with_the_sentence_first(spark, orders):
    with pytest.raises(PySparkException) as error:
        write(spark.sql(BAD))
    first = str(error.value).partition("\n")[0]
    assert "Traceback" not in str(error.value)
    assert "column `" in first and " of partition " in first and 'option("invalid", "skip")' in first
