"""The query protocol by hand: its XML, its JSON, addresses of queues, and hosts that tell a region."""

import re
import xml.etree.ElementTree as ET

import pytest

from tests.integration.sqs.test_messages import received


def texts(answer, *names):
    root = ET.fromstring(answer.text)
    return [root.findtext(".//{*}" + name) for name in names]


def in_json(http, path="/", **fields):
    answer = http.post(path, data=fields, headers={"accept": "application/json"})
    assert answer.headers["content-type"] == "application/json"
    return answer.status_code, answer.json()


def test_an_answer_is_json_for_those_who_accept_only_that(http, queue, name):
    url = queue()
    status, said = in_json(http, Action="SendMessage", QueueUrl=url, MessageBody="m")
    result = said["SendMessageResponse"]["SendMessageResult"]
    assert status == 200
    assert result.pop("MessageId")
    assert result == {
        "MD5OfMessageBody": "6f8f57715090da2632453988d9a1501b",
        "MD5OfMessageAttributes": None,
        "MD5OfMessageSystemAttributes": None,
        "SequenceNumber": None,
    }
    assert re.fullmatch("[0-9a-f-]{36}", said["SendMessageResponse"]["ResponseMetadata"]["RequestId"])
    said = in_json(http, f"/000000000000/{name}", Action="ReceiveMessage", **{"AttributeName.1": "All"})[1]
    (message,) = said["ReceiveMessageResponse"]["ReceiveMessageResult"]["messages"]
    assert message["Body"] == "m"
    assert message["MessageAttributes"] is None
    assert {"Name": "ApproximateReceiveCount", "Value": "1"} in message["Attributes"]
    said = in_json(http, Action="ListQueues", QueueNamePrefix=name)[1]
    assert said["ListQueuesResponse"]["ListQueuesResult"] == {"NextToken": None, "queueUrls": [url]}
    said = in_json(http, Action="ListQueues", QueueNamePrefix=f"{name}-nothing")[1]
    assert said["ListQueuesResponse"]["ListQueuesResult"]["queueUrls"] is None
    said = in_json(http, Action="DeleteQueue", QueueUrl=url)[1]
    assert list(said["DeleteQueueResponse"]) == ["ResponseMetadata"]


def test_an_error_is_json_for_those_who_accept_only_that(http, name):
    status, said = in_json(http, Action="GetQueueUrl", QueueName=name)
    assert status == 400
    assert said["Error"] == {
        "Code": "AWS.SimpleQueueService.NonExistentQueue",
        "Detail": None,
        "Message": "The specified queue does not exist for this wsdl version.",
        "Type": "Sender",
    }
    assert said["RequestId"]


def test_a_get_to_the_address_of_a_queue_is_about_this_queue(http, sqs, queue, name):
    path = f"/000000000000/{name}"
    url = queue()
    sent = http.get(path, params={"Action": "SendMessage", "MessageBody": "a&b\r"})
    assert received(sqs, name)[0]["Body"] == "a&b\r"
    assert sent.headers["content-type"] == "text/xml"
    found = http.get(path, params={"Action": "GetQueueUrl", "QueueName": name})
    assert texts(found, "QueueUrl") == [url]


@pytest.mark.parametrize("action", ["CreateQueue", "ListQueues", "Nothing"])
def test_an_action_that_is_not_of_a_queue_is_not_valid_at_its_address(http, queue, name, action):
    queue()
    answer = http.post(f"/000000000000/{name}", data={"Action": action, "QueueName": name})
    assert (answer.status_code, *texts(answer, "Type", "Code", "Message")) == (
        400, "Sender", "InvalidAction", f"The action {action} is not valid for this endpoint.",
    )  # fmt: skip


@pytest.mark.parametrize("accepted", ["*/*", "application/json"])
def test_a_request_without_an_action_is_unknown(http, queue, name, accepted):
    queue()
    answer = http.get(f"/000000000000/{name}", headers={"accept": accepted})
    assert (answer.status_code, answer.text.strip()) == (404, "<UnknownOperationException/>")


def test_an_answer_that_says_nothing_is_one_empty_tag(http, queue, name):
    queue()
    assert "<ReceiveMessageResult/>" in http.get(f"/000000000000/{name}", params={"Action": "ReceiveMessage"}).text


def test_the_older_name_of_system_attributes_wins(http, sqs, queue, name):
    sqs.send_message(QueueUrl=queue(), MessageBody="m")
    both = {"Action": "ReceiveMessage", "MessageSystemAttributeName.1": "All", "AttributeName.1": "SenderId"}
    answer = http.get(f"/000000000000/{name}", params=both)
    assert re.findall("<Attribute><Name>(.*?)</Name>", answer.text) == ["SenderId"]


def test_in_the_other_protocol_the_newer_name_wins_if_it_has_a_value(sqs, queue):
    url = queue(VisibilityTimeout="0")
    sqs.send_message(QueueUrl=url, MessageBody="m")
    for newer, found in ((["SenderId"], "SenderId"), ([], "SentTimestamp")):
        asked = {"MessageSystemAttributeNames": newer, "AttributeNames": ["SentTimestamp"]}
        assert [*received(sqs, url, **asked)[0]["Attributes"]] == [found]


@pytest.mark.parametrize("host", ["sqs.us-west-2.localhost", "us-west-2.queue.localhost"])
def test_without_a_signature_the_host_tells_the_region(http, name, host):
    named = {"host": host}
    made = http.post("/", data={"Action": "CreateQueue", "QueueName": name}, headers=named)
    (url,) = texts(made, "QueueUrl")
    assert url == f"http://{host}/000000000000/{name}"
    told = {"Action": "GetQueueAttributes", "AttributeName.1": "QueueArn", "QueueUrl": url}
    assert texts(http.post("/", data=told, headers=named), "Value") == [f"arn:aws:sqs:us-west-2:000000000000:{name}"]
    assert texts(http.post("/", data={**told, "QueueUrl": name}), "Code") == ["AWS.SimpleQueueService.NonExistentQueue"]


def test_one_attribute_may_have_no_number(http, sqs, queue, name):
    url = queue()
    given = {"Action": "SetQueueAttributes", "Attribute.Name": "VisibilityTimeout", "Attribute.Value": "20"}
    assert http.post(f"/000000000000/{name}", data=given).status_code == 200
    told = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["VisibilityTimeout"])
    assert told["Attributes"] == {"VisibilityTimeout": "20"}


def test_texts_are_escaped_as_aws_escapes_them(http, sqs, queue, name):
    sqs.send_message(QueueUrl=queue(), MessageBody='<"a">&\r\n\t\'')
    answer = http.get(f"/000000000000/{name}", params={"Action": "ReceiveMessage"})
    assert "<Body>&lt;&quot;a&quot;&gt;&amp;&#xD;\n\t'</Body>" in answer.text
    assert texts(answer, "Body") == ['<"a">&\r\n\t\'']
