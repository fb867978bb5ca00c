"""Messages that a monitor brings to another home of their queue."""

from typing import NamedTuple

REMEMBERED = 86_400.0  #: seconds for which a home knows what monitors have brought, so that nothing comes twice


class Coming(NamedTuple):
    """A message that a monitor brings to its home, or to another queue."""

    id: str  #: there
    mark: str  #: a key that exists there once the message has entered: what belongs to it comes before
    former_id: str = ""  #: if it had another one where it was
