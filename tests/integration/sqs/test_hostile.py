"""Requests that no SDK makes: each gets an error of its protocol, never a 500."""

import contextlib
import json
import socket
import xml.etree.ElementTree as ET
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reliq_sqs import checking, wire_json
from reliq_sqs.model import actions, modelled_errors
from tests.integration.sqs.serving import serving
from tests.integration.sqs.test_messages import received
from tests.support.properties import examples

_TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["", "All", ".*", "String", "Number", "Binary", "true", "0", "-1", "99999999999", "{}", "[]", "a"]),
    st.sampled_from(["\x00", "\ud7ff", "a" * 300, "../..", "arn:aws:sqs:us-east-1:000000000000:hostile", "%", "é"]),
)
_NUMBERS = st.one_of(st.integers(-2, 12), st.integers(-(2**70), 2**70))
_ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False), _TEXTS, _NUMBERS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_TEXTS, inner, max_size=3)),
    max_leaves=5,
)


def _of(shape, name=""):
    """Values of a shape, and now and then others."""
    fitting: st.SearchStrategy[Any]
    match shape.kind:
        case "string" if name in ("QueueUrl", "QueueName"):
            fitting = st.one_of(st.sampled_from(["hostile", "hostile.fifo"]), _TEXTS)
        case "string":
            fitting = _TEXTS
        case "integer" | "long":
            fitting = _NUMBERS
        case "boolean":
            fitting = st.booleans()
        case "blob":
            fitting = st.sampled_from(["", "AAA=", "?"])
        case "list":
            fitting = st.lists(_of(shape.of), max_size=4)
        case "map":
            known = st.sampled_from(["VisibilityTimeout", "RedrivePolicy", "AWSTraceHeader", "FifoQueue", "Policy"])
            fitting = st.dictionaries(st.one_of(known, _TEXTS), _of(shape.of), max_size=4)
        case _:
            required = {key: _of(shape.members[key], key) for key in shape.required}
            others = {key: _of(one, key) for key, one in shape.members.items() if key not in required}
            fitting = st.fixed_dictionaries(required, optional=others)
    return st.one_of(fitting, fitting, fitting, fitting, _ANYTHING) if name else fitting


def _form(value, name=""):
    """Write parameters as the fields of a form, under the names of the model."""
    if isinstance(value, dict):
        for at, (key, one) in enumerate(value.items(), 1):
            yield f"{name}.{at}.Name", str(key)
            yield from _form(one, f"{name}.{at}.Value")
            yield from _form(one, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        for at, one in enumerate(value, 1):
            yield from _form(one, f"{name}.{at}")
    else:
        yield name, str(value)


@pytest.fixture(scope="module")
def hostile(redis_server):
    """A client of an endpoint with queues to be hurt."""
    with serving(redis_server.url) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:
        yield http


def _make_queues(http):
    for name in ("hostile", "hostile.fifo"):
        form = {"Action": "CreateQueue", "QueueName": name}
        if name.endswith(".fifo"):
            form |= {"Attribute.1.Name": "FifoQueue", "Attribute.1.Value": "true"}
        http.post("/", data=form)


_RELAXED = settings(
    max_examples=examples(8), deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip


@pytest.mark.parametrize("action", sorted(actions()))
@_RELAXED
@given(data=st.data())
def test_whatever_json_says_the_answer_is_of_the_model(hostile, action, data):
    _make_queues(hostile)
    body = data.draw(_of(actions()[action].takes))
    if "WaitTimeSeconds" in body:
        body["WaitTimeSeconds"] = 0
    try:
        content = json.dumps(body).encode()
    except UnicodeEncodeError:
        return
    answer = hostile.post("/", content=content, headers={"x-amz-target": f"AmazonSQS.{action}"})
    assert answer.headers["content-type"] == "application/x-amz-json-1.0"
    if answer.status_code == 200:
        assert set(answer.json() if answer.content else {}) <= set(_returned(action))
        return
    _check_error(answer.status_code, answer.json()["__type"], answer.json()["message"])


@pytest.mark.parametrize("action", sorted(actions()))
@_RELAXED
@given(data=st.data())
def test_what_is_valid_at_the_first_look_is_what_the_checks_of_each_member_say(action, data):
    takes = actions()[action].takes
    try:
        body = json.dumps(data.draw(_of(takes))).encode()
    except UnicodeEncodeError:
        return
    found = wire_json.valid(actions()[action], body)
    if found is not None:
        assert found == checking.checked(takes, wire_json.parameters(body))


def test_what_sdks_send_is_valid_at_the_first_look():
    attribute = {"DataType": "Binary", "BinaryValue": "AAE="}
    entry = {"Id": "a", "MessageBody": '{"order": 1}', "DelaySeconds": 0, "MessageAttributes": {"tenant": attribute}}
    asked = {"QueueUrl": "http://localhost/0/orders", "Entries": [entry]}
    body = json.dumps({**asked, "Unknown": {"a": 1}}).encode()
    read = {**entry, "MessageAttributes": {"tenant": {**attribute, "BinaryValue": b"\x00\x01"}}}
    assert wire_json.valid(actions()["SendMessageBatch"], body) == {**asked, "Entries": [read]}


def _returned(action):
    returns = actions()[action].returns
    return returns.members if returns else ()


def _check_error(status, kind, message):
    assert 400 <= status < 500, (status, kind, message)
    space, _, name = kind.partition("#")
    assert (name in modelled_errors()) == (space == "com.amazonaws.sqs")
    assert message


@pytest.mark.parametrize("action", sorted(actions()))
@_RELAXED
@given(data=st.data())
def test_whatever_a_form_says_the_answer_is_xml(hostile, action, data):
    _make_queues(hostile)
    fields = [("Action", action), *_form(data.draw(_of(actions()[action].takes)))]
    fields = [(name, value) for name, value in fields if name != "WaitTimeSeconds"][:900]
    content = urlencode(fields, errors="replace").encode()
    answer = hostile.post("/", content=content, headers={"content-type": "application/x-www-form-urlencoded"})
    root = ET.fromstring(answer.text)
    kind = root.tag.rpartition("}")[2]
    assert kind == (f"{action}Response" if answer.status_code == 200 else "ErrorResponse")
    if answer.status_code != 200:
        assert 400 <= answer.status_code < 500, answer.text
        assert root.findtext(".//{*}Code")
        assert root.findtext(".//{*}RequestId") == answer.headers["x-amzn-requestid"]


@_RELAXED
@given(body=st.binary(max_size=60), target=st.sampled_from(["AmazonSQS.SendMessage", "AmazonSQS.", "x", ""]))
def test_bytes_that_are_no_json_get_an_error_of_the_protocol(hostile, body, target):
    answer = hostile.post("/", content=body, headers={"x-amz-target": target})
    if answer.status_code != 200:
        _check_error(answer.status_code, answer.json()["__type"], answer.json()["message"])


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"QueueUrl": ' * 1000,
        b'{"QueueUrl": "hostile", "QueueUrl": "hostile", "MessageBody": "m"}',
        b'{"QueueUrl": "\\ud800", "MessageBody": "m"}',
        b'{"QueueUrl": "hostile", "MessageBody": "m", "MessageGroupId": "\\ud800"}',
        b'{"QueueUrl": "hostile", "MessageBody": "\\ud800", "MessageBody": "m"}',
        b'{"QueueUrl": "hostile", "MessageBody": "\\ud800", "DelaySeconds": NaN}',
        b'{"QueueUrl": "hostile", "MessageBody": "\\ud800", "DelaySeconds": ' + b"1" * 5000 + b"}",
        b'{"QueueUrl": "hostile", "MessageBody": "\\ud800", "MessageAttributes": {"\\ud800": {}}}',
        b'{"QueueUrl": "hostile", "MessageBody": "\\ud800", "MessageAttributeNames": ["\\ud800"]}',
        b'{"QueueUrl": "hostile", "MessageBody": NaN}',
        b'{"QueueUrl": "hostile", "MessageBody": 1}',
        b'{"QueueUrl": "hostile", "MessageBody": "m", "DelaySeconds": "1"}',
        b'{"QueueUrl": "hostile", "MessageBody": "m", "DelaySeconds": 1.5}',
        b"\xff",
        b"null",
        b"[]",
    ],
    ids=lambda one: one[:40].decode("latin-1"),
)
def test_json_that_programs_read_differently_is_refused(hostile, body):
    answer = hostile.post("/", content=body, headers={"x-amz-target": "AmazonSQS.SendMessage"})
    assert answer.status_code == 400
    assert answer.json()["__type"] == "com.amazon.coral.service#SerializationException"


def test_half_of_a_pair_in_a_message_refuses_that_message(sqs, http, queue):
    text = {"a": {"DataType": "String", "StringValue": "\ud800"}}
    entries = [
        {"Id": "good", "MessageBody": "m"},
        {"Id": "body", "MessageBody": "\ud800"},
        {"Id": "attribute", "MessageBody": "m", "MessageAttributes": text},
    ]
    url = queue()
    asked = {"QueueUrl": url, "Entries": entries}
    answer = http.post("/", content=json.dumps(asked), headers={"x-amz-target": "AmazonSQS.SendMessageBatch"}).json()
    assert [one["Id"] for one in answer["Successful"]] == ["good"]
    codes = {one["Id"]: one["Code"] for one in answer["Failed"]}
    assert codes == {"body": "InvalidMessageContents", "attribute": "InvalidParameterValue"}
    tags = json.dumps({"QueueUrl": url, "Tags": {"StringValue": "\ud800"}})
    assert http.post("/", content=tags, headers={"x-amz-target": "AmazonSQS.TagQueue"}).status_code == 400


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"DelaySeconds": {}}, "Start of structure or map found where not expected."),
        ({"DelaySeconds": []}, "Start of list found where not expected"),
        ({"DelaySeconds": "1"}, "STRING_VALUE can not be converted to an Integer"),
        ({"DelaySeconds": True}, "TRUE_VALUE can not be converted to an Integer"),
        ({"MessageBody": False}, "FALSE_VALUE can not be converted to a String"),
        ({"MessageBody": 1.5}, "NUMBER_VALUE can not be converted to a String"),
        ({"MessageAttributes": "x"}, "Expected null"),
        ({"MessageAttributes": []}, "Start of list found where not expected"),
        ({"MessageAttributes": {"a": 1}}, "Expected null"),
        ({"MessageAttributes": {"a": {"DataType": "String", "StringListValues": 1}}}, "Expected list or null"),
    ],
    ids=str,
)
def test_a_value_of_another_kind_is_refused_with_the_words_of_aws(hostile, given, text):
    body = {"QueueUrl": "hostile", "MessageBody": "m", **given}
    answer = hostile.post("/", json=body, headers={"x-amz-target": "AmazonSQS.SendMessage"})
    assert answer.status_code == 400
    assert answer.json()["message"] == text


def test_xml_in_a_form_is_text(hostile):
    """No XML is read at all: entities cannot be declared, nor expanded."""
    _make_queues(hostile)
    bomb = '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "&c;&c;">]><a>&b;</a>'
    sent = hostile.post("/", data={"Action": "SendMessage", "QueueUrl": "hostile", "MessageBody": bomb})
    assert sent.status_code == 200
    answer = hostile.get("/", params={"Action": "ReceiveMessage", "QueueUrl": "hostile", "MaxNumberOfMessages": "10"})
    assert bomb in [one.text for one in ET.fromstring(answer.text).iterfind(".//{*}Body")]


def test_a_form_with_too_many_fields_and_deep_names_is_refused_or_ignored(hostile):
    many = "&".join(f"Attribute.{at}.Name=x" for at in range(2000))
    answer = hostile.post("/", content=f"Action=CreateQueue&QueueName=x&{many}".encode())
    assert answer.status_code == 400
    assert "<Code>MalformedQueryString</Code>" in answer.text
    deep = "Attribute" + ".1" * 5000
    answer = hostile.post("/", content=f"Action=ListQueues&{deep}=x".encode())
    assert answer.status_code == 200


def test_a_body_that_is_too_large_is_refused_before_it_is_read(hostile):
    headers = {"x-amz-target": "AmazonSQS.SendMessage", "content-length": str(9 * 1024 * 1024)}
    with contextlib.suppress(httpx.TransportError):
        answer = hostile.post("/", content=b"x" * 9 * 1024 * 1024, headers=headers)
        assert answer.status_code == 413
        assert answer.json()["__type"] == "com.amazon.coral.service#RequestEntityTooLarge"


def test_a_batch_of_the_largest_size_in_the_longest_form_is_accepted(sqs, http, queue):
    url = queue()
    body = "\t" * 104_857
    entries = [{"Id": f"{at}", "MessageBody": body} for at in range(10)]
    content = json.dumps({"QueueUrl": url, "Entries": entries}).replace("\\t", "\\u0009").encode()
    assert len(content) > 6_000_000
    answer = http.post("/", content=content, headers={"x-amz-target": "AmazonSQS.SendMessageBatch"})
    assert len(answer.json()["Successful"]) == 10
    assert {one["Body"] for one in received(sqs, url)} == {body}


def test_methods_and_addresses_of_no_action(hostile):
    assert hostile.put("/", content=b"x").status_code == 400
    assert hostile.delete("/000000000000/hostile").status_code == 400
    answer = hostile.get("/000000000000/hostile")
    assert (answer.status_code, answer.text) == (404, "<UnknownOperationException/>\n")
    answer = hostile.get("/", params={"Action": "Nothing"})
    assert "The action Nothing is not valid for this endpoint." in answer.text
    answer = hostile.get("/000000000000/hostile", params={"Action": "ListQueues"})
    assert "<Code>InvalidAction</Code>" in answer.text


@pytest.mark.parametrize("target", ["AmazonSQS.Nothing", "Other.SendMessage", ""])
def test_an_action_that_does_not_exist_is_400_over_json_as_on_aws(hostile, target):
    answer = hostile.post("/", json={}, headers={"x-amz-target": target})
    assert answer.status_code == 400
    assert answer.json()["__type"] == "com.amazon.coral.service#UnknownOperationException"


def test_a_client_that_sends_its_headers_slowly_is_cut_off(redis_server):
    with (
        serving(redis_server.url, header_timeout=0.3) as port,
        socket.create_connection(("127.0.0.1", port), timeout=20) as slow,
    ):
        slow.sendall(b"POST / HTTP/1.1\r\nhost: localhost\r\n")
        assert b"408" in slow.recv(1000)
