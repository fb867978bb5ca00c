"""Routing keys and patterns as in AMQP's topic exchange: words between dots; `*` is one word, `#` any number.

Patterns are compiled into a trie: the cost of a match grows with the length of the key, not with the number of
bindings.
"""

from collections.abc import Iterable

from reliq.contract.values import cut
from reliq.errors import InvalidName

LONGEST = 255  #: bytes of UTF-8, as in AMQP
_REMEMBERED = 10_000  #: keys with cached matches

Binding = tuple[str, str]  #: queue, pattern


def check_routing_key(key: object) -> str:
    """Return the routing key if it is valid; raises InvalidName."""
    text = _checked(key, "routing key")
    if "*" in text or "#" in text:
        raise InvalidName(f"routing key {text!r}: * and # are allowed only in the pattern of a subscription")
    return text


def check_pattern(pattern: object, bound: bool = False) -> str:
    """Return the pattern if it is valid; raises InvalidName. `bound`: earlier versions may have bound it."""
    text = _checked(pattern, "pattern", empty_words=bound)
    for word in text.split("."):
        if len(word) > 1 and ("*" in word or "#" in word):
            raise InvalidName(f"pattern {text!r}: * and # stand for whole words, not for parts of one as in {word!r}")
    return text


def _checked(value: object, what: str, empty_words: bool = False) -> str:
    try:
        fits = isinstance(value, str) and len(value.encode()) <= LONGEST and value.isprintable() and " " not in value
    except UnicodeEncodeError:
        fits = False
    if isinstance(value, str) and fits and (empty_words or all(value.split("."))):
        return value
    raise InvalidName(
        f"{what} {cut(repr(value), 80)}: use words with dots in between, none of them empty, at most {LONGEST} bytes, "
        "no blanks, such as order.created.eu"
    )


def words_of(text: str) -> list[str]:
    """Split at the dots. Bindings of earlier versions may have empty words; the empty text has none at all."""
    return text.split(".") if text else []


class _Node:
    """The state after some words of a pattern."""

    __slots__ = ("children", "many", "queues", "reach")

    def __init__(self, many: bool = False) -> None:
        self.children: dict[str, _Node] = {}
        self.queues: set[str] = set()
        self.many = many  #: reached by a `#`, which may take more words
        self.reach: tuple[_Node, ...] = (self,)  #: this node, and those that a following `#` reaches without a word

    def freeze(self) -> None:
        """Compute what each node reaches; nothing is added afterwards."""
        for child in self.children.values():
            child.freeze()
        if "#" in self.children:
            self.reach = (self, *self.children["#"].reach)


class Routes:
    """Compiled bindings. Immutable; replaced when the bindings change."""

    def __init__(self, bindings: Iterable[Binding] = ()) -> None:
        self._root = _Node()
        self._known: dict[str, tuple[str, ...]] = {}
        self.queues: set[str] = set()  #: all that are bound
        for queue, pattern in bindings:
            node = self._root
            for word in words_of(pattern):
                node = node.children.setdefault(word, _Node(many=word == "#"))
            node.queues.add(queue)
            self.queues.add(queue)
        self._root.freeze()

    def match(self, key: str) -> tuple[str, ...]:
        """Return the queues that get a message with this routing key, sorted."""
        queues = self._known.get(key)
        if queues is None:
            queues = self._walk(words_of(key))
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[key] = queues
        return queues

    def _walk(self, words: list[str]) -> tuple[str, ...]:
        """Follow all nodes that the words can lead to at the same time: no pattern causes backtracking."""
        here = set(self._root.reach)
        for word in words:
            there: set[_Node] = set()
            for node in here:
                if node.many:
                    there.update(node.reach)
                for one in (word, "*"):
                    child = node.children.get(one)
                    if child is not None:
                        there.update(child.reach)
            here = there
        return tuple(sorted(set().union(*(node.queues for node in here))))
