"""Run test suites of others against `reliq sqs`, each on an endpoint and a Redis of its own; print a table.

    python tools/test_sqs.py --suites ../shared/suites        # moto, ministack, kombu, the SDK of JavaScript, programs
    python tools/test_sqs.py --suites ../shared/suites moto   # one of them

Suites are copied into a temporary folder; kombu's and the programs of Python come from the package registry, the
packages of JavaScript from npm. What is missing is left out, and so are the tests of LEFT_OUT, each with its reason.
"""

import argparse
import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from reliq.embedded import EmbeddedRedis
from tests.integration.celery.suites import KOMBU, Outcome, outcomes_of
from tests.support import javascript as js
from tests.support.ports import free_port
from tools import sqs_programs
from tools.sqs_programs import Missing

ROOT = Path(__file__).resolve().parent.parent
_TIMEOUT = 1200
_MOTOS_ACCOUNT = "123456789012"

_AWS_TEXT = 'AWS says: The input receipt handle "..." is not a valid receipt handle.'
_AWS_STATUS = "AWS's model has the status 404 for ReceiptHandleIsInvalid"
_AWS_REDRIVE = "AWS answers InvalidParameterValue for a RedrivePolicy that is wrong"
_AWS_TYPE = "AWS says since 2020: The type of message (user) attribute '...' is invalid. (k6-jslib-aws#65)"
_AWS_LETTERS = "AWS was recorded to take letters of other languages in the names of attributes"
_AWS_VERSION = "AWS was recorded to write 2008-10-17 as the version of a policy that AddPermission makes"
_AWS_LABEL = "AWS was recorded to say only 'can't find label.' where a queue has no policy"
_AWS_BATCH = "AWS was recorded to refuse a batch without MessageGroupId as InvalidParameterValue"
_AWS_BLANKS = "AWS returns a RedrivePolicy without blanks (terraform#4780, fakecloud#370)"
_AWS_REGION = "asks for moto's URLs; those of AWS tell the region"
_INSIDE = "looks inside of the emulator"
_AS_GOAWS = "asks for goaws' 404; on AWS a message that was deleted is deleted again without an error"

#: Tests that do not apply, by patterns of their names: of another service, of an emulator, or not what AWS does.
LEFT_OUT = {
    "moto": {
        r"test_create_queue_with_different_attributes_fail": "AWS refuses FifoQueue=tru",
        r"test_message_retention_period": "AWS refuses a MessageRetentionPeriod below 60",
        r"test_change_message_visibility_on_unknown_receipt_handle|test_delete_message_errors": _AWS_TEXT,
        r"test_create_fifo_queue_with_dlq": "AWS refuses FifoQueue=false: Unknown Attribute FifoQueue.",
        r"test_message_delay_is_more_than_15_minutes": "AWS refuses MessageDeduplicationId on a standard queue",
        r"test_message_with_attributes_invalid_datatype": _AWS_TYPE,
        r"test_message_with_invalid_attributes$": _AWS_LETTERS,
        r"test_get_queue_attributes$": _AWS_BLANKS,
        r"test_permissions$": _AWS_VERSION,
        r"test_remove_permission_errors$": _AWS_LABEL,
        r"test_send_messages_to_fifo_without_message_group_id$": _AWS_BATCH,
        r"test_create_queues_in_multiple_region|test_get_queue_with_prefix$": _AWS_REGION,
        r"test_is_empty_redrive_policy": _INSIDE,
    },
    "ministack": {
        r"test_sqs_(delete_message|change_message_visibility)_invalid_receipt_handle": _AWS_STATUS,
        r"test_sqs_receive_max_10": "AWS refuses MaxNumberOfMessages=15, as moto's test asks for",
        r"event_source_mapping_to_lambda": "needs Lambda",
        r"test_sqs_send_message_rejects_oversized_body": "AWS's default is 1 MiB, as in moto's test",
        r"test_sqs_add_permission_appends_policy_statement": "AWS writes SQS:SendMessage, as in moto's test",
        r"redrive_policy_invalid|double_encoded_redrive_policy|validates_redrive_policy|cross_region": _AWS_REDRIVE,
        r"test_sqs_fifo_receive_with_redrive_policy": "AWS refuses a standard queue whose name ends with .fifo",
        r"dlq_sweep|restore_rebuilds|invalid_chars_regex|messages_endpoint": _INSIDE,
    },
    "kombu": {
        r"test_ack_invalid_receipt_with_backoff": _AS_GOAWS,
        r"test_fanout": "needs SNS",
    },
}

_STUB_OF_MINISTACK = "def set_request_account_id(_):\n    pass\n\n\ndef set_request_region(_):\n    pass\n"
#: What answers moto's reset between tests: all queues are deleted. And the account, which it asks another service for.
_BEFORE_MOTO = """
import os

import boto3
import pytest
from moto.core.models import ServerModeMockAWS

_CLIENTS = []


def _delete_all_queues(self=None):
    if not _CLIENTS:
        regions = ("us-east-1", "us-west-1", "us-west-2", "eu-west-1", "eu-west-2", "eu-west-3", "ap-northeast-3")
        endpoint = os.environ["TEST_SERVER_MODE_ENDPOINT"]
        _CLIENTS.extend(
            boto3.session.Session().client("sqs", endpoint_url=endpoint, region_name=one) for one in regions
        )
    for client in _CLIENTS:
        for url in client.list_queues().get("QueueUrls", ()):
            client.delete_queue(QueueUrl=url)


ServerModeMockAWS.reset = _delete_all_queues


@pytest.fixture
def account_id():
    return "123456789012"
"""


@contextlib.contextmanager
def endpoint(*arguments: str) -> Iterator[int]:
    """Start `reliq sqs` on a Redis of its own; yield its port."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder, EmbeddedRedis(folder) as redis, Path(folder, "log").open("w") as log:
        command = [
            sys.executable, "-m", "reliq", "sqs", "--no-auth", "--port", str(port), "--url", redis.url, *arguments,
        ]  # fmt: skip
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _wait_for(port, process)
            yield port
        finally:
            process.terminate()
            process.wait(timeout=60)


def _wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2):
            return
        time.sleep(0.1)
    raise RuntimeError("`reliq sqs` did not start")


def pytest_of(folder: Path, *arguments: str, **environment: str) -> list[Outcome]:
    """Run pytest in a folder, and return what became of each test."""
    report = folder / "report.xml"
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:rerunfailures", "-W", "ignore",
        "-c", os.devnull, "--rootdir", str(folder), "--timeout", "120", f"--junitxml={report}", *arguments,
    ]  # fmt: skip
    known = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **known, **environment}, capture_output=True, text=True,
        timeout=_TIMEOUT, check=False,
    )  # fmt: skip
    if not report.exists():
        raise RuntimeError(done.stdout[-3000:] + done.stderr[-3000:])
    return outcomes_of(report)


def _needs(*packages: str, hint: str) -> None:
    missing = [one for one in packages if importlib.util.find_spec(one) is None]
    if missing:
        raise Missing(f"{', '.join(missing)} is not installed: {hint}")


def _suite(suites: Path, name: str) -> Path:
    folder = suites / "sqs" / name
    if not folder.is_dir():
        raise Missing(f"there is no folder {folder}: give the suites with SUITES=")
    return folder


def moto(suites: Path, place: Path) -> list[Outcome]:
    folder = _suite(suites, "moto")
    _needs("moto", "freezegun", hint="pip install 'moto[sqs,server]' freezegun")
    shutil.copytree(folder, place, dirs_exist_ok=True)
    (place / "tests" / "test_sqs" / "conftest.py").write_text(_BEFORE_MOTO)
    with endpoint("--account-id", _MOTOS_ACCOUNT, "--endpoint-url", "http://localhost:5000") as port:
        files = ("tests/test_sqs/test_sqs.py", "tests/test_sqs/test_sqs_message_attributes.py")
        return pytest_of(place, *files, TEST_SERVER_MODE="true", TEST_SERVER_MODE_ENDPOINT=f"http://localhost:{port}")


def ministack(suites: Path, place: Path) -> list[Outcome]:
    shutil.copytree(_suite(suites, "ministack"), place, dirs_exist_ok=True)
    stub = place / "ministack" / "core"
    stub.mkdir(parents=True)
    (stub / "responses.py").write_text(_STUB_OF_MINISTACK)
    with endpoint() as port:
        return pytest_of(place, "tests/test_sqs.py", MINISTACK_ENDPOINT=f"http://localhost:{port}")


def kombu(suites: Path, place: Path) -> list[Outcome]:
    _needs("pycurl", hint="pip install pycurl")
    try:
        folder = KOMBU.suite()
    except AssertionError as error:
        raise Missing(str(error)) from None
    shutil.copytree(folder, place, dirs_exist_ok=True)
    with endpoint() as port:
        options = ("-o", "python_classes=test_* Test*", "-p", "celery.contrib.pytest", "t/integration/test_sqs.py")
        return pytest_of(place, *options, SQS_HOST="localhost", SQS_PORT=str(port))


def javascript(suites: Path, place: Path) -> list[Outcome]:
    """Run the tests of sqs_clients with the SDK of JavaScript and sqs-consumer, which is a client of it."""
    try:
        folder = js.folder(install=True)
    except LookupError as error:
        raise Missing(str(error)) from None
    with endpoint() as port:
        done = subprocess.run(
            ["node", "--test", "--test-reporter=junit", "sqs.test.mjs"],
            cwd=folder, env={**os.environ, "SQS_ENDPOINT": f"http://127.0.0.1:{port}"}, capture_output=True,
            text=True, timeout=_TIMEOUT, check=False,
        )  # fmt: skip
    report = place / "report.xml"
    report.write_text(done.stdout)
    return outcomes_of(report)


def _program(run: Callable[[int, Path], list[Outcome]]) -> Callable[[Path, Path], list[Outcome]]:
    def with_endpoint(suites: Path, place: Path) -> list[Outcome]:
        with endpoint() as port:
            return run(port, place)

    return with_endpoint


SUITES: dict[str, Callable[[Path, Path], list[Outcome]]] = {
    "moto": moto,
    "ministack": ministack,
    "kombu": kombu,
    "javascript": javascript,
    "examples": _program(sqs_programs.examples),
    "awscli": _program(sqs_programs.awscli),
    "terraform": _program(sqs_programs.terraform),
    "airflow": _program(sqs_programs.airflow),
    "campaign": _program(sqs_programs.campaign),
}


def left_out(suite: str, one: Outcome) -> str:
    """Return why a test does not apply; empty for all others."""
    name = one.test.rpartition("::")[2].partition("[")[0]
    return next((reason for pattern, reason in LEFT_OUT.get(suite, {}).items() if re.search(pattern, name)), "")


def run(suite: str, suites: Path) -> bool:
    """Run one suite and print what became of it; return whether all tests that apply passed."""
    with tempfile.TemporaryDirectory() as place:
        try:
            outcomes = SUITES[suite](suites, Path(place))
        except Missing as missing:
            print(f"{suite}: left out: {missing}", flush=True)
            return True
    reasons, failed, passed = Counter[str](), list[Outcome](), 0
    for one in outcomes:
        reason = left_out(suite, one)
        if one.result == "skipped" or reason:
            reasons[reason or f"skipped by the suite: {one.reason}"] += 1
        elif one.result == "failed":
            failed.append(one)
        else:
            passed += 1
    print(f"{suite}: {passed} passed, {len(failed)} failed, {sum(reasons.values())} left out", flush=True)
    for one in failed:
        print(f"  failed    {one.test}: {one.reason}")
    for reason, count in reasons.most_common():
        print(f"  left out  {count}: {reason}")
    return not failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="SUITE", help=f"one of {', '.join(SUITES)} (default: all)")
    parser.add_argument("--suites", type=Path, default=ROOT.parent / "shared" / "suites", help="the folder of suites")
    options = parser.parse_args()
    unknown = set(options.names) - SUITES.keys()
    if unknown:
        parser.error(f"there is no suite {', '.join(sorted(unknown))}")
    results = [run(one, options.suites.resolve()) for one in options.names or SUITES]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
