"""One topic, two services, three subscriptions: a bug, its dead letters, the fix, and the redrive.

    python examples/pubsub.py

A shop publishes what happens to its users. The user centre keeps two views of it, the mailer welcomes new users. Each
subscription has its own queue: when the mailer has a bug, its retries and dead letters affect no other service.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import reliq
from reliq.embedded import EmbeddedRedis

# --- the user centre: one service, two subscriptions ---

ucenter = reliq.Reliq()


@ucenter.handler("ucenter@user")
def keep_profile(message: reliq.Message) -> None:
    print(f"  ucenter@user    {message.routing_key}: {message.json()['name']}", flush=True)


@ucenter.handler("ucenter@login")
def note_login(message: reliq.Message) -> None:
    print(f"  ucenter@login   {message.json()['name']} was here", flush=True)


# --- the mailer: its first release forgot that a user may have no e-mail address ---

mailer = reliq.Reliq()


@mailer.handler("mailer@welcome", retry=reliq.fixed("0.2s", limit=3))
def welcome(message: reliq.Message) -> None:
    user = message.json()
    fixed = "MAILER_FIXED" in os.environ
    address = user.get("mail", "nobody@example.org") if fixed else user["mail"]
    print(f"  mailer@welcome  {user['name']} at {address}", flush=True)


# --- the story ---


@contextlib.contextmanager
def service(name: str, url: str, **environment: str) -> Iterator[None]:
    """A worker process of one of the two applications above."""
    command = [sys.executable, "-m", "reliq", "worker", f"pubsub:{name}", "--url", url, "--quiet"]
    child = subprocess.Popen(command, cwd=Path(__file__).parent, env={**os.environ, **environment})
    try:
        yield
    finally:
        child.terminate()
        child.wait()


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        if time.monotonic() > until:
            sys.exit("this takes too long: something is wrong")
        time.sleep(0.02)


def main() -> None:
    with EmbeddedRedis() as server:
        shop = reliq.Reliq(server.url)
        shop.subscribe("ucenter@user", "user.#")
        shop.subscribe("ucenter@login", "user.login")
        shop.subscribe("mailer@welcome", "user.created.*")
        letters = shop.queue("mailer@welcome")

        with service("ucenter", server.url):
            with service("mailer", server.url):
                print("three users register, one of them without an e-mail address; one logs in")
                shop.publish("user.created.eu", {"name": "ann", "mail": "ann@example.org"})
                shop.publish("user.created.us", {"name": "bob"})
                shop.publish("user.created.eu", {"name": "cid", "mail": "cid@example.org"})
                reached = shop.publish("user.login", {"name": "ann"})
                wait_for(lambda: letters.stats().dead == 1)
                wait_for(lambda: shop.queue("ucenter@user").stats().counters.get("acked") == 4)
            (letter,) = letters.dead.list()
            print(f"the login reached {sorted(reached)}")
            print(f"mailer@welcome has a dead letter after {letter.failures} failures: {letter.errors[-1].error_class}")

            print("the mailer is fixed and started again; its dead letters are redriven")
            with service("mailer", server.url, MAILER_FIXED="1"):
                redriven = letters.dead.redrive().redriven
                wait_for(lambda: letters.stats().counters.get("acked") == 3)
        stats = letters.stats()
        print(f"redriven {redriven}, dead {stats.dead}, welcomed {stats.counters['acked']} of 3")
        shop.close()


if __name__ == "__main__":
    main()
