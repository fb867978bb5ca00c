"""Requests are signed with access keys, in a header or in the address."""

import datetime as dt
import json
import re
import time
from functools import partial
from urllib.parse import urlencode

import httpx
import msgspec
import pytest
import redis
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

import reliq
from reliq.ops.sqs import put_sqs_key
from reliq_sqs.access import SCOPES
from reliq_sqs.keys import Vault, create, read_all, revoke
from tests.integration.sqs.serving import client, serving
from tests.integration.sqs.test_messages import code_of, received
from tests.support.workers import eventually

SECRET = "a text that encrypts secrets"


@pytest.fixture
def make_key(app):
    def make(*queues, scopes=tuple(SCOPES), expires=None, vault=SECRET):
        return app.store.run(create(Vault(vault), "test", scopes, queues or ("*",), expires))

    return make


@pytest.fixture
def signed(url):
    """The port of an endpoint that wants signatures."""
    with serving(url, no_auth=False, secret=SECRET) as port:
        yield port


def test_a_signed_request_is_carried_out(make_key, signed, name):
    identity, secret = make_key()
    sqs = client(signed, key=identity, secret=secret)
    there = sqs.create_queue(QueueName=name)["QueueUrl"]
    sqs.send_message(QueueUrl=there, MessageBody="m")
    (message,) = received(sqs, there, AttributeNames=["SenderId"])
    assert message["Attributes"]["SenderId"] == identity


@pytest.mark.parametrize("wrong", ["id", "secret"])
def test_a_wrong_key_is_refused(make_key, signed, wrong):
    identity, secret = make_key()
    given = {"key": identity, "secret": secret, wrong.replace("id", "key"): "RQIAWRONG"}
    code, status, _ = code_of(client(signed, **given).list_queues)
    assert status == 403
    assert code == ("InvalidClientTokenId" if wrong == "id" else "SignatureDoesNotMatch")


def test_a_request_without_a_signature_is_refused_in_its_protocol(make_key, signed):
    make_key()
    with httpx.Client(base_url=f"http://127.0.0.1:{signed}") as http:
        xml = http.get("/", params={"Action": "ListQueues"})
        assert xml.status_code == 403
        assert "<Code>MissingAuthenticationToken</Code>" in xml.text
        answer = http.post("/", content="{}", headers={"x-amz-target": "AmazonSQS.ListQueues"})
        assert answer.status_code == 403
        assert answer.headers["x-amzn-query-error"] == "MissingAuthenticationToken;Sender"
        for header in ("Bearer x", "AWS4-HMAC-SHA256", "AWS4-HMAC-SHA256 Credential=a/b", "AWS4-HMAC-SHA256 ,,=,"):
            assert http.get("/?Action=ListQueues", headers={"authorization": header}).status_code == 400


def _request(port, identity, secret, signer, at=None, method="POST", body=b"", **params):
    """A signed request of the query protocol, and its parts to change."""
    request = AWSRequest(method, f"http://127.0.0.1:{port}/", params=params, data=body)
    auth = signer(Credentials(identity, secret), "sqs", "us-east-1")
    auth.add_auth(request)
    return request.prepare()


@pytest.mark.parametrize("signer", [SigV4Auth, SigV4QueryAuth])
def test_the_header_and_the_address_may_have_the_signature(make_key, signed, signer):
    identity, secret = make_key()
    made = _request(signed, identity, secret, signer, method="GET", Action="ListQueues", QueueNamePrefix="a b+c/ä~")
    answer = httpx.request(made.method, made.url, headers=dict(made.headers))
    assert answer.status_code == 200, answer.text


def test_what_was_signed_cannot_be_changed(make_key, signed):
    identity, secret = make_key()
    body = urlencode({"Action": "ListQueues", "QueueNamePrefix": "a"}).encode()
    made = _request(signed, identity, secret, SigV4Auth, body=body)
    headers = {name: value for name, value in made.headers.items() if name.lower() != "content-length"}
    headers["content-type"] = "application/x-www-form-urlencoded"
    assert httpx.post(made.url, content=body, headers=headers).status_code == 200
    assert httpx.post(made.url, content=body + b"b", headers=headers).status_code == 403
    assert httpx.post(made.url + "?a=b", content=body, headers=headers).status_code == 403
    assert httpx.post(made.url + "other", content=body, headers=headers).status_code == 403
    assert httpx.post(made.url, content=body, headers={**headers, "host": "other"}).status_code == 403
    claimed = {**headers, "x-amz-content-sha256": "0" * 64}
    assert httpx.post(made.url, content=body, headers=claimed).status_code == 403


@pytest.mark.parametrize(
    ("minutes", "status", "says"),
    [
        (4, 200, ""),
        (-4, 200, ""),
        (6, 403, r"Signature not yet current: \w+ is still later than \w+ \(\w+ \+ 5 min\.\)"),
        (-6, 403, r"Signature expired: \w+ is now earlier than \w+ \(\w+ - 5 min\.\)"),
    ],
)
def test_clocks_may_differ_by_five_minutes(make_key, signed, monkeypatch, minutes, status, says):
    identity, secret = make_key()
    now = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=minutes)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda remove_tzinfo=True: now.replace(tzinfo=None))
    made = _request(signed, identity, secret, SigV4Auth, method="GET", Action="ListQueues")
    answer = httpx.request(made.method, made.url, headers=dict(made.headers))
    assert answer.status_code == status, answer.text
    assert re.search(says, answer.text)


@pytest.mark.parametrize("signer", [SigV4Auth, SigV4QueryAuth])
@pytest.mark.parametrize("target", ["ReceiveMessage", "PurgeQueue", "DeleteQueue"])
def test_a_signature_for_one_action_is_none_for_another(make_key, signed, name, signer, target):
    """An address that was signed for one action, sent with the header that names another one."""
    identity, secret = make_key()
    sqs = client(signed, key=identity, secret=secret)
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="m")
    request = AWSRequest("GET", url, params={"Action": "GetQueueAttributes"})
    signer(Credentials(identity, secret), "sqs", "us-east-1").add_auth(request)
    made = request.prepare()
    headers = {**made.headers, "x-amz-target": f"AmazonSQS.{target}"}
    assert httpx.get(made.url, headers=dict(made.headers)).status_code == 200
    answer = httpx.get(made.url, headers=headers)
    refused = "com.amazon.coral.service#InvalidSignatureException"
    assert (answer.status_code, answer.json()["__type"]) == (403, refused)
    assert answer.headers["x-amzn-query-error"] == "SignatureDoesNotMatch;Sender"
    assert len(received(sqs, url)) == 1


@pytest.mark.parametrize("hours", [-5, 5])
def test_the_clock_of_redis_counts_and_not_that_of_the_endpoint(app, make_key, signed, monkeypatch, hours):
    valid, over = make_key(expires=3600), make_key()
    record = app.store.run(read_all())[over[0]]
    ended = msgspec.structs.replace(record, expires_at=record.created_at)
    app.store.call(put_sqs_key(over[0], msgspec.json.encode(ended)))
    right, right_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: right() + hours * 3600)
    monkeypatch.setattr(time, "time_ns", lambda: right_ns() + hours * 3600 * 10**9)
    statuses = []
    for identity, secret in (valid, over):
        made = _request(signed, identity, secret, SigV4Auth, method="GET", Action="ListQueues")
        statuses.append(httpx.request(made.method, made.url, headers=dict(made.headers)).status_code)
    assert statuses == [200, 403]


def test_a_presigned_address_ends_when_it_says(make_key, signed, monkeypatch):
    identity, secret = make_key()
    past = dt.datetime.now(dt.UTC) - dt.timedelta(minutes=30)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda remove_tzinfo=True: past.replace(tzinfo=None))

    def signer(seconds):
        return lambda *given: SigV4QueryAuth(*given, expires=seconds)

    for seconds, status in ((3600, 200), (900, 403)):
        made = _request(signed, identity, secret, signer(seconds), method="GET", Action="ListQueues")
        assert httpx.get(made.url).status_code == status


def test_a_key_has_rights_for_its_queues_and_actions_only(make_key, signed, name):
    identity, secret = make_key()
    manager = client(signed, key=identity, secret=secret)
    urls = [manager.create_queue(QueueName=name + end)["QueueUrl"] for end in ("-mine", "-other")]
    identity, secret = make_key(f"{name}-m*", scopes=("send",))
    sender = client(signed, key=identity, secret=secret)
    eventually(lambda: _allowed(sender))
    sender.send_message(QueueUrl=urls[0], MessageBody="m")
    assert code_of(sender.send_message, QueueUrl=urls[1], MessageBody="m")[:2] == ("AccessDenied", 403)
    assert code_of(sender.receive_message, QueueUrl=urls[0])[:2] == ("AccessDenied", 403)
    assert code_of(sender.delete_queue, QueueUrl=urls[0])[:2] == ("AccessDenied", 403)
    assert code_of(sender.create_queue, QueueName=f"{name}-mine")[:2] == ("AccessDenied", 403)
    assert sender.list_queues(QueueNamePrefix=name)["QueueUrls"] == [urls[0]]


def test_a_key_makes_only_its_queues_a_dead_letter_queue(make_key, signed, name):
    identity, secret = make_key()
    manager = client(signed, key=identity, secret=secret)
    arns = {}
    for end in ("mine", "mine-dead", "other"):
        url = manager.create_queue(QueueName=f"{name}-{end}")["QueueUrl"]
        attributes = manager.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
        arns[end] = url, attributes["QueueArn"]
    identity, secret = make_key(f"{name}-m*", scopes=("manage",))
    mine = client(signed, key=identity, secret=secret)
    eventually(lambda: _allowed(mine))

    def bury_in(end):
        policy = json.dumps({"deadLetterTargetArn": arns[end][1], "maxReceiveCount": 1})
        return lambda **options: mine.set_queue_attributes(Attributes={"RedrivePolicy": policy}, **options)

    assert code_of(bury_in("other"), QueueUrl=arns["mine"][0])[:2] == ("InvalidParameterValue", 400)
    bury_in("mine-dead")(QueueUrl=arns["mine"][0])
    manager.set_queue_attributes(
        QueueUrl=arns["other"][0],
        Attributes={"RedrivePolicy": json.dumps({"deadLetterTargetArn": arns["mine-dead"][1], "maxReceiveCount": 1})},
    )
    sources = [sqs.list_dead_letter_source_queues(QueueUrl=arns["mine-dead"][0]) for sqs in (mine, manager)]
    assert [sorted(one["queueUrls"]) for one in sources] == [[arns["mine"][0]], [arns["mine"][0], arns["other"][0]]]


def test_a_key_moves_dead_letters_only_to_its_queues(make_key, signed, name):
    """Without a destination each goes back to the queue in which it died, which is another's here."""
    identity, secret = make_key()
    manager = client(signed, key=identity, secret=secret)
    dead = manager.create_queue(QueueName=f"{name}-mine")["QueueUrl"]
    arn = manager.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    other = manager.create_queue(QueueName=f"{name}-other", Attributes={"RedrivePolicy": policy})["QueueUrl"]
    manager.send_message(QueueUrl=other, MessageBody="m")
    received(manager, other, VisibilityTimeout=0)
    assert received(manager, other) == []
    assert len(received(manager, dead, VisibilityTimeout=0, WaitTimeSeconds=5)) == 1
    identity, secret = make_key(f"{name}-m*", scopes=("manage",))
    mine = client(signed, key=identity, secret=secret)
    eventually(lambda: _allowed(mine))

    mine.start_message_move_task(SourceArn=arn)
    eventually(lambda: "FailureReason" in mine.list_message_move_tasks(SourceArn=arn)["Results"][0])
    (task,) = mine.list_message_move_tasks(SourceArn=arn)["Results"]
    assert (task["Status"], task["FailureReason"]) == ("FAILED", "AccessDenied")
    assert received(manager, other) == []
    manager.start_message_move_task(SourceArn=arn)
    assert [one["Body"] for one in received(manager, other, WaitTimeSeconds=10)] == ["m"]


def _allowed(sqs):
    try:
        return sqs.list_queues()
    except sqs.exceptions.ClientError:
        return None


def _refused(sqs):
    return _allowed(sqs) is None


def test_a_revoked_key_an_expired_one_and_one_of_another_vault_are_refused(make_key, app: reliq.Reliq, signed):
    identity, secret = make_key()
    sqs = client(signed, key=identity, secret=secret)
    assert _allowed(sqs)
    assert app.store.run(revoke(identity))
    eventually(lambda: _allowed(sqs) is None)
    for given in ({"expires": 1.0}, {"vault": "another text that encrypts"}):
        identity, secret = make_key(**given)
        sqs = client(signed, key=identity, secret=secret)
        eventually(partial(_refused, sqs))


def test_the_secret_is_not_in_redis(make_key, redis_server):
    _, secret = make_key()
    with redis.Redis(port=redis_server.port) as direct:
        (stored,) = direct.hvals("reliq:sqs:keys")
    assert secret.encode() not in stored
    assert json.loads(stored)["scopes"] == list(SCOPES)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://example.com"},
        {"sec-fetch-site": "cross-site"},
        {"x-forwarded-for": "10.0.0.1"},
        {"via": "1.1 proxy"},
    ],
)
def test_without_signatures_web_pages_and_proxies_are_refused(http, headers):
    answer = http.post("/", data={"Action": "ListQueues"}, headers=headers)
    assert (answer.status_code, "AccessDenied" in answer.text) == (403, True)
    answer = http.get("/", params={"Action": "ListQueues"}, headers={"host": "rebound.example.com"})
    assert answer.status_code == 403
