"""The commands `reliq api` and `reliq key`, used by `reliq.cli`; the service is imported only when it runs."""

import argparse
import contextlib
import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from reliq import ops
from reliq.contract.values import port, seconds, size
from reliq.errors import InvalidSetting, RedisUnavailable
from reliq.extras import missing_extra
from reliq.ops import Steps
from reliq.protocol.application import body_limit, eviction_allowed, url_from_environment
from reliq.transport.store import Store
from reliq_api.access import keyring
from reliq_api.settings import Settings

log = logging.getLogger("reliq.api")

Add = Callable[..., argparse.ArgumentParser]
Beside = Callable[[argparse.Namespace], contextlib.AbstractContextManager[None]]


def add_to(commands: Any, command: Add, beside: Sequence[Callable[[argparse.ArgumentParser], Beside]]) -> None:
    """Add the commands to the parser; `command` adds one with the common options.

    `beside`: each adds the options of another endpoint to `reliq api`, and returns what serves it, as a context.
    """
    defaults = Settings()
    one = command(commands, "api", api, "serve queues over HTTP, and the dashboard", json_too=False)
    one.set_defaults(beside=[add(one) for add in beside])
    one.set_defaults(patient=True)
    one.add_argument("--host", default=defaults.host, help=f"address to listen on (default {defaults.host})")
    one.add_argument("--port", type=int, default=defaults.port, help=f"port to listen on (default {defaults.port})")
    one.add_argument(
        "--grace",
        type=float,
        default=defaults.grace,
        metavar="SECONDS",
        help="time to finish after SIGTERM (default 25)",
    )
    text = "bytes a message's body may have, such as 8MiB; at most 64MiB (default: RELIQ_MAX_BODY, else 1MiB)"
    one.add_argument("--max-body", metavar="SIZE", help=text)
    text = "bytes of all request bodies in memory, above which requests get 503; a body may take twice (default 256MiB)"
    one.add_argument("--max-buffered", metavar="SIZE", default=defaults.max_buffered, help=text)
    text = "for development: serve this machine without a key, until there is one (or RELIQ_NO_AUTH=1)"
    one.add_argument("--no-auth", action="store_true", default=os.environ.get("RELIQ_NO_AUTH") == "1", help=text)
    one.add_argument("--access-log", action="store_true", help="log every request, without its query")
    one.add_argument("--quiet", action="store_true", help="log warnings only")
    one.add_argument("--log-json", action="store_true", help="log JSON, one object per line (or RELIQ_LOG_JSON=1)")
    _key_commands(commands, command)


def _key_commands(commands: Any, command: Add) -> None:
    one = command(commands, "key create", create, "create an API key, and print it once")
    one.add_argument("name", help="its purpose; two keys may have the same name")
    one.add_argument(
        "--scope", action="append", choices=keyring.SCOPES, required=True, help="what the key allows; may be repeated"
    )
    one.add_argument(
        "--queue",
        action="append",
        required=True,
        metavar="PATTERN",
        help="the queues it is for, e.g. 'orders*'; may be repeated",
    )
    one.add_argument("--expires", metavar="TIME", help="how long it is valid, e.g. 90d (default: for ever)")
    one.add_argument(
        "--rate", type=float, default=0.0, metavar="N", help="at most N requests per second (default: no limit)"
    )
    command(commands, "key list", list_keys, "list the API keys, without their secrets")
    one = command(commands, "key revoke", revoke, "revoke an API key; takes effect within two seconds")
    one.add_argument("id", help="its id, the part before the dot")


def api(options: argparse.Namespace) -> int:
    """Run the service until SIGTERM."""
    try:
        from reliq_api.access.auth import NO_KEY
        from reliq_api.server import serve
    except ModuleNotFoundError as error:
        raise missing_extra("`reliq api`", "api", error) from None

    port(options.port, "port")
    seconds(options.grace, "grace", 0, 3600)
    max_body = body_limit(options.max_body, "--max-body")
    check_no_auth(options, "reliq key create")
    settings = replace(
        Settings(), url=options.url, host=options.host, port=options.port, grace=options.grace,
        no_auth=options.no_auth, access_log=options.access_log, max_body=max_body,
        max_buffered=size(options.max_buffered, "--max-buffered", max_body, 1 << 40),
    )  # fmt: skip
    try:
        keys = store_of(options).run(keyring.read_all(), timeout=0)
        existed = bool(keys) or store_of(options).run(ops.one(ops.key_existed()), timeout=0)
    except RedisUnavailable as error:
        log.warning("%s; the service starts without it", error)
    else:
        if not keys and (existed or not options.no_auth):
            log.warning("the service answers every request with 401: %s", NO_KEY)
        elif not keys:
            log.info("--no-auth: every program on this machine has all rights, until there is an API key")
    with contextlib.ExitStack() as served:
        for serving in options.beside:
            served.enter_context(serving(options))
        serve(settings)
    return 0


def check_no_auth(options: argparse.Namespace, instead: str) -> None:
    """Raise InvalidSetting if others could reach a service without keys. `instead`: the command that makes one."""
    from reliq_api.access.auth import is_loopback

    if options.no_auth and not is_loopback(options.host):
        raise InvalidSetting(
            f"--no-auth serves this machine only, and host is {options.host!r}: listen on 127.0.0.1, or leave out "
            f"--no-auth and create a key with `{instead}`"
        )


def create(options: argparse.Namespace) -> int:
    scopes, queues = tuple(dict.fromkeys(options.scope)), tuple(dict.fromkeys(options.queue))
    store = store_of(options)
    is_first = not store.run(ops.one(ops.key_existed()))
    text = store.run(keyring.create(options.name, scopes, queues, options.expires, options.rate))
    if options.json:
        print(json.dumps({"id": text.partition(".")[0], "key": text}))
    else:
        print(text)
        print("This is the only time it can be seen: Redis keeps a hash.", file=sys.stderr)
    if is_first:
        print("From now on, each request and the dashboard need a key, with --no-auth too.", file=sys.stderr)
    return 0


def list_keys(options: argparse.Namespace) -> int:
    keys = store_of(options).run(keyring.read_all())
    if options.json:
        shown = [{"id": identity, **_described(key)} for identity, key in sorted(keys.items())]
        print(json.dumps(shown))
        return 0
    if not keys:
        print("there are no API keys: `reliq key create` makes one", file=sys.stderr)
    rows = [_columns(identity, key) for identity, key in sorted(keys.items())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(one.ljust(width) for one, width in zip(row, widths, strict=True)).rstrip())
    return 0


def _columns(identity: str, key: keyring.ApiKey) -> list[str]:
    rate = f"{key.rate:g}/s" if key.rate else ""
    return [identity, key.name, ",".join(key.scopes), ",".join(key.queues), until(key.expires_at), rate]


def _described(key: keyring.ApiKey) -> dict[str, Any]:
    return {
        "name": key.name,
        "scopes": list(key.scopes),
        "queues": list(key.queues),
        "created_at": key.created_at,
        "expires_at": key.expires_at or None,
        "rate": key.rate or None,
    }


def revoke(options: argparse.Namespace) -> int:
    """Revoke a key; exit 1 if the id is unknown."""
    identity = options.id.partition(".")[0]
    return say_revoked(options, identity, keyring.revoke, "key")


def say_revoked(options: argparse.Namespace, identity: str, revoke: Callable[[str], Steps[bool]], kind: str) -> int:
    """Revoke a key of this kind, and say so; return the exit status."""
    revoked = identity.isascii() and store_of(options).run(revoke(identity))
    if options.json:
        print(json.dumps({"id": identity, "revoked": revoked}))
    else:
        print(f"{identity} is revoked" if revoked else f"there is no {kind} {identity!r}")
    return 0 if revoked else 1


def until(expires_at: int) -> str:
    """Return in words until when a key is valid."""
    return "until " + utc(expires_at) if expires_at else "for ever"


def store_of(options: argparse.Namespace) -> Store:
    return Store(url_from_environment(options.url), allow_eviction=eviction_allowed(None))


def utc(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
