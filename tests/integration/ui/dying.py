"""Messages that die, for pages that show them."""

from typing import Any

import reliq


def bury(app: reliq.Reliq, queue: str, bodies: list[Any], reason: str = "no such order", **options: Any) -> list[str]:
    """Send these bodies and have a consumer refuse them; the ids, in the order in which they died."""
    app.queue(queue).send_many(bodies, **options)
    with app.queue(queue).consumer() as consumer:
        messages = consumer.claim(limit=len(bodies))
        for message in messages:
            consumer.dead(message, reason)
    return [message.id for message in messages]
