"""HEAD answers what GET would, without the body."""

import httpx
import pytest

PATHS = ["/healthz", "/readyz", "/openapi.json", "/metrics", "/", "/v1/queues", "/v1/queues/none", "/v1/nothing"]


@pytest.mark.parametrize("path", PATHS)
def test_head_answers_the_head_of_get(service: httpx.Client, path: str) -> None:
    asked, headed = service.get(path), service.head(path)
    assert (headed.status_code, headed.content) == (asked.status_code, b"")
    assert headed.headers["content-type"] == asked.headers["content-type"]
    assert headed.headers["cache-control"] == asked.headers["cache-control"]
    assert abs(int(headed.headers["content-length"]) - int(asked.headers["content-length"])) < 5000
    assert service.get("/healthz").json() == {"status": "ok"}  # the connection goes on


def test_head_of_a_post_is_refused(service: httpx.Client, name: str) -> None:
    answer = service.head(f"/v1/queues/{name}/messages")
    assert (answer.status_code, answer.headers["allow"], answer.content) == (405, "POST", b"")


def test_head_of_a_stream_ends(service: httpx.Client, orders, name: str) -> None:
    one = orders.send("x")
    path = f"/v1/queues/{name}/messages/{one}/output"
    answer = service.head(path, headers={"accept": "text/event-stream"}, timeout=10)
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert service.get("/healthz").json() == {"status": "ok"}
