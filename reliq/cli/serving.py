"""What the commands `reliq api` and `reliq sqs` share, and those of their keys."""

import argparse
from collections.abc import Callable, Iterable
from typing import Any

from reliq.cli.options import command, logging_options, say, store_of, utc
from reliq.errors import InvalidSetting
from reliq.ops import Steps
from reliq.runtime.environment import flag
from reliq_api.settings import ServiceSettings

Run = Callable[[argparse.Namespace], int]


def service(
    commands: Any, name: str, run: Run, help: str, defaults: ServiceSettings, no_auth: str
) -> argparse.ArgumentParser:
    """Add a command that serves requests, with the options of all such commands. `no_auth`: the help of --no-auth."""
    one = command(commands, name, run, help, json_too=False)
    one.set_defaults(patient=True)
    one.add_argument("--host", default=defaults.host, help=f"address to listen on (default {defaults.host})")
    one.add_argument("--port", type=int, default=defaults.port, help=f"port to listen on (default {defaults.port})")
    text = f"time that open requests have to finish after SIGTERM (default {defaults.grace:g})"
    one.add_argument("--grace", type=float, default=defaults.grace, metavar="SECONDS", help=text)
    text = f"for development: serve this machine {no_auth} (or RELIQ_NO_AUTH=1)"
    one.add_argument("--no-auth", action="store_true", help=text)
    one.add_argument("--access-log", action="store_true", help="log every request, without its query")
    logging_options(one)
    return one


def key_options(one: argparse.ArgumentParser, scopes: Iterable[str]) -> None:
    """Add what a new key is for."""
    one.add_argument("name", help="what the key is for; two keys may have the same name")
    text = "what the key allows; may be repeated"
    one.add_argument("--scope", action="append", choices=tuple(scopes), required=True, help=text)
    text = "the queues that the key is for, e.g. 'orders*'; may be repeated"
    one.add_argument("--queue", action="append", required=True, metavar="PATTERN", help=text)
    one.add_argument("--expires", metavar="TIME", help="how long it is valid, e.g. 90d (default: for ever)")


def check_no_auth(options: argparse.Namespace, instead: str) -> None:
    """Raise InvalidSetting if others could reach a service without keys. `instead`: the command that makes one.

    RELIQ_NO_AUTH counts as --no-auth from here on.
    """
    from reliq_api.access.auth import is_loopback

    options.no_auth = options.no_auth or flag("RELIQ_NO_AUTH")
    if options.no_auth and not is_loopback(options.host):
        raise InvalidSetting(
            f"--no-auth serves this machine only, and host is {options.host!r}: listen on 127.0.0.1, or leave out "
            f"--no-auth and create a key with `{instead}`"
        )


def say_revoked(options: argparse.Namespace, identity: str, revoke: Callable[[str], Steps[bool]], kind: str) -> int:
    """Revoke a key of this kind, and say so; return the exit status."""
    revoked = identity.isascii() and store_of(options).run(revoke(identity))
    text = f"{identity} is revoked" if revoked else f"there is no {kind} {identity!r}"
    say(options, text, id=identity, revoked=revoked)
    return 0 if revoked else 1


def until(expires_at: int) -> str:
    """Return in words until when a key is valid."""
    return "until " + utc(expires_at) if expires_at else "for ever"
