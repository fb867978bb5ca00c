"""The service held against its OpenAPI document, by schemathesis. It is imported by the test that needs it: slowly."""

import json
import re
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.python._constants.orchestrator import make_constants_value_source

from reliq.contract.values import DURATION

load_all_checks()


@schemathesis.serializer("application/x-ndjson")
def as_line(context, value):
    return json.dumps(value).encode()


def shorter(wait):
    """A poll that lasts no time, of what is a duration."""
    if isinstance(wait, str):
        return "10ms" if re.fullmatch(DURATION, wait) else wait
    return 0.01 if isinstance(wait, (int, float)) and 0 < wait <= 30 else wait


# What a schema cannot say (a duration's range, exactly one of two bodies, a name said twice) is refused though it fits.
UNSAID = [CHECKS.get_one("positive_data_acceptance")]


class Contract:
    """The calls of an OpenAPI document."""

    def __init__(self, document: dict[str, Any], session: requests.Session) -> None:
        self._session = session
        self._calls = schemathesis.openapi.from_dict(document)
        refusal = self._calls.config.checks.negative_data_rejection
        refusal.expected_statuses = [*refusal.expected_statuses, "431"]  # of parameters with more than 64 KiB

    def keeps(self, path: str, method: str, examples: int, base: str, headers: dict[str, str]) -> None:
        """Make calls that the document allows and calls that it does not, and look at each answer."""

        @settings(
            max_examples=examples,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        def keeps_its_contract(case):
            for members in (case.body, case.query):
                if isinstance(members, dict) and (wait := members.get("wait")):
                    members["wait"] = shorter(wait)
            if case.headers and str(case.headers.get("Reliq-Durability")).startswith("replicas"):
                case.headers["Reliq-Durability"] = "memory"  # there are none: 504, which is right and no contract
            case.call_and_validate(base_url=base, session=self._session, headers=headers, excluded_checks=UNSAID)

        build_operation_test(
            config=self._calls.config,
            operation=self._calls[path][method],
            test_func=keeps_its_contract,
            given_kwargs={},
            feedback=FeedbackSources(constants_value_source=make_constants_value_source(self._calls)),
        )()
