"""RabbitMQ with pika: a durable queue, persistent messages, prefetch 1000, acknowledged a hundred at a time."""

import pika
from play import BODY, play

ACK_EVERY = 100


def _channel(url):
    channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
    channel.queue_declare("bench", durable=True)
    return channel


def fill(url, messages):
    channel = _channel(url)
    persistent = pika.BasicProperties(delivery_mode=2)
    for _ in range(messages):
        channel.basic_publish("", "bench", BODY.encode(), persistent)
    channel.connection.close()


def consume(url, count):
    channel = _channel(url)
    channel.basic_qos(prefetch_count=1000)

    def handle(channel, method, properties, body):
        count()
        if count.runs % ACK_EVERY == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)

    channel.basic_consume("bench", handle)
    channel.start_consuming()


if __name__ == "__main__":
    play(fill, consume, ("pika",), f"durable, persistent, prefetch 1000, one ack for {ACK_EVERY} messages")
