"""The SQS endpoint for tests: in a thread of this process, or as a process of its own, and clients of it."""

import contextlib
import copy
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import boto3
import botocore.session
import httpx
from botocore.config import Config
from botocore.loaders import Loader

from reliq_api.server import Server, server_for
from reliq_sqs.app import create_app
from reliq_sqs.errors import SqsError
from reliq_sqs.model import NAMESPACE, shapes
from reliq_sqs.settings import Settings
from tests.support.ports import free_port
from tests.support.workers import Child, eventually, process

CONFIG = Config(retries={"mode": "standard", "total_max_attempts": 1}, max_pool_connections=50)


@contextlib.contextmanager
def serving(url: str, **settings: Any) -> Iterator[int]:
    """The endpoint on a free port, without signatures unless told otherwise; yields the port."""
    with server(url, **settings) as running:
        yield running.config.port


@contextlib.contextmanager
def server(url: str, **settings: Any) -> Iterator[Server]:
    """The endpoint as `serving` has it, for tests of what no answer tells."""
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listener:
        port = listener.getsockname()[1]
        asked = replace(Settings(url=url, port=port), **{"no_auth": True, **settings})
        running = server_for(create_app(asked), asked)
        thread = threading.Thread(target=running.run, args=([listener],), daemon=True)
        thread.start()
        eventually(lambda: running.started or not thread.is_alive())
        try:
            yield running
        finally:
            running.should_exit = True
            thread.join(timeout=30)
            assert not thread.is_alive(), "the endpoint did not stop"


def client(port: int, region: str = "us-east-1", key: str = "test", secret: str = "test") -> Any:
    return boto3.session.Session().client(
        "sqs", endpoint_url=f"http://127.0.0.1:{port}", region_name=region, aws_access_key_id=key,
        aws_secret_access_key=secret, config=CONFIG,
    )  # fmt: skip


@contextlib.contextmanager
def own_process(
    url: str, *arguments: str, no_auth: bool = True, **environment: str
) -> Iterator[tuple[Child[bytes], int]]:
    """`reliq sqs` as a process; yields it and its port."""
    arguments = ("--no-auth", *arguments) if no_auth else arguments
    port = free_port()
    arguments = ("sqs", "--url", url, "--port", str(port), "--quiet", *arguments)
    with process(*arguments, folder=None, fresh=False, **environment) as child:
        eventually(lambda: _answers(port))
        yield child, port


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=5).is_success
    except httpx.TransportError:
        return False


class _QueryLoader(Loader):  # type: ignore[misc]  # botocore has no types
    """Loads the model of SQS as it was before its JSON protocol: with the names of the query protocol."""

    def load_service_model(self, service_name: str, type_name: str, api_version: str | None = None) -> Any:
        document = super().load_service_model(service_name, type_name, api_version)
        if (service_name, type_name) != ("sqs", "service-2"):
            return document
        document = copy.deepcopy(document)
        told = document["metadata"]
        for name in ("protocols", "jsonVersion", "targetPrefix", "awsQueryCompatible"):
            told.pop(name, None)
        told.update(protocol="query", xmlNamespace=NAMESPACE)
        for name, operation in document["operations"].items():
            if "output" in operation:
                operation["output"]["resultWrapper"] = f"{name}Result"
        elements = {name: shape.element for name, shape in shapes().items() if shape.kind in ("list", "map")}
        for name, shape in document["shapes"].items():
            if shape.get("exception"):
                shape["error"] = {"code": SqsError(name, "").code}
            if shape["type"] in ("list", "map"):
                shape["flattened"] = True
            if shape["type"] == "list":
                shape["member"]["locationName"] = elements[name]
            elif shape["type"] == "map":
                shape["key"]["locationName"], shape["value"]["locationName"] = shapes()[name].pair
            for member in shape.get("members", {}).values():
                if document["shapes"][member["shape"]]["type"] == "map":
                    member["locationName"] = elements[member["shape"]]
        return document


def query_client(port: int) -> Any:
    """A client of boto3 that speaks the query protocol, as all did until 2023."""
    session = botocore.session.get_session()
    session.register_component("data_loader", _QueryLoader(session.get_component("data_loader").search_paths))
    return boto3.session.Session(botocore_session=session).client(
        "sqs", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1", aws_access_key_id="test",
        aws_secret_access_key="test", config=CONFIG,
    )  # fmt: skip
