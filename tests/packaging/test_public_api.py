"""The public API changes only on purpose."""

import re

from tools.public_api import FILE, lines


def test_the_public_api_is_the_one_in_the_file():
    frozen = FILE.read_text(encoding="utf-8").splitlines()
    now = lines()
    gone, new = [one for one in frozen if one not in now], [one for one in now if one not in frozen]
    assert (gone, new) == ([], []), (
        f"removed or altered, which breaks programs of users: {gone}; new: {new}. "
        "If this is meant: an entry in CHANGELOG.md, and `python tools/public_api.py` writes the file anew"
    )


def test_the_text_of_the_api_has_what_users_rely_on():
    text = "\n".join(lines())
    assert "async def reliq.aio.Queue.send(self, body: Body | NewMessage, only durability: str | None = None" in text
    assert "def reliq.Reliq.handler(self, queue: str, only retry: Backoff | int | None = None" in text  # inherited
    assert "class reliq.QueueFull(ReliqError)" in text
    assert "def reliq.exponential.__init__(self, first: Duration = 5.0" in text
    assert re.search(r"\._[a-z]", text) is None
