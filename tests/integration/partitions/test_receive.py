"""Receiving from a queue with partitions."""


def test_an_attempt_is_repeated_in_whichever_partition_it_was(orders):
    for number in range(40):
        orders.send("x", key=f"key {number}")
    first = orders.receive(limit=2, attempt="one")
    assert len(first) == 2
    for _ in range(6):
        again = orders.receive(limit=2, attempt="one")
        assert [one.receipt for one in again] == [one.receipt for one in first]
    assert {one.message.id for one in orders.receive(limit=2, attempt="two")}.isdisjoint(
        one.message.id for one in first
    )
