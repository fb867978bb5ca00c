"""What senders and receivers name: groups, deduplication ids, attempts."""

import re

from reliq_sqs.errors import INVALID, invalid_parameter

_TOKEN = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]{1,128}")


def check(name: str, value: str, template: str = f"{INVALID}.") -> None:
    """Raise SqsError unless a value has 1 to 128 of the characters that AWS allows."""
    if _TOKEN.fullmatch(value) is None:
        reason = f"{name} can only include alphanumeric and punctuation characters. 1 to 128 in length"
        raise invalid_parameter(template.format(value, name, reason))
