"""How fast messages are consumed: by reliq, by Redis with nothing around it, and by the peers."""

import time

import redis

from bench.suite.contestants import (
    BULLMQ,
    FIELD,
    RAW,
    RELIQ,
    RELIQ_ASYNC,
    RELIQ_SLOW,
    STREAMS,
    Contestant,
    Failed,
    rate_of,
)
from bench.suite.harness import Check, Row, Setting, fresh_redis, ratios, shown
from bench.suite.rabbitmq import RabbitMQ
from reliq.model.keys import QueueKeys

Rates = dict[str, list[float]]


class Race:
    """Run all installed contestants in turns, so that other load of the machine affects all of them."""

    def __init__(self, setting: Setting, field: tuple[Contestant, ...] = FIELD) -> None:
        self._setting = setting
        self._field = field
        self.about: dict[str, dict] = {}
        self.absent: dict[str, str] = {}
        self.rates: Rates = {}

    def run(self) -> None:
        self._ask_who_is_there()
        with (
            fresh_redis() as (server, client),
            RabbitMQ(any(one.broker == "rabbitmq" for one in self._field)) as rabbit,
        ):
            if rabbit.missing:
                self.absent.update({one.name: rabbit.missing for one in self._field if one.broker == "rabbitmq"})
            for number in range(self._setting.rounds):
                for one in self._field:
                    if one.name not in self.absent:
                        client.flushall()
                        self._turn(one, rabbit.url if one.broker == "rabbitmq" else server.url, number)

    def _ask_who_is_there(self) -> None:
        for one in self._field:
            try:
                self.about[one.name] = one.about()
            except (Failed, OSError) as error:
                self.absent[one.name] = f"not installed: {error}"

    def _turn(self, one: Contestant, url: str, number: int) -> None:
        messages = self._setting.volume(one.messages)
        try:
            one.fill(url, messages)
            rate = one.rate(url, messages)
        except Failed as error:
            self.absent[one.name] = f"failed in round {number + 1}: {error}"
            print(f"  {error}", flush=True)
            return
        self.rates.setdefault(one.name, []).append(rate)
        print(f"  round {number + 1}  {one.name:26} {rate:12,.0f} messages/s", flush=True)

    def fastest(self, *kinds: str, crash_safe: bool = False) -> str:
        """The name of the fastest Python peer; "" without peers."""
        found = [
            one.name
            for one in self._field
            if one.kind in kinds and one.broker == "redis" and one is not BULLMQ and self.rates.get(one.name)
            and not (crash_safe and self.about[one.name]["crash_safe"] == "no")
        ]  # fmt: skip
        return max(found, key=lambda name: sorted(self.rates[name])[len(self.rates[name]) // 2], default="")

    def against(self, name: str, other: str, bound: float) -> list[Check]:
        pairs = ratios(self.rates.get(name, ()), self.rates.get(other, ()))
        return [Check(f"{name} / {other}", pairs, bound)] if pairs else []


def one_process(race: Race) -> Row:
    row = Row("consume, no-op handler, one process, one thread")
    safe = race.fastest("peer", "asyncio", crash_safe=True)
    row.checks = [
        *race.against(RELIQ.name, RAW.name, 0.6),
        *race.against(RELIQ.name, safe, 25),
        *race.against(RELIQ.name, BULLMQ.name, 5),
        *race.against(RELIQ.name, STREAMS.name, 1.0),
    ]
    row.notes = [f"{RELIQ.name}: {shown(race.rates.get(RELIQ.name, ()))} messages/s"]
    if race.absent:
        row.notes += [f"{name}: {why}" for name, why in race.absent.items()]
    return row


def asynchronous(race: Race) -> Row:
    row = Row("async handlers, no-op, one process")
    row.checks = race.against(RELIQ_ASYNC.name, race.fastest("asyncio"), 5)
    row.notes = [f"{RELIQ_ASYNC.name}: {shown(race.rates.get(RELIQ_ASYNC.name, ()))} messages/s"]
    return row


def two_processes(setting: Setting) -> Row:
    """Both start on an empty queue; then the messages are there at once."""
    row = Row("consume, two processes")
    rates: dict[str, list[float]] = {RAW.name: [], RELIQ.name: []}
    with fresh_redis() as (server, client):
        for _ in range(setting.rounds):
            for one in (RAW, RELIQ):
                client.flushall()
                rates[one.name].append(_together(one, server.url, client, setting.volume(2 * one.messages)))
    row.checks = [Check("reliq / raw limit, two each", ratios(rates[RELIQ.name], rates[RAW.name]), 0.7)]
    row.notes = [f"{name}: {shown(values)} messages/s" for name, values in rates.items()]
    return row


def _together(one: Contestant, url: str, client: redis.Redis, messages: int) -> float:
    keys, aside = QueueKeys("bench"), "{bench}aside"
    one.fill(url, messages)
    client.rename(keys.messages, aside)
    both = [one.start("consume", url, messages) for _ in range(2)]
    until = time.monotonic() + 30
    while client.scard(keys.consumers) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    client.rename(aside, keys.messages)
    return rate_of([one.finish(process) for process in both], messages, one.name)


def sixteen_threads(setting: Setting) -> Row:
    messages, ideal = setting.volume(RELIQ_SLOW.messages), 1600
    with fresh_redis() as (server, _):
        RELIQ_SLOW.fill(server.url, messages)
        rate = RELIQ_SLOW.rate(server.url, messages)
    row = Row("threads=16, handler sleeping 10 ms", [Check("messages/s of the ideal 1,600", [rate / ideal], 0.95)])
    row.notes = [f"{rate:,.0f} messages/s"]
    return row
