"""The keys of a queue."""

from reliq.model.keys import JobKeys, QueueKeys

KEYS = QueueKeys("orders")


def test_everything_is_every_key_of_the_queue_once():
    named = {name: getattr(KEYS, name) for one in (JobKeys, QueueKeys) for name in one.__slots__}
    keys = [
        one
        for name, one in named.items()
        if isinstance(one, str) and name not in ("_prefix", "place", "queue", "logical")
    ]
    assert sorted(KEYS.everything) == sorted(keys)
    assert len(set(keys)) == len(keys)


def test_everything_has_the_prepared_messages_and_the_questions_about_them():
    assert {KEYS.prepared, KEYS.questions, KEYS.jobs, KEYS.epochs, KEYS.trying} < set(KEYS.everything)


def test_every_key_lies_in_the_slot_of_its_queue():
    assert all(one.startswith("reliq:{orders}:") for one in KEYS.everything)
