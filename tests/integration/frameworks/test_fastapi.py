"""FastAPI's dependency: one client for each application, open as long as it runs."""

import asyncio
import contextlib
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

import reliq
from reliq.contrib.fastapi import Client, client_of, lifespan
from reliq.errors import InvalidSetting
from reliq.testing import Bench

pytest_plugins = ["reliq.testing.fixtures"]

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # newer ones want httpx2
    from fastapi.testclient import TestClient


def ordering(app: FastAPI) -> FastAPI:
    @app.post("/orders")
    async def order(body: dict[str, Any], client: Client) -> str:
        return await client.queue("orders").send(body)

    return app


def calling(app: FastAPI, story: Callable[[httpx.AsyncClient], Awaitable[Any]]) -> Any:
    """Run a story with an HTTP client, while the application is running."""

    async def run() -> Any:
        transport = httpx.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://x") as http,
        ):
            return await story(http)

    return asyncio.run(run())


def test_a_route_sends_with_the_client_of_its_application(app: reliq.Reliq, url: str) -> None:
    async def story(http: httpx.AsyncClient) -> list[str]:
        return [(await http.post("/orders", json={"order": number})).json() for number in range(3)]

    ids = calling(ordering(FastAPI(lifespan=lifespan(url))), story)
    with app.queue("orders").consumer() as consumer:
        assert [(one.id, one.json()) for one in consumer.claim(limit=5)] == [
            (identity, {"order": number}) for number, identity in enumerate(ids)
        ]


def test_a_lifespan_of_ones_own_runs_inside(app: reliq.Reliq, url: str) -> None:
    @contextlib.asynccontextmanager
    async def mine(fastapi: FastAPI) -> AsyncIterator[None]:
        await client_of(fastapi).queue("starts").send("started")
        yield

    async def story(http: httpx.AsyncClient) -> None:
        assert app.queue("starts").stats().ready == 1

    calling(FastAPI(lifespan=lifespan(url, within=mine)), story)


def test_the_state_of_a_lifespan_of_ones_own_reaches_the_requests(app: reliq.Reliq, url: str) -> None:
    @contextlib.asynccontextmanager
    async def mine(_: FastAPI) -> AsyncIterator[dict[str, str]]:
        yield {"database": "open"}

    async def state() -> Any:
        fastapi = FastAPI(lifespan=lifespan(url, within=mine))
        async with fastapi.router.lifespan_context(fastapi) as state:
            return state

    assert asyncio.run(state()) == {"database": "open"}


def test_a_mounted_application_shares_the_client_of_the_one_around_it(app: reliq.Reliq, url: str) -> None:
    around, mounted = FastAPI(lifespan=lifespan(url)), ordering(FastAPI())
    around.mount("/shop", mounted)
    mounted.state = around.state

    async def story(http: httpx.AsyncClient) -> None:
        assert (await http.post("/shop/orders", json={"order": 1})).is_success

    calling(around, story)
    assert app.queue("orders").stats().ready == 1


@pytest.mark.parametrize("given", ["the application", "RELIQ_URL"])
def test_on_a_bench_its_client_sends_to_the_server_of_the_bench(
    url: str, on_server: Callable[[reliq.Reliq], Bench], monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    live = reliq.Reliq(url)
    handled: list[Any] = []
    live.handler("orders")(lambda message: handled.append(message.json()))
    web = ordering(FastAPI(lifespan=lifespan(live) if given == "the application" else lifespan()))
    bench = on_server(live)
    if given == "RELIQ_URL":
        monkeypatch.setenv("RELIQ_URL", bench.url)
    with TestClient(web) as http:
        assert http.post("/orders", json={"order": 1}).status_code == 200
    assert (bench.work_off(), handled) == (1, [{"order": 1}])
    bench.close()
    assert live.queues() == []


@pytest.mark.parametrize("kind", ["offline", "on_server"])
def test_on_a_bench_a_client_of_the_live_server_is_refused(url: str, request: pytest.FixtureRequest, kind: str) -> None:
    live = reliq.Reliq(url)
    bench = request.getfixturevalue(kind)(live)
    with TestClient(ordering(FastAPI(lifespan=lifespan(url)))) as http, pytest.raises(InvalidSetting, match="bench"):
        http.post("/orders", json={"order": 1})
    bench.close()
    assert live.queues() == []


def test_a_client_of_an_application_has_its_options(url: str) -> None:
    async def story(http: httpx.AsyncClient) -> int:
        return client_of(fastapi).max_body

    fastapi = FastAPI(lifespan=lifespan(reliq.Reliq(url, max_body="2MiB")))
    assert calling(fastapi, story) == 2 * 1024 * 1024


def test_an_application_without_the_lifespan_is_told_so() -> None:
    async def story(http: httpx.AsyncClient) -> None:
        with pytest.raises(InvalidSetting, match="no client of reliq"):
            await http.post("/orders", json={})

    calling(ordering(FastAPI()), story)


def test_an_application_whose_lifespan_does_not_run_is_told_how(url: str) -> None:
    http = TestClient(ordering(FastAPI(lifespan=lifespan(url))))  # without `with`
    with pytest.raises(InvalidSetting, match="let that run: in tests by `with TestClient"):
        http.post("/orders", json={})
