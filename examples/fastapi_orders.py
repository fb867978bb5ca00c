"""FastAPI with a client of reliq: `python examples/fastapi_orders.py`. Starts a Redis and a server of its own.

Needs the extras: `pip install '.[api,embedded]'` in reliq's source folder.
"""

import json
import threading
import time
import urllib.request
from typing import Any

import uvicorn
from fastapi import FastAPI

import reliq
from reliq.contrib.fastapi import Client, lifespan
from reliq.embedded import EmbeddedRedis


def application(url: str) -> FastAPI:
    app = FastAPI(lifespan=lifespan(url))

    @app.post("/orders", status_code=202)
    async def order(body: dict[str, Any], client: Client) -> dict[str, str]:
        return {"id": await client.queue("orders").send(body)}

    return app


def main() -> None:
    with EmbeddedRedis() as redis:
        server = uvicorn.Server(uvicorn.Config(application(redis.url), port=0, log_level="warning"))
        thread = threading.Thread(target=server.run)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        for number in range(3):
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/orders", json.dumps({"order": number}).encode(),
                {"content-type": "application/json"},
            )  # fmt: skip
            with urllib.request.urlopen(request) as answer:
                print(answer.status, answer.read().decode())
        server.should_exit = True
        thread.join()
        with reliq.Reliq(redis.url) as app, app.queue("orders").consumer() as consumer:
            for message in consumer.claim(limit=10):
                print("shipping", message.json())
                consumer.ack(message)


if __name__ == "__main__":
    main()
