"""Topics from the command line: publish; list, bind and unbind; and which queues a key would reach."""

import argparse
import json
from typing import Any

from reliq.cli.columns import columns
from reliq.cli.options import (
    app_of,
    body_limit_of,
    command,
    counted,
    given_options,
    max_body,
    message_options,
    say,
    say_none,
)
from reliq.cli.stdin import read_body, say_broken_json
from reliq.contract.options import PUBLISH
from reliq.errors import InvalidSetting

_NO_QUEUE = "no queue is bound to a pattern that matches"


def add_to(commands: Any) -> None:
    """Add these commands to the parser."""
    one = command(commands, "message publish", publish, "send a message to every bound queue")
    one.set_defaults(patient=True)
    one.add_argument("routing_key", metavar="ROUTING-KEY", help="the routing key, such as order.created.eu")
    one.add_argument("body", nargs="?", help="the body; - or no argument: standard input")
    message_options(one, PUBLISH)
    one.add_argument("--mandatory", action="store_true", help="fail if no queue is bound")
    max_body(one)

    command(commands, "topic list", bindings, "list all bindings, and count unroutable messages")
    for verb, run, what in (
        ("bind", bind, "bind a queue to patterns of routing keys"),
        ("unbind", unbind, "remove bindings; the queue keeps its messages"),
    ):
        one = command(commands, f"topic {verb}", run, what, queue=True)
        one.add_argument("pattern", nargs="+", help="* is one word, # any number of words: 'order.*.eu', 'order.#'")
    one = command(commands, "topic test", test, "show the queues that a routing key would reach")
    one.add_argument("key", help="the routing key")
    one = command(commands, "topic alternate", alternate, "show or set the queue for unroutable messages")
    one.add_argument("queue", nargs="?", help="the queue (default: show the current one)")
    one.add_argument("--off", action="store_true", help="no queue: unroutable messages are counted and dropped")


def publish(options: argparse.Namespace) -> int:
    body = read_body(body_limit_of(options)) if options.body in (None, "-") else options.body
    more = given_options(options, PUBLISH)
    sent = app_of(options).publish(options.routing_key, body, mandatory=options.mandatory, **more)
    say_broken_json("body", body)
    if options.json:
        print(json.dumps(sent))
    else:
        print("".join(f"{identity}  {queue}\n" for queue, identity in sent.items()), end="")
    say_none(sent, f"reliq: {_NO_QUEUE}: the message reached none")
    return 0


def bindings(options: argparse.Namespace) -> int:
    """Print all bindings, the alternate queue and the number of unroutable messages."""
    topics = app_of(options).topics
    found, stats = topics.list(), topics.stats()
    if options.json:
        every = [one._asdict() for one in found]
        print(json.dumps({"bindings": every, "alternate": stats.alternate, "unroutable": stats.unroutable}))
        return 0
    for line in columns(found, -40):
        print(line)
    unroutable = f"{counted(stats.unroutable, 'message')} matched none of them"
    rest = f"such messages go to {stats.alternate}" if stats.alternate else unroutable
    print(f"{counted(len(found), 'binding')}; {rest}")
    return 0


def bind(options: argparse.Namespace) -> int:
    new = app_of(options).subscribe(options.queue, *options.pattern)
    return say(options, "bound" if new else "it was bound before", changed=new)


def unbind(options: argparse.Namespace) -> int:
    """End a binding; exit 1 when there was none."""
    ended = app_of(options).unsubscribe(options.queue, *options.pattern)
    patterns = ", ".join(one or "''" for one in options.pattern)
    say(options, "unbound" if ended else f"{options.queue} was not bound to {patterns}", changed=ended)
    return 0 if ended else 1


def test(options: argparse.Namespace) -> int:
    """Print the queues that would get the message; exit 1 if none would."""
    queues = app_of(options).topics.match(options.key)
    print(json.dumps(queues) if options.json else "\n".join(queues) or _NO_QUEUE)
    return 0 if queues else 1


def alternate(options: argparse.Namespace) -> int:
    """Show the alternate queue, or set it if a queue or --off is given."""
    topics = app_of(options).topics
    if options.queue is not None and options.off:
        raise InvalidSetting(f"the queue {options.queue!r} and --off are given: give one of them")
    if options.queue is not None or options.off:
        topics.set_alternate(None if options.off else options.queue)
    queue = topics.stats().alternate
    text = f"messages that match no binding go to {queue}" if queue else "there is no alternate queue"
    return say(options, text, alternate=queue)
