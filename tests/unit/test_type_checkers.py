"""A user's code with typed handlers passes mypy and pyright, both strict; what is wrong in it is found."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SAMPLE = """\
from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pydantic

import reliq
from reliq import aio

app = reliq.Reliq()
shop = aio.Reliq()


@dataclass
class Order:
    number: int


class Line(msgspec.Struct):
    sku: str


class Mail(pydantic.BaseModel):
    to: str


@app.handler("orders")
def ship(order: Order) -> None: ...


@app.handler("lines")
async def line(line: Line, message: reliq.Message) -> reliq.Again | None:
    return reliq.Again(delay=message.failures)


@shop.handler("mails", time_limit="5s")
async def mail(mail: Mail) -> None: ...


@app.upgrade("orders", version=2)
def order_2(old: dict[str, int]) -> Order:
    return Order(old["nr"])


@app.check("orders")
def sent(order: Order) -> bool | None: ...


@app.broadcast("mail.#")
def hear(mail: Mail) -> None: ...


@reliq.step
def charge(message: reliq.Message, order: Order, tries: int = 1) -> str:
    return f"{message.id} {order.number} {tries}"


@reliq.step(name="post", retry=3)
async def post(message: reliq.Message, mail: Mail) -> None: ...


@app.handler("charged")
async def charged(order: Order, message: reliq.Message) -> None:
    receipt: str = await charge(message, order, tries=2)
    await post(message, Mail(to=receipt))


@app.handler("assembly")
def assembly(message: reliq.Message) -> list[str]:
    return [str(part) for part in message.results()]


@app.handler("reports")
async def report(message: reliq.Message) -> int:
    return len(await message.results())


async def send() -> None:
    orders = [Order(1), Order(2)]
    app.queue("orders").send(Order(1), delay="5s")
    app.queue("orders").send_many(orders)
    app.queue("orders").send_many([Order(1), Line("a"), Mail(to="ann"), reliq.NewMessage(Order(2))])
    app.publish("order.new", Mail(to="ann"))
    await shop.queue("orders").send(Line("a"))
    await shop.queue("orders").send_many(orders, key="k")
    await shop.publish("order.new", Order(1))
    with app.queue("orders").prepare(Order(1)):
        ship(Order(1))


class ErrorReport(reliq.Middleware[reliq.Message]):
    def on_error(self, message: reliq.Message, error: BaseException) -> None:
        print(message.id, error)


class RequestId(reliq.Middleware[reliq.Sending]):
    async def before(self, sending: reliq.Sending) -> None:
        for message in sending.messages:
            message.headers["request"] = "r"


class Timer:
    def before(self, message: reliq.Message) -> None: ...
    def after(self, message: reliq.Message, result: object) -> None: ...
    def on_error(self, message: reliq.Message, error: BaseException) -> None: ...
    def on_suspend(self, message: reliq.Message) -> None: ...


app.middleware(runs=ErrorReport())
app.middleware(runs=Timer())
shop.middleware(runs=ErrorReport(), sends=RequestId())


class Wrong(reliq.Middleware[reliq.Message]):
    def on_error(self, message: reliq.Message) -> None: ...  # wrong


def wrong() -> None:
    app.middleware(sends=ErrorReport())  # wrong
    app.queue("orders").send(object())  # wrong
    app.queue("orders").send_many([object()])  # wrong
    app.publish("order.new", body=Order)  # wrong
    ship({"number": 1})  # wrong


async def wrong_steps(message: reliq.Message) -> None:
    await charge(message, "1")  # wrong
    await post(message)  # wrong
"""


@pytest.fixture
def sample(tmp_path):
    path = tmp_path / "shop.py"
    path.write_text(SAMPLE)
    return path


def run(folder: Path, *command: str) -> str:
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


WRONG = [number for number, line in enumerate(SAMPLE.splitlines(), 1) if line.endswith("# wrong")]


def test_mypy(sample, monkeypatch):
    monkeypatch.setenv("MYPYPATH", str(ROOT))
    cache = f"--cache-dir={ROOT / '.mypy_cache' / 'sample'}"  # of reliq, which it would read anew for half of its time
    found = run(sample.parent, "mypy", "--strict", "--config-file=", "--no-error-summary", cache, "shop.py")
    assert [int(line) for line in re.findall(r"^shop\.py:(\d+): error", found, re.MULTILINE)] == WRONG, found


def test_pyright(sample, monkeypatch):
    monkeypatch.setenv("PYRIGHT_PYTHON_IGNORE_WARNINGS", "1")  # of newer versions
    config = {"typeCheckingMode": "strict", "pythonVersion": "3.11", "extraPaths": [str(ROOT)], "include": ["shop.py"]}
    (sample.parent / "pyrightconfig.json").write_text(json.dumps(config))
    found = run(sample.parent, "pyright", "--pythonpath", sys.executable, "--outputjson")
    problems = json.loads(found)["generalDiagnostics"]
    assert [one["range"]["start"]["line"] + 1 for one in problems] == WRONG, found
