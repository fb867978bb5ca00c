"""What `pydoc reliq` prints: the classes that act, short enough to read."""

import pydoc

import reliq


def test_the_help_of_the_package_is_short_and_has_the_classes_that_act():
    text = pydoc.plain(pydoc.render_doc(reliq))
    assert len(text.splitlines()) <= 1500
    for name in ("Reliq", "Queue", "Message", "Consumer", "exponential", "Retry"):
        assert f"class {name}(" in text


def test_names_that_the_help_leaves_out_are_imported_as_before():
    names: dict[str, object] = {}
    exec("from reliq import *", names)
    assert set(reliq.__all__) <= set(names)
    assert names["LeaseLost"] is reliq.errors.LeaseLost
