"""A Celery application with tasks that send: once at its import, in Celery's main process, and then in its pool."""

import os

import celery

import reliq

app = celery.Celery(broker=os.environ["BROKER"], backend=os.environ["BROKER"])
app.conf.broker_connection_retry_on_startup = True
queue = reliq.Reliq().queue("orders")
first = queue.send("sent by the main process, before it forks")


@app.task
def send(number: int) -> tuple[int, list[str]]:
    return os.getpid(), [first, queue.send(number), *queue.send_many([number, number])]
