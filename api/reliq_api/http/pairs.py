"""Headers of messages in a query or a form, each as `name=value`."""

from collections.abc import Iterable

from reliq.errors import InvalidSetting


def headers_of(pairs: Iterable[str]) -> dict[str, str]:
    """Return the headers in these texts, without the empty texts; raises InvalidSetting."""
    headers = {}
    for text in filter(None, pairs):
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidSetting(f"header is {text!r}: write name=value")
        headers[name.strip()] = value.strip()
    return headers
