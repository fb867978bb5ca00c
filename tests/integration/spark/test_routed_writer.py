"""Rows that say themselves where they go: by a column `queue`, or by a column `topic`."""

import pytest
from pyspark.errors import PySparkException

from reliq import ops
from reliq.model.keys import SEVERAL


def write(df, **options):
    df.write.format("reliq").options(**options).mode("append").save()


def orders_in(app, queue: str) -> list[int]:
    with app.queue(queue).consumer() as consumer:
        found = []
        while batch := consumer.claim(1000):
            found += [message.json()["order"] for message in batch]
            consumer.ack(*batch)
    return sorted(found)


def left_behind(app) -> list[bytes]:
    """What a job that is over must not leave, in any queue."""
    patterns = ("*:staged:*", "*:parts:*", "*:jobs")
    return [key for pattern in patterns for key in app.store.call(ops.command("KEYS", pattern))]


def routed(spark, column: str, values: str, count: int = 600):
    """Rows of two partitions; `values` is an SQL expression of `id`."""
    rows = spark.range(0, count, 1, 2)
    return rows.selectExpr("to_json(struct(id AS order)) AS value", f"{values} AS {column}")


def test_each_row_goes_once_into_the_queue_it_names(spark, app):
    write(routed(spark, "queue", "concat('q', id % 3)"))
    assert [orders_in(app, f"q{number}") for number in range(3)] == [list(range(n, 600, 3)) for n in range(3)]
    assert app.queues() == ["q0", "q1", "q2"]
    assert left_behind(app) == []


def test_each_row_goes_into_all_queues_that_are_bound_to_its_topic(spark, app):
    app.subscribe("mail", "order.*")
    app.subscribe("audit", "#")
    write(routed(spark, "topic", "if(id % 2 = 0, 'order.created', 'bill.paid')"))
    with app.queue("mail").consumer() as consumer:
        (mail,) = consumer.claim(1)
        consumer.release(mail)
    with app.queue("audit").consumer() as consumer:
        ids = {message.id: message.routing_key for message in consumer.claim(1000)}
    assert ids[mail.id] == mail.routing_key == "order.created"
    assert sorted(set(ids.values())) == ["bill.paid", "order.created"]
    assert (len(ids), app.queue("mail").stats().ready) == (600, 300)
    assert left_behind(app) == []


def test_a_task_that_is_run_again_decides_by_the_bindings_of_its_job(spark, app, url):
    app.subscribe("mail", "order.created")

    def bind_another_and_fail(batches):
        from pyspark import TaskContext

        import reliq

        yield from batches
        task = TaskContext.get()
        assert task is not None
        if not task.attemptNumber():
            reliq.Reliq(url).subscribe("late", "#")
            raise RuntimeError("the task fails after the bindings have changed")

    rows = routed(spark, "topic", "'order.created'")
    write(rows.mapInArrow(bind_another_and_fail, rows.schema))
    assert orders_in(app, "mail") == list(range(600))
    assert app.queue("late").stats().ready == 0
    assert left_behind(app) == []


def test_rows_that_no_queue_is_bound_for_are_counted_as_unroutable(spark, app):
    app.subscribe("mail", "order.*")
    write(routed(spark, "topic", "if(id < 10, 'bill.paid', 'order.created')"))
    assert orders_in(app, "mail") == list(range(10, 600))
    assert app.topics.stats().unroutable == 10


def test_rows_that_no_queue_is_bound_for_go_to_the_alternate_queue(spark, app):
    app.topics.set_alternate("lost")
    write(routed(spark, "topic", "'bill.paid'", 20))
    assert orders_in(app, "lost") == list(range(20))
    assert app.topics.stats().unroutable == 0


@pytest.mark.parametrize(
    ("column", "values", "options", "sentence"),
    [
        ("queue", "if(id = 500, '}x', 'q')", {}, "column `queue` in row 200 of partition 1: queue name '}x'"),
        ("queue", "if(id = 500, NULL, 'q')", {}, "column `queue` in row 200 of partition 1: is null"),
        ("topic", "if(id = 500, 'a b', 'order')", {}, "column `topic` in row 200 of partition 1: routing key 'a b'"),
        ("topic", "if(id = 500, NULL, 'order')", {}, "column `topic` in row 200 of partition 1: is null"),
        (
            "topic",
            "if(id = 500, 'bill', 'order')",
            {"mandatory": "true"},
            "column `topic` in row 200 of partition 1: no queue is bound to a pattern that matches 'bill'",
        ),
    ],
)
def test_one_row_that_cannot_go_anywhere_and_none_goes(spark, app, column, values, options, sentence):
    app.subscribe("q", "order")
    with pytest.raises(PySparkException, match=sentence):
        write(routed(spark, column, values), **options)
    assert app.queue("q").stats().ready == 0
    assert left_behind(app) == []


def test_one_full_queue_and_no_queue_gets_anything(spark, app):
    app.queue("q1").configure(max_length=10)
    with pytest.raises(PySparkException, match="'q1' holds 0 of at most 10 messages"):
        write(routed(spark, "queue", "concat('q', id % 2)"))
    assert [app.queue(queue).stats().ready for queue in ("q0", "q1")] == [0, 0]
    assert left_behind(app) == []


def test_a_named_job_of_several_queues_is_written_once(spark, app):
    for _ in range(2):
        write(routed(spark, "queue", "concat('q', id % 2)"), job="nightly", application="shop")
    assert [app.queue(queue).stats().ready for queue in ("q0", "q1")] == [300, 300]
    assert app.store.call(ops.command("HGET", SEVERAL.job("shop@nightly"), "state")) == b"done"


@pytest.mark.parametrize(
    ("select", "options", "sentence"),
    [
        (["'x' AS value"], {}, "name the queue"),
        (["'x' AS value", "'a' AS queue", "'a' AS topic"], {}, "columns `topic` and `queue` both say"),
        (["'x' AS value", "1 AS queue"], {}, "column `queue` is int; it must be string"),
        (["'x' AS value", "'a' AS queue"], {"mandatory": "true"}, "option mandatory is for rows with a column `topic`"),
        (["'x' AS value", "'a' AS topic"], {"mandatory": "maybe"}, "option mandatory is 'maybe'"),
    ],
)
def test_where_rows_go_is_checked_on_the_driver(spark, app, select, options, sentence):
    with pytest.raises(PySparkException, match=sentence):
        write(spark.range(1).selectExpr(*select), **options)
    assert app.store.call(ops.command("DBSIZE")) == 0


def test_the_option_queue_stands_above_the_column(spark, app):
    write(routed(spark, "queue", "'elsewhere'", 10), queue="here")
    assert orders_in(app, "here") == list(range(10))
    assert app.queues() == ["here"]


def test_dead_letters_of_several_queues_go_back_each_to_its_own(spark, app):
    for queue in ("a", "b"):
        app.queue(queue).send({"order": 1}, id=f"of-{queue}")
        with app.queue(queue).consumer() as consumer:
            consumer.dead(*consumer.claim(1), "no luck")
    letters = [spark.read.format("reliq").options(queue=queue, state="dead").load() for queue in ("a", "b")]
    write(letters[0].union(letters[1]))
    for queue in ("a", "b"):
        with app.queue(queue).consumer() as consumer:
            assert [message.id for message in consumer.claim(10)] == [f"of-{queue}"]


def test_a_replayed_micro_batch_adds_nothing_to_any_queue(spark, app, tmp_path):
    from tests.integration.spark.test_streams import forget_commit, put, rows_of, run

    (tmp_path / "in").mkdir()
    for number in range(2):
        put(tmp_path / "in", f"f{number}", range(number * 10, number * 10 + 10))
        rows = rows_of(spark, tmp_path / "in").selectExpr("value", "concat('q', length(value) % 2) AS queue")
        run(rows.writeStream.format("reliq"), tmp_path)
        forget_commit(tmp_path)
    found = orders_in(app, "q0") + orders_in(app, "q1")
    assert sorted(found) == list(range(20))
    assert left_behind(app) == []
