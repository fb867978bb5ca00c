"""Signatures are those of botocore, for whatever is signed."""

import time
from urllib.parse import quote, urlsplit

import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from reliq_sqs import signing
from reliq_sqs.errors import SqsError

CREDENTIALS = Credentials("AKID", "secret")
_TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
_SEGMENT = st.text("abcXYZ019-_.~ +%ä@:=", min_size=1, max_size=8).filter(lambda one: one not in (".", ".."))


def signed(signer, method="POST", path="/", params=None, body=b"", headers=None):
    request = AWSRequest(method, f"http://localhost:9324{path}", headers or {}, body, params or {})
    signer(CREDENTIALS, "sqs", "eu-west-1").add_auth(request)
    made = request.prepare()
    parts = urlsplit(made.url)
    found = {name.lower(): value for name, value in made.headers.items()} | {"host": "localhost:9324"}
    texts = {name: value.decode() if isinstance(value, bytes) else value for name, value in found.items()}
    return signing.Signed(method, parts.path or "/", parts.query, texts, body)


def verify(request, secret="secret"):
    signature = signing.read(request.headers, request.query)
    assert signature is not None
    signing.verify(signature, secret, request, time.time())
    return signature


@pytest.mark.parametrize("signer", [SigV4Auth, SigV4QueryAuth])
@given(
    method=st.sampled_from(["GET", "POST"]),
    segments=st.lists(_SEGMENT, max_size=3),
    params=st.dictionaries(_TEXT.filter(bool), _TEXT, max_size=4),
    body=st.binary(max_size=50),
)
def test_what_botocore_signs_is_verified_and_no_other_secret_fits(signer, method, segments, params, body):
    body = b"" if signer is SigV4QueryAuth else body  # botocore makes the body a part of the address
    path = "/" + "/".join(quote(one) for one in segments)
    request = signed(signer, method, path, params, body)
    signature = verify(request)
    assert (signature.key, signature.region) == ("AKID", "eu-west-1")
    with pytest.raises(SqsError, match="does not match"):
        verify(request, "other")


@given(st.text(max_size=60))
def test_any_header_is_a_signature_or_an_error_of_the_protocol(text):
    headers = {"authorization": f"AWS4-HMAC-SHA256 {text}", "x-amz-date": text}
    with pytest.raises(SqsError):
        verify(signing.Signed("GET", "/", "", headers, b""))


def test_a_signature_for_another_service_is_refused():
    request = signed(SigV4Auth)
    headers = {**request.headers, "authorization": request.headers["authorization"].replace("/sqs/", "/s3/")}
    with pytest.raises(SqsError, match="scoped"):
        verify(signing.Signed("POST", "/", "", headers, b""))


def test_a_request_without_a_signature_has_none():
    assert signing.read({}, "Action=ListQueues") is None
