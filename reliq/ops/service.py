"""Ops of the HTTP service: API keys, and the answers to requests with an Idempotency-Key."""

from reliq.model.keys import ALLOWANCE, API_KEY_EXISTED, API_KEYS
from reliq.ops import signatures
from reliq.ops.commands import read_hash
from reliq.ops.request import Op, milliseconds, scripted


def allow(key: str, rate: float, wanted: int) -> Op[tuple[int, int]]:
    """Ask how many of the `wanted` calls an API key may make now and, if none, in how many ms the next one."""
    return scripted(signatures.allow(allowance=ALLOWANCE + key, rate=rate, wanted=wanted), tuple)


def put_api_key(identity: str, record: bytes) -> Op[int]:
    return Op(("HSET", API_KEYS, identity, record))


def note_api_key() -> Op[bool]:
    """Note for good that this Redis has had an API key."""
    return Op(("SET", API_KEY_EXISTED, "1"), bool)


def key_existed() -> Op[bool]:
    """Ask whether this Redis has ever had an API key."""
    return Op(("EXISTS", API_KEY_EXISTED), bool)


def delete_api_key(identity: str) -> Op[bool]:
    """Delete a key; the reply is whether it existed."""
    return Op(("HDEL", API_KEYS, identity), bool)


def api_keys() -> Op[dict[str, str]]:
    """Read the records of all API keys by id."""
    return read_hash(API_KEYS)


def begin_request(key: str, record: bytes, seconds: float) -> Op[bool]:
    """Store the record of a new request unless there is one; the reply is whether it was stored."""
    return Op(("SET", key, record, "NX", "PX", milliseconds(seconds)), bool)


def request_record(key: str) -> Op[bytes | None]:
    return Op(("GET", key))


def end_request(key: str, record: bytes, seconds: float) -> Op[bool]:
    """Store the record of an answered request."""
    return Op(("SET", key, record, "PX", milliseconds(seconds)), bool)


def forget_request(key: str) -> Op[int]:
    return Op(("DEL", key))
