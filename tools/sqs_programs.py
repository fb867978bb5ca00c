"""Programs that speak SQS, each against an endpoint of `reliq sqs`; what tools/test_sqs.py runs beside suites.

Terraform has to find its provider `aws`: in its registry, or where `TF_CLI_ARGS_init=-plugin-dir=FOLDER` says.
"""

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.integration.celery.suites import Outcome
from tests.support.javascript import CLIENTS, folder
from tests.support.workers import ROOT

_EXAMPLES = ROOT / "examples" / "sqs"
_TESTS = ROOT / "tests" / "integration" / "sqs"
_ENVIRONMENTS = ROOT / ".data" / "sqs"
_AIRFLOW = ("apache-airflow==3.3.2", "apache-airflow-providers-amazon==9.39.0")
_AWSCLI = ("awscli==1.46.3",)
_TIMEOUT = 600
_ANYBODY = {
    "AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_REGION": "us-east-1",
}  # fmt: skip
_MESSAGES = '[{"Id": "a", "MessageBody": "1"}, {"Id": "b", "MessageBody": "2"}]'


class Missing(Exception):
    """A suite or a program cannot run here; the text is the reason."""


def terraform(port: int, place: Path) -> list[Outcome]:
    """Make queues, change one, and destroy them; after each change a plan must find nothing more to do."""
    if shutil.which("terraform") is None:
        raise Missing("there is no terraform")
    shutil.copy(CLIENTS / "main.tf", place)
    known = {"TF_VAR_endpoint": f"http://127.0.0.1:{port}", "TF_IN_AUTOMATION": "1"}
    begun = _ran(["terraform", "init", "-no-color", "-input=false"], place, known)
    if begun.returncode:
        raise Missing(f"terraform has no provider aws: {begun.stderr.strip()[:200]}")
    apply, plan = ("apply", "-auto-approve"), ("plan", "-detailed-exitcode")
    changed = ("-var", "visibility=60")
    steps = (apply, plan, (*apply, *changed), (*plan, *changed), ("destroy", "-auto-approve"))
    return _each(steps, lambda step: _ran(["terraform", step[0], "-no-color", *step[1:]], place, known))


def awscli(port: int, place: Path) -> list[Outcome]:
    """Use the actions that a person types; the values that later ones need come from the answers."""
    program = _environment("awscli", *_AWSCLI) / "aws"
    base = f"http://127.0.0.1:{port}"
    url, dead = (f"{base}/000000000000/{name}" for name in ("cli", "cli-dead"))
    arn = "arn:aws:sqs:us-east-1:000000000000:cli-dead"
    redrive = json.dumps({"RedrivePolicy": json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})})
    received: list[Any] = []

    def run(step: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        filled = [part.replace("HANDLE", received[-1]["ReceiptHandle"]) if received else part for part in step]
        done = _ran([str(program), "--endpoint-url", base, "sqs", *filled], place, _ANYBODY)
        if step[0] == "receive-message" and done.returncode == 0:
            told = json.loads(done.stdout or "{}").get("Messages", [])
            if not told:
                return subprocess.CompletedProcess(done.args, 1, "", "nothing was received")
            received.extend(told)
        return done

    handle = ("--receipt-handle", "HANDLE")
    of_queue = ("--queue-url", url)
    steps: list[Sequence[str]] = [
        ("create-queue", "--queue-name", "cli-dead"),
        ("create-queue", "--queue-name", "cli", "--attributes", "VisibilityTimeout=60", "--tags", "a=b"),
        ("set-queue-attributes", *of_queue, "--attributes", redrive),
        ("get-queue-attributes", *of_queue, "--attribute-names", "All"),
        ("list-dead-letter-source-queues", "--queue-url", dead),
        ("send-message", *of_queue, "--message-body", "m"),
        ("receive-message", *of_queue, "--attribute-names", "All", "--wait-time-seconds", "5"),
        ("change-message-visibility", *of_queue, *handle, "--visibility-timeout", "30"),
        ("delete-message", *of_queue, *handle),
        ("send-message-batch", *of_queue, "--entries", _MESSAGES),
        ("start-message-move-task", "--source-arn", arn),
        ("list-message-move-tasks", "--source-arn", arn),
        ("tag-queue", *of_queue, "--tags", "c=d"),
        ("list-queue-tags", *of_queue),
        ("untag-queue", *of_queue, "--tag-keys", "a"),
        ("add-permission", *of_queue, "--label", "l", "--aws-account-ids", "111111111111", "--actions", "SendMessage"),
        ("remove-permission", *of_queue, "--label", "l"),
        ("purge-queue", *of_queue),
        ("list-queues", "--max-results", "1"),
        ("get-queue-url", "--queue-name", "cli"),
        ("delete-queue", *of_queue),
    ]
    return _each(steps, run)


def airflow(port: int, place: Path) -> list[Outcome]:
    """Run the operator, the hook and the sensor of Airflow's provider."""
    python = _environment("airflow", *_AIRFLOW) / "python"
    known = {"SQS_ENDPOINT": f"http://127.0.0.1:{port}"}
    return _each([("airflow_story.py",)], lambda step: _ran([str(python), str(_TESTS / step[0])], place, known))


def examples(port: int, place: Path) -> list[Outcome]:
    """Run the example of each language, where its SDK is: CLASSPATH has that of Java, Go finds its own as usual."""
    known = {**_ANYBODY, "AWS_ENDPOINT_URL_SQS": f"http://127.0.0.1:{port}"}
    shutil.copytree(_EXAMPLES, place, dirs_exist_ok=True)
    programs = {
        "orders.py": lambda: [sys.executable],
        "orders.mjs": lambda: _with_node(place),
        "orders.go": lambda: _with_go(place),
        "Orders.java": _with_java,
    }
    found = []
    for name, command in programs.items():
        try:
            done = _ran([*command(), name], place, known)
        except Missing as missing:
            found.append(Outcome(name, "skipped", str(missing)))
            continue
        shipped = done.returncode == 0 and done.stdout.count("shipped") == 3
        found.append(Outcome(name, "passed" if shipped else "failed", (done.stderr or done.stdout).strip()[-300:]))
    return found


def _with_node(place: Path) -> list[str]:
    try:
        (place / "node_modules").symlink_to(folder(install=True) / "node_modules")
    except LookupError as error:
        raise Missing(str(error)) from None
    return ["node"]


def _with_go(place: Path) -> list[str]:
    if shutil.which("go") is None:
        raise Missing("there is no go")
    if os.environ.get("GO111MODULE") != "off":
        for step in (["init", "orders"], ["tidy"]):
            done = _ran(["go", "mod", *step], place, {})
            if done.returncode:
                raise Missing(f"go has no SDK of AWS: {done.stderr.strip()[-200:]}")
    return ["go", "run"]


def _with_java() -> list[str]:
    if shutil.which("java") is None or not os.environ.get("CLASSPATH"):
        raise Missing("there is no java, or no CLASSPATH with AWS's SDK for it")
    return ["java"]


def campaign(_: int, place: Path) -> list[Outcome]:
    """Run the row of the fault campaign whose consumers have the SDK of JavaScript."""
    try:
        folder(install=True)
    except LookupError as error:
        raise Missing(str(error)) from None
    command = [sys.executable, "-m", "tests.campaign", "--seed", "7", "--scenario"]
    paths = os.pathsep.join(str(ROOT / one) for one in ("", "api", "monitor"))
    return _each([("sqs-javascript",)], lambda step: _ran([*command, *step], place, {"PYTHONPATH": paths}))


def _each(
    steps: Sequence[Sequence[str]], run: Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]
) -> list[Outcome]:
    """Run steps one after another, each of which is a test; those behind a failure are run too."""
    found = []
    for step in steps:
        done = run(step)
        failed = (done.stderr.strip() or done.stdout.strip())[-300:] or "an exit status of its own"
        found.append(Outcome(" ".join(step[:3]), "failed" if done.returncode else "passed", failed))
    return found


def _environment(name: str, *packages: str) -> Path:
    """Return the programs of a virtual environment with these packages, which is made once."""
    place = _ENVIRONMENTS / name
    if not (place / "ready").exists():
        venv.create(place, with_pip=True, clear=True)
        command = [str(place / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", *packages]
        done = _ran(command, place, {})
        if done.returncode:
            raise Missing(f"{' '.join(packages)} cannot be installed: {done.stderr.strip()[-200:]}")
        (place / "ready").touch()
    return place / "bin"


def _ran(command: list[str], place: Path, known: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        command, cwd=place, env={**environment, **known}, capture_output=True, text=True, timeout=_TIMEOUT, check=False
    )
