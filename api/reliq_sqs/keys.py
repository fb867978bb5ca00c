"""Access keys: an id and a secret, as SDKs sign with them. Redis has the secret encrypted, since signatures need it."""

import base64
import hashlib
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from reliq import ops
from reliq.contract.values import Duration
from reliq.errors import InvalidSetting
from reliq.ops import Steps
from reliq.ops import sqs as own
from reliq.protocol.clock import Clock
from reliq_api.access.keyring import Key, check_key, lifetime
from reliq_sqs.access import SCOPES, Sender

_SHORTEST = 16  #: characters of what encrypts the secrets
_NONCE = 12
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
VARIABLE = "RELIQ_SQS_KEY"


class AccessKey(Key, frozen=True, kw_only=True):
    """An access key; its patterns are of the names of reliq's queues."""

    secret: str  #: encrypted, Base64


@dataclass(frozen=True, slots=True)
class Opened:
    """An access key with its secret."""

    key: AccessKey
    secret: str
    sender: Sender


class Vault:
    """Encrypts and decrypts secrets. The id of a key is part of it: a secret cannot be moved to another id."""

    def __init__(self, text: str) -> None:
        _check_length(text, "what encrypts the secrets")
        self._cipher = AESGCM(hashlib.sha256(b"reliq sqs " + text.encode()).digest())

    def seal(self, identity: str, secret: str) -> str:
        nonce = os.urandom(_NONCE)
        return base64.b64encode(nonce + self._cipher.encrypt(nonce, secret.encode(), identity.encode())).decode()

    def open(self, identity: str, sealed: str) -> str | None:
        """Return the secret; None if it was encrypted with another text, or changed."""
        try:
            raw = base64.b64decode(sealed, validate=True)
            return self._cipher.decrypt(raw[:_NONCE], raw[_NONCE:], identity.encode()).decode()
        except (InvalidTag, ValueError):
            return None


def vault_text(file: str | None) -> str | None:
    """Return what encrypts the secrets: that of a file, else of RELIQ_SQS_KEY. Raises InvalidSetting."""
    if file is None:
        text = os.environ.get(VARIABLE)
        return _check_length(text, VARIABLE) if text else None
    try:
        text = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"--key-file {file!r} cannot be read: {error}") from None
    return _check_length(text, f"the text of --key-file {file!r}")


def _check_length(text: str, what: str) -> str:
    if len(text) < _SHORTEST:
        raise InvalidSetting(
            f"{what} has {len(text)} characters: use {_SHORTEST} or more, for instance of `openssl rand -base64 32`"
        )
    return text


def create(
    vault: Vault, name: str, scopes: tuple[str, ...], queues: tuple[str, ...], expires: Duration | None
) -> Steps[tuple[str, str]]:
    """Create an access key; return its id and its secret, which cannot be shown again. Raises InvalidSetting."""
    check_key(name, scopes, queues, SCOPES)
    valid_for = lifetime(expires)
    identity = "RQIA" + "".join(secrets.choice(_LETTERS) for _ in range(16))
    secret = secrets.token_urlsafe(30)
    now = yield ops.server_time()
    key = AccessKey(
        name=name,
        secret=vault.seal(identity, secret),
        scopes=scopes,
        queues=queues,
        created_at=now,
        expires_at=0 if valid_for is None else now + round(valid_for * 1000),
    )
    yield own.put_sqs_key(identity, msgspec.json.encode(key))
    return identity, secret


def revoke(identity: str) -> Steps[bool]:
    """Revoke an access key; return whether it existed."""
    existed: bool = yield own.delete_sqs_key(identity)
    return existed


def read_all(clock: Clock | None = None) -> Steps[dict[str, AccessKey]]:
    """Read all access keys by id, without the unreadable ones, and the server's time, by which they expire."""
    keys: dict[str, AccessKey] = {}
    for identity, text in (yield from (clock or Clock()).ask_with(own.sqs_keys())).items():
        try:
            keys[identity] = msgspec.json.decode(text, type=AccessKey)
        except msgspec.MsgspecError:
            continue
    return keys


def open_all(vault: Vault, keys: Mapping[str, AccessKey]) -> dict[str, Opened]:
    """Return the keys whose secret this vault can open."""
    found = {}
    for identity, key in keys.items():
        secret = vault.open(identity, key.secret)
        if secret is not None:
            found[identity] = Opened(key, secret, Sender(identity, key.scopes, key.queues))
    return found
