"""RQ: SimpleWorker, which runs jobs in its own process (a fork a job is several times slower)."""

import redis
from play import BODY, Count, play
from rq import Queue, SimpleWorker

count = None


def job(body):
    count()


def fill(url, messages):
    import with_rq

    queue = Queue("bench", connection=redis.Redis.from_url(url))
    for start in range(0, messages, 500):
        some = min(500, messages - start)
        queue.enqueue_many([Queue.prepare_data(with_rq.job, (BODY,), result_ttl=0) for _ in range(some)])


def consume(url, counter: Count):
    import with_rq

    with_rq.count = counter  # the job is found by import, in a module of its own
    connection = redis.Redis.from_url(url)
    SimpleWorker([Queue("bench", connection=connection)], connection=connection).work(logging_level="ERROR")


if __name__ == "__main__":
    play(fill, consume, ("rq", "redis"), "SimpleWorker (no fork), result_ttl=0", "yes: after its time-outs, as failed")
