"""What the workers of docker-compose.yml run. Put your own in its place: RELIQ_APP and RELIQ_APP_FOLDER in .env."""

import logging

import reliq

log = logging.getLogger("tasks")
app = reliq.Reliq()


@app.handler("orders", retry=reliq.exponential(first=10, factor=3, jitter=0.2, limit=5), time_limit=60)
def ship(message: reliq.Message) -> None:
    """Write down that it came."""
    log.info("shipped id=%s bytes=%d", message.id, len(message.body))
