"""Routing keys and patterns, as AMQP's topic exchange has them: words between dots; `*` is one word, `#` any number.

Patterns are compiled into a trie, so that matching costs what the key is long, not what the bindings are many.
"""

from collections.abc import Iterable

from reliq.errors import InvalidName
from reliq.model.element import cut

LONGEST = 255  #: bytes of UTF-8, as in AMQP
_REMEMBERED = 10_000  #: keys whose queues are known without a walk

Binding = tuple[str, str]  #: queue, pattern


def check_routing_key(key: object) -> str:
    """The key itself; raises InvalidName."""
    text = _checked(key, "routing key")
    if "*" in text or "#" in text:
        raise InvalidName(f"routing key {text!r}: * and # belong into the pattern of a subscription")
    return text


def check_pattern(pattern: object) -> str:
    """The pattern itself; raises InvalidName."""
    text = _checked(pattern, "pattern")
    for word in text.split("."):
        if len(word) > 1 and ("*" in word or "#" in word):
            raise InvalidName(f"pattern {text!r}: * and # stand for whole words, and {word!r} is more than one")
    return text


def _checked(value: object, what: str) -> str:
    try:
        if isinstance(value, str) and len(value.encode()) <= LONGEST and value.isprintable() and " " not in value:
            return value
    except UnicodeEncodeError:
        pass
    raise InvalidName(
        f"{what} {cut(repr(value), 80)}: words with dots in between, at most {LONGEST} bytes, no blanks, "
        "such as order.created.eu"
    )


def words_of(text: str) -> list[str]:
    """The empty text has no words; two dots in a row have an empty one between them."""
    return text.split(".") if text else []


class _Node:
    """What is known after some words of a pattern."""

    __slots__ = ("children", "many", "queues", "reach")

    def __init__(self, many: bool = False) -> None:
        self.children: dict[str, _Node] = {}
        self.queues: set[str] = set()
        self.many = many  #: it was reached by a `#`, which may take more words
        self.reach: tuple[_Node, ...] = (self,)  #: itself, and what a `#` behind it reaches with no word at all

    def freeze(self) -> None:
        """Nothing is added any more."""
        for child in self.children.values():
            child.freeze()
        if "#" in self.children:
            self.reach = (self, *self.children["#"].reach)


class Routes:
    """Bindings, compiled. Immutable; made anew when they change."""

    def __init__(self, bindings: Iterable[Binding] = ()) -> None:
        self._root = _Node()
        self._known: dict[str, tuple[str, ...]] = {}
        for queue, pattern in bindings:
            node = self._root
            for word in words_of(pattern):
                node = node.children.setdefault(word, _Node(many=word == "#"))
            node.queues.add(queue)
        self._root.freeze()

    def match(self, key: str) -> tuple[str, ...]:
        """The queues that get a message with this routing key, sorted."""
        queues = self._known.get(key)
        if queues is None:
            queues = self._walk(words_of(key))
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[key] = queues
        return queues

    def _walk(self, words: list[str]) -> tuple[str, ...]:
        """All nodes that the words can lead to, kept side by side: no pattern makes it go back."""
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
