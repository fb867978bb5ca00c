"""The commands `reliq sqs` and `reliq sqs key`; the endpoint is imported only when it runs."""

import argparse
import json
import logging
import re
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from reliq.cli.columns import columns
from reliq.cli.options import command, metrics_options, say_none, store_of
from reliq.cli.serving import check_no_auth, key_options, say_revoked, service, until
from reliq.contract.values import port, seconds
from reliq.errors import InvalidSetting
from reliq.extras import missing_extra
from reliq_sqs.access import SCOPES
from reliq_sqs.settings import ACCOUNT, Settings

log = logging.getLogger("reliq.sqs")

_KEY_FILE = "the file with the text that encrypts the secrets of access keys (default: RELIQ_SQS_KEY)"
_REGION = re.compile(r"[a-z0-9-]{1,32}")


def add_to(commands: Any) -> None:
    """Add these commands to the parser."""
    text = "serve queues to the SDKs of AWS, as Amazon SQS"
    one = service(commands, "sqs", sqs, text, Settings(), "without signatures")
    _aws_options(one)
    one.add_argument("--no-monitor", dest="monitor", action="store_false", help="run no monitor in this process")
    metrics_options(one)
    nouns = one.add_subparsers(title="commands", metavar="COMMAND")
    verbs = nouns.add_parser("key", help="access keys", description="Access keys.").add_subparsers(
        title="commands", metavar="COMMAND", required=True
    )
    one = command(verbs, "create", create, "make an access key, and print it once")
    key_options(one, SCOPES)
    one.add_argument("--key-file", metavar="FILE", help=_KEY_FILE)
    command(verbs, "list", list_keys, "the access keys, without their secrets")
    one = command(verbs, "revoke", revoke, "revoke an access key; takes effect within two seconds")
    one.add_argument("id", help="the id of the key, as `key list` shows it")


def _aws_options(one: argparse.ArgumentParser, prefix: str = "") -> None:
    """Add what the endpoint has of AWS; `prefix`: what the names of those of another command begin with."""

    def add(name: str, text: str, **options: Any) -> None:
        one.add_argument(name.replace("--", f"--{prefix}", 1), help=text, **options)

    defaults = Settings()
    text = f"the account in URLs and ARNs, 12 digits (default {defaults.account})"
    add("--account-id", text, default=defaults.account, metavar="ID")
    text = f"the region whose queues have the names of reliq's (default {defaults.region})"
    add("--region", text, default=defaults.region, metavar="REGION")
    add("--endpoint-url", "the beginning of queue URLs (default: as the client reaches the endpoint)", metavar="URL")
    text = "wait as AWS does: 60 s for the name of a deleted queue, and between two purges"
    add("--strict-timing", text, action="store_true")
    add("--key-file", _KEY_FILE, metavar="FILE")


def _settings(options: argparse.Namespace, **more: Any) -> Settings:
    """Return the settings that the options say; raises InvalidSetting."""
    from reliq_sqs.keys import VARIABLE, vault_text

    if ACCOUNT.fullmatch(options.account_id) is None:
        raise InvalidSetting(f"--account-id is {options.account_id!r}: 12 digits")
    if _REGION.fullmatch(options.region) is None:
        raise InvalidSetting(f"--region is {options.region!r}: such as us-east-1")
    endpoint = options.endpoint_url
    if endpoint is not None and (urlsplit(endpoint).scheme not in ("http", "https") or not urlsplit(endpoint).netloc):
        raise InvalidSetting(f"--endpoint-url is {endpoint!r}: such as https://sqs.example.com")
    check_no_auth(options, "reliq sqs key create")
    secret = None if options.no_auth else vault_text(options.key_file)
    if secret is None and not options.no_auth:
        raise InvalidSetting(
            f"signatures need access keys, whose secrets are encrypted with the text of --key-file or {VARIABLE}: set "
            "one, and create a key with `reliq sqs key create`; or use --no-auth for development"
        )
    return replace(
        Settings(), url=options.url, host=options.host, account=options.account_id, region=options.region,
        endpoint_url=endpoint, secret=secret, no_auth=options.no_auth, strict_timing=options.strict_timing,
        access_log=options.access_log, **more,
    )  # fmt: skip


def sqs(options: argparse.Namespace) -> int:
    """Run the endpoint until SIGTERM."""
    try:
        from reliq_sqs.server import serve
    except ModuleNotFoundError as error:
        raise missing_extra("`reliq sqs`", "sqs", error) from None

    port(options.port, "port")
    port(options.metrics_port or 0, "metrics-port")
    seconds(options.grace, "grace", 0, 3600)
    settings = _settings(
        options, port=options.port, grace=options.grace, metrics_port=options.metrics_port,
        metrics_host=options.metrics_host,
    )  # fmt: skip
    if settings.no_auth:
        log.info("--no-auth: every program on this machine has all rights")
    serve(settings, options.monitor)
    return 0


def add_options_of_api(one: argparse.ArgumentParser) -> None:
    """Add the options with which `reliq api` serves SQS too."""
    text = f"also serve the SDKs of AWS, as `reliq sqs` does, on a port of its own (default {Settings().port})"
    one.add_argument("--sqs", type=int, nargs="?", const=Settings().port, metavar="PORT", help=text)
    _aws_options(one, "sqs-")


def serving(options: argparse.Namespace) -> AbstractContextManager[None]:
    """Return what serves SQS beside `reliq api`, if it is asked to, as a context."""
    if options.sqs is None:
        return nullcontext()
    try:
        from reliq_sqs import server
    except ModuleNotFoundError as error:
        raise missing_extra("`reliq api --sqs`", "sqs", error) from None
    port(options.sqs, "--sqs")
    own = {name.removeprefix("sqs_"): value for name, value in vars(options).items()}
    settings = _settings(argparse.Namespace(**own), port=options.sqs, grace=options.grace)
    return server.serving(settings)


def create(options: argparse.Namespace) -> int:
    keys = _keys()
    text = keys.vault_text(options.key_file)
    if text is None:
        raise InvalidSetting(f"the secret is encrypted with the text of --key-file or {keys.VARIABLE}: set one")
    scopes, queues = tuple(dict.fromkeys(options.scope)), tuple(dict.fromkeys(options.queue))
    identity, secret = store_of(options).run(
        keys.create(keys.Vault(text), options.name, scopes, queues, options.expires)
    )
    if options.json:
        print(json.dumps({"id": identity, "secret": secret}))
    else:
        print(f"AWS_ACCESS_KEY_ID={identity}\nAWS_SECRET_ACCESS_KEY={secret}")
        print("This is the only time the secret can be seen: Redis keeps it encrypted.", file=sys.stderr)
    return 0


def list_keys(options: argparse.Namespace) -> int:
    keys = sorted(store_of(options).run(_keys().read_all()).items())
    if options.json:
        shown = [
            {
                "id": identity, "name": key.name, "scopes": list(key.scopes), "queues": list(key.queues),
                "created_at": key.created_at, "expires_at": key.expires_at or None,
            }
            for identity, key in keys
        ]  # fmt: skip
        print(json.dumps(shown))
        return 0
    say_none(keys, "there are no access keys: `reliq sqs key create` makes one")
    rows = [(one, key.name, ",".join(key.scopes), ",".join(key.queues), until(key.expires_at)) for one, key in keys]
    for line in columns(rows, *[-12] * 4):
        print(line)
    return 0


def revoke(options: argparse.Namespace) -> int:
    """Revoke an access key; exit 1 if the id is unknown."""
    return say_revoked(options, options.id, _keys().revoke, "access key")


def _keys() -> ModuleType:
    try:
        from reliq_sqs import keys
    except ModuleNotFoundError as error:
        raise missing_extra("`reliq sqs key`", "sqs", error) from None
    return keys
