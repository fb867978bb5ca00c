"""The campaign finds what it is for: each mutant of reliq breaks a promise, and the checker names it."""

import pytest

from tests.campaign.mutants import MUTANTS

QUICK = {"a message is pushed twice", "the newest message of a key comes first"}


def test_there_are_enough_and_each_has_its_place():
    assert len(MUTANTS) >= 20
    assert len({one.name for one in MUTANTS}) == len(MUTANTS)
    for mutant in MUTANTS:
        assert mutant.new in mutant.changed()


@pytest.mark.campaign
@pytest.mark.parametrize(
    "mutant",
    [pytest.param(one, id=one.name, marks=[] if one.name in QUICK else [pytest.mark.slow]) for one in MUTANTS],
)
def test_the_checker_finds_the_mutant(mutant, tmp_path):
    outcome = mutant.judged(tmp_path)
    found = set(outcome["verdict"]["broken"])
    assert not outcome["good"]
    assert found & mutant.found_as, outcome["verdict"]
