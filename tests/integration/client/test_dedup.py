"""A deduplication key: the first message wins, and another body under the same key is not silent."""

import reliq


def test_the_same_body_is_a_duplicate_another_one_a_conflict(app):
    queue = app.queue("q")
    first, same, other = (reliq.NewMessage(body, dedup_key="order-1") for body in ("a", "a", "b"))
    assert queue.send(first) == queue.send(same) == queue.send(other) == first.id
    assert [one.duplicate for one in (first, same, other)] == [False, True, True]
    assert [one.conflict for one in (first, same, other)] == [False, False, True]
    stats = queue.stats()
    assert (stats.ready, stats.counters["deduplicated"], stats.counters["dedup_conflicts"]) == (1, 2, 1)


def test_duplicates_and_conflicts_within_one_call_are_told(app):
    messages = [reliq.NewMessage(body, dedup_key="k") for body in ("a", "b", "a")]
    assert len(set(app.queue("q").send_many(messages))) == 1
    assert [one.conflict for one in messages] == [False, True, False]
