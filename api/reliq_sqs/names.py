"""Names of queues: in URLs and ARNs, and as reliq's queues have them."""

import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote, urlsplit

from reliq_sqs.errors import SqsError, invalid_parameter, no_queue

FIFO = ".fifo"
_NEW = re.compile(r"[A-Za-z0-9_-]{1,80}")
_KNOWN = re.compile(r"[A-Za-z0-9_.-]{1,120}")  #: of a queue that Python made, too
_REMEMBERED = 500  #: characters of a URL whose parts are remembered
_REGION = re.compile(r"[a-z]{2,4}(-[a-z]+){1,3}-[0-9]{1,2}")
_PARTS_OF_AWS = {"cn-": "aws-cn", "us-gov-": "aws-us-gov", "us-iso-": "aws-iso", "us-isob-": "aws-iso-b"}
_PREFIX = "sqs."  #: before names that reliq does not allow; no name of SQS has it
_WRONG = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
_WRONG_FIFO = (
    "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must end with .fifo "
    "suffix and be 1 to 80 in length"
)


def part_of_aws(region: str) -> str:
    """Return the part of AWS that a region is in, which all its ARNs tell."""
    return next((name for beginning, name in _PARTS_OF_AWS.items() if region.startswith(beginning)), "aws")


def check_new(name: str, fifo: bool) -> None:
    """Raise SqsError unless a queue of this kind may have the name."""
    if fifo and not (name.endswith(FIFO) and len(name) <= 80 and _NEW.fullmatch(name.removesuffix(FIFO))):
        raise invalid_parameter(_WRONG_FIFO)
    if not fifo and _NEW.fullmatch(name) is None:
        raise invalid_parameter(_WRONG)


@dataclass(frozen=True, slots=True)
class Place:
    """A queue as SQS knows it: a name in a region."""

    region: str
    name: str

    @property
    def fifo(self) -> bool:
        return self.name.endswith(FIFO)


def of_name(name: str, region: str) -> Place:
    """Return the queue of a bare name; raises SqsError for a path, a URL and what else is no name."""
    if _KNOWN.fullmatch(name) is None:
        raise no_queue()
    return Place(region, name)


@dataclass(frozen=True, slots=True)
class Names:
    """How the names of an account are written."""

    account: str
    region: str  #: whose queues have the names of reliq's

    def arn(self, place: Place) -> str:
        return f"arn:{part_of_aws(place.region)}:sqs:{place.region}:{self.account}:{place.name}"

    def of_arn(self, arn: str) -> Place | None:
        """Return the queue of this account that an ARN names; None for all other texts."""
        parts = arn.split(":")
        whole = len(parts) == 6 and parts[0] == "arn" and parts[2] == "sqs" and parts[4] == self.account
        if not whole or not (parts[3] == self.region or known_region(parts[3])) or _KNOWN.fullmatch(parts[5]) is None:
            return None
        return Place(parts[3], parts[5])

    def of_url(self, url: str, region: str) -> Place:
        """Return the queue of a URL, of a path such as `/queue/NAME`, or of a bare name; raises SqsError.

        `region` is that of the request, for a URL that does not tell it.
        """
        if not url:
            raise SqsError("InvalidAddress", "The address  is not valid for this endpoint.")
        place = (_place if len(url) <= _REMEMBERED else _place.__wrapped__)(url, region)
        if place is None:
            raise no_queue()
        return place

    def url(self, base: str, place: Place) -> str:
        """Return the URL of a queue. Its path tells the region unless it is that of the host, or the endpoint's."""
        of_host = region_of_host(urlsplit(base).netloc)
        implied = of_host if known_region(of_host) else self.region
        region = "" if place.region == implied else f"/queue/{place.region}"
        return f"{base}{region}/{self.account}/{place.name}"

    def queue(self, place: Place) -> str:
        """Return the name of reliq's queue."""
        name = place.name if place.name[0] not in "-_." else _PREFIX + place.name
        return name if place.region == self.region else f"{name}@{place.region}"

    def of_queue(self, queue: str) -> Place | None:
        """Return what one of reliq's queues is in SQS; None if SQS cannot name it."""
        name, _, region = queue.partition("@")
        if (region and _REGION.fullmatch(region) is None) or region == self.region:
            return None
        name = name.removeprefix(_PREFIX) if name.startswith((_PREFIX + "-", _PREFIX + "_")) else name
        if _KNOWN.fullmatch(name) is None:
            return None
        return Place(region or self.region, name)


@lru_cache(maxsize=10_000)
def _place(url: str, region: str) -> Place | None:
    """Return the queue of a URL that may not have its region; None if it names none."""
    of_url, name = _region_and_name(url)
    return Place(of_url or region, name) if name else None


def _region_and_name(url: str) -> tuple[str, str]:
    """Return the region and the name in a URL; empty what it does not have."""
    try:
        host, path = urlsplit(url)[1:3] if "://" in url else ("", url)
    except ValueError:
        return "", ""
    *parents, name = map(unquote, path.strip("/").split("/"))
    if _KNOWN.fullmatch(name) is None:
        return "", ""
    of_path = parents[-2] if len(parents) >= 3 and parents[-3] == "queue" else ""
    return next(filter(known_region, (of_path, region_of_host(host))), ""), name


@lru_cache(maxsize=1000)
def known_region(region: str) -> bool:
    """Whether a text has the form of a region."""
    return _REGION.fullmatch(region) is not None


def region_of_host(host: str) -> str:
    """Return the region in the name of a host, such as `sqs.eu-west-1.example` or `eu-west-1.queue.example`."""
    first, _, rest = host.partition(".")
    second = rest.partition(".")[0]
    if first == "sqs":
        return second
    return first if second == "queue" else ""
