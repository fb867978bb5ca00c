"""A shop with some traffic: real producers, a real worker, a real monitor, so that every page has something to show."""

import math
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import reliq
from reliq.worker import Options, Worker
from reliq_monitor import MonitorThread

STEP = 0.1


class PaymentDeclined(Exception):
    pass


class Shop:
    """Sends and handles messages until it is closed."""

    def __init__(self, url: str) -> None:
        self.app = reliq.Reliq(url)
        self._chance = random.Random(7)
        self._closing = threading.Event()
        self._due: dict[str, float] = {}
        quick = reliq.fixed(2, limit=2)
        self._handle("orders", 0.004, {KeyError: ("sku", 0.004)}, quick)
        self._handle("payments", 0.02, {PaymentDeclined: ("card 4111… declined by the issuer", 0.05)}, quick)
        self._handle("emails@welcome", 0.05, {TimeoutError: ("no answer from smtp.example.org:587", 0.02)}, quick)
        self._handle("images.resize", 0.3, {}, quick)
        self._worker = Worker(self.app.store, self.app.handlers, Options(threads=4))
        self._monitor = MonitorThread(self.app.store)
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._worker.run, self._send)]

    def _handle(
        self, queue: str, takes: float, failures: dict[type[Exception], tuple[str, float]], retry: reliq.Backoff
    ) -> None:
        @self.app.handler(queue, retry=retry)
        def handler(message: reliq.Message) -> None:
            time.sleep(self._chance.uniform(0.5, 1.5) * takes)
            for kind, (text, share) in failures.items():
                if hash(message.id) % 1000 < share * 1000:  # the same message fails each time
                    raise kind(text)

    def _send(self) -> None:
        traffic: dict[str, Callable[[float], float]] = {
            "orders": lambda now: 24 + 14 * math.sin(now / 23) + 5 * math.sin(now / 5),
            "payments": lambda now: 11 + 6 * math.sin(now / 37 + 2),
            "emails@welcome": lambda now: 7 + 5 * math.sin(now / 17),
            "images.resize": lambda now: 9 if now % 80 < 26 else 0.6,
            "invoices@eu": lambda now: 1.5,
        }
        started = time.monotonic()
        while not self._closing.wait(STEP):
            now = time.monotonic() - started
            for name, rate in traffic.items():
                self._due[name] = self._due.get(name, 0.0) + STEP * rate(now) * self._chance.uniform(0.4, 1.6)
                count = int(self._due[name])
                self._due[name] -= count
                if count:
                    self.app.queue(name).send_many([self._order() for _ in range(count)], headers=self._headers())

    def _order(self) -> dict[str, object]:
        return {
            "order": self._chance.randrange(10_000, 99_999),
            "customer": {"name": self._chance.choice(["Ada", "Grace", "Edsger"]), "country": "DE"},
            "lines": [{"sku": f"A-{self._chance.randrange(100, 999)}", "quantity": 2, "price": "19.90"}],
        }

    def _headers(self) -> dict[str, str]:
        return {"tenant": self._chance.choice(["acme", "globex", "initech"]), "content-type": "application/json"}

    def _stage(self) -> None:
        """What does not come by itself."""
        app = self.app
        app.queue("invoices@eu").configure(max_length=50_000, dead_max_age="30d")
        app.queue("invoices@eu").pause()
        app.schedules.add("daily-report", "0 7 * * MON-FRI", "emails@welcome", {"kind": "daily"}, tz="Europe/Berlin")
        app.schedules.add("poll", "30s", "images.resize", jitter="5s")
        app.schedules.run("daily-report")
        app.subscribe("orders", "order.#")
        app.subscribe("emails@welcome", "order.created.*", "user.created")
        app.subscribe("invoices@eu", "order.paid.eu")
        app.topics.set_alternate("legacy.imports")
        app.queue("reports.nightly").send_many([{"report": day} for day in range(31)], delay="6h")
        legacy = app.queue("legacy.imports")
        legacy.send_many([self._order() for _ in range(40)], headers=self._headers(), ttl=0.001)
        picture = b"\x89PNG\r\n\x1a\n" + bytes(range(96))
        legacy.send_many([picture, *(self._order() for _ in range(12))], headers=self._headers())
        time.sleep(0.01)
        with legacy.consumer() as consumer:
            for message in consumer.claim(limit=100):
                consumer.dead(message, "no importer for this format: csv-2019 was switched off on 1 November")

    @contextmanager
    def open(self) -> Iterator[reliq.Reliq]:
        self._stage()
        self._monitor.start()
        for thread in self._threads:
            thread.start()
        try:
            yield self.app
        finally:
            self._closing.set()
            self._worker.stop()
            for thread in self._threads:
                thread.join(timeout=10)
            self._monitor.stop()
            with suppress(reliq.ReliqError):
                self.app.close()
