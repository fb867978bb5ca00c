"""A client that runs for months keeps no state of consumers and queues that are gone."""

from tests.support.growth import kept_by

LARGE = b"x" * 3000


def test_a_consumer_forgets_the_messages_that_it_has_settled(queue):
    with queue.consumer() as consumer:

        def settle_some():
            queue.send_many([LARGE] * 20)
            consumer.ack(*consumer.claim(limit=20))
            return kept_by(consumer)

        before = settle_some()
        assert settle_some() < before + 20
