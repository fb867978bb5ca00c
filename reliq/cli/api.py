"""The commands `reliq api` and `reliq key`; the service is imported only when it runs."""

import argparse
import json
import logging
import sys
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from reliq import ops
from reliq.cli import sqs
from reliq.cli.columns import columns
from reliq.cli.options import body_limit_of, command, max_body, say_none, store_of
from reliq.cli.serving import check_no_auth, key_options, say_revoked, service, until
from reliq.contract.values import port, seconds, size
from reliq.errors import RedisUnavailable
from reliq.extras import missing_extra
from reliq_api.access import keyring
from reliq_api.settings import Settings

log = logging.getLogger("reliq.api")

_BESIDE = [sqs]  #: what may serve beside the service, in the same process


def add_to(commands: Any) -> None:
    """Add these commands to the parser."""
    defaults, no_auth = Settings(), "without a key, until there is one"
    one = service(commands, "api", api, "serve queues over HTTP, and the dashboard", defaults, no_auth)
    max_body(one)
    text = "bytes of all request bodies in memory, above which requests get 503; a body may take twice (default 256MiB)"
    one.add_argument("--max-buffered", metavar="SIZE", default=defaults.max_buffered, help=text)
    for other in _BESIDE:
        other.add_options_of_api(one)

    one = command(commands, "key create", create, "create an API key, and print it once")
    key_options(one, keyring.SCOPES)
    text = "at most N requests per second (default: no limit)"
    one.add_argument("--rate", type=float, default=0.0, metavar="N", help=text)
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
    largest = body_limit_of(options)
    check_no_auth(options, "reliq key create")
    settings = replace(
        Settings(), url=options.url, host=options.host, port=options.port, grace=options.grace,
        no_auth=options.no_auth, access_log=options.access_log, max_body=largest,
        max_buffered=size(options.max_buffered, "--max-buffered", largest, 1 << 40),
    )  # fmt: skip
    try:
        store = store_of(options, waits=True)
        keys = store.run(keyring.read_all(), timeout=0)
        existed = bool(keys) or store.run(ops.one(ops.key_existed()), timeout=0)
    except RedisUnavailable as error:
        log.warning("%s; the service starts without it", error)
    else:
        if not keys and (existed or not options.no_auth):
            log.warning("the service answers every request with 401: %s", NO_KEY)
        elif not keys:
            log.info("--no-auth: every program on this machine has all rights, until there is an API key")
    with ExitStack() as stack:
        for other in _BESIDE:
            stack.enter_context(other.serving(options))
        serve(settings)
    return 0


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
    say_none(keys, "there are no API keys: `reliq key create` makes one")
    for line in columns([_columns(identity, key) for identity, key in sorted(keys.items())], *[-12] * 5):
        print(line)
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
