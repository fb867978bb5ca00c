"""What a producer pays: send and send_many against a bare LPUSH of the same bytes."""

import os
import time
from collections.abc import Callable

import reliq
from bench.suite.harness import Check, Row, Setting, fresh_redis, ratios, shown
from reliq.model.outgoing import NewMessage

BODY = "x" * 200
BATCH = 1000


def _rate(call: Callable[[], object], calls: int) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        call()
    return calls / (time.perf_counter() - began)


def _in_turns(setting: Setting, bare: Callable[[], object], ours: Callable[[], object], calls: int, clear) -> list:
    """Blocks of calls, in turns, each time the other one first."""
    rates: list[list[float]] = [[], []]
    for call in (bare, ours):
        _rate(call, max(1, calls // 10))
    for number in range(10 * setting.rounds):
        for place in (0, 1) if number % 2 else (1, 0):
            rates[place].append(_rate((bare, ours)[place], calls))
        clear()
    return rates


def _row(what: str, bound: float, rates: list[list[float]], times: int) -> Row:
    bare, ours = ([rate * times for rate in some] for some in rates)
    row = Row(what, [Check("reliq / LPUSH", ratios(ours, bare), bound)])
    row.notes = [f"reliq: {shown(ours)} messages/s", f"LPUSH: {shown(bare)} messages/s"]
    row.figures = {"reliq": ours, "lpush": bare}
    return row


def rows(setting: Setting) -> list[Row]:
    element = NewMessage(os.urandom(200)).element(0)
    with fresh_redis() as (server, client):
        app = reliq.Reliq(server.url)
        queue = app.queue("bench")

        def clear() -> None:
            client.delete("bare")
            queue.purge()

        one = _in_turns(
            setting, lambda: client.lpush("bare", element), lambda: queue.send(BODY), setting.volume(500), clear
        )
        many = _in_turns(
            setting,
            lambda: client.lpush("bare", *[element] * BATCH),
            lambda: queue.send_many([BODY] * BATCH),
            setting.volume(10),
            clear,
        )
        app.close()
    return [
        _row("send, one at a time", 0.85, one, 1),
        _row("send_many, a thousand a call", 0.6, many, BATCH),
    ]
