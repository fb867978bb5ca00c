"""The requirements of durable execution that hold, with their tests; docs/concepts/durable-execution.md has the others.

Each entry: numbers of the requirements of its kind, what is asked for, the tests.
"""

HOLDS: dict[str, list[tuple[str, str, tuple[str, ...]]]] = {
    "Step": [
        ("1, 2, 9", "a named step runs once; a replay skips it", ("test_a_finished_step_does_not_run_again",)),
        ("3", "a step uses what an earlier one returned", ("test_a_later_step_gets_what_an_earlier_one_has_returned",)),
        (
            "4, 5",
            "complex and empty results",
            (
                "test_results_come_back_as_they_were_also_after_a_sleep",
                "test_a_large_result_comes_back",
            ),
        ),
        ("8", "a step, a wait, and a replay", ("test_a_sleep_holds_no_worker_and_is_not_counted_as_a_failure",)),
        (
            "10, 19, 20",
            "a step that failed for good fails again in a replay; the handler may catch it",
            ("test_a_failed_step_may_be_caught_and_fails_again_when_the_handler_runs_again",),
        ),
        (
            "11",
            "a step fails, and is tried again",
            ("test_a_step_is_tried_again_by_its_own_policy_and_the_others_do_not_run_again",),
        ),
        (
            "12",
            "its tries are used up",
            ("test_a_step_that_fails_for_good_kills_its_message_and_runs_again_after_a_redrive",),
        ),
        ("14", "fixed and growing intervals", ("test_a_step_waits_as_long_as_its_back_off_says",)),
        ("15, 16", "by the class of the error", ("test_only_errors_that_are_worth_it_are_tried_again",)),
        ("17", "at most once, interrupted", ("test_a_step_that_is_to_run_at_most_once_is_not_repeated_by_itself",)),
        ("18", "at most once a try", ("test_a_step_at_most_once_a_try_succeeds_with_the_second_try",)),
    ],
    "Wait": [
        (
            "1, 2, 5",
            "a named wait, of a second or of days",
            ("test_a_sleep_holds_no_worker_and_is_not_counted_as_a_failure",),
        ),
        ("3", "several waits", ("test_sleeps_one_after_another_each_end_once",)),
        ("4", "units", ("test_a_sleep_is_as_long_as_its_units_say",)),
    ],
    "Callback": [
        ("1, 2", "a callback completes", ("test_a_parked_message_goes_on_with_the_value_of_its_signal",)),
        (
            "3",
            "it times out",
            (
                "test_a_wait_ends_after_its_time_and_a_late_signal_is_refused",
                "test_a_timeout_that_nobody_catches_is_an_error_of_the_handler",
            ),
        ),
        (
            "7, 9, 10",
            "it completes while a step runs, or during a wait",
            ("test_a_signal_that_comes_while_a_step_runs_or_the_message_sleeps_is_there_afterwards",),
        ),
        ("12", "it completes, then the handler waits", ("test_a_message_sleeps_after_its_signal_and_keeps_it",)),
        (
            "14",
            "the handler catches the time-out, then waits",
            ("test_a_handler_that_caught_a_timeout_goes_on_and_catches_it_in_its_next_run_too",),
        ),
        (
            "15, 16",
            "the payload as an object or a number",
            (
                "test_a_signal_becomes_an_object_of_a_type",
                "test_a_signal_may_have_any_value_or_none",
            ),
        ),
        ("17, 18, 19", "two callbacks, in any order", ("test_two_signals_are_waited_for_in_any_order",)),
    ],
    "Wait for a callback": [
        (
            "1, 2, 3",
            "a submitter, with and without a name",
            (
                "test_a_step_hands_out_a_link_before_the_message_waits",
                "test_a_one_time_link_gives_its_signal_once",
            ),
        ),
        (
            "5, 14",
            "it times out; the handler catches that",
            (
                "test_a_timeout_that_nobody_catches_is_an_error_of_the_handler",
                "test_a_handler_that_caught_a_timeout_goes_on_and_catches_it_in_its_next_run_too",
            ),
        ),
        (
            "7",
            "the submitter fails, and its tries are used up",
            ("test_a_submitter_that_always_fails_ends_the_message_before_it_waits",),
        ),
        ("8", "inside of a child context", ("test_functions_with_steps_and_sleeps_are_called_by_others",)),
        ("9", "two, one after another", ("test_two_signals_are_waited_for_in_any_order",)),
        (
            "10",
            "behind a wait and a step",
            ("test_a_signal_that_comes_while_a_step_runs_or_the_message_sleeps_is_there_afterwards",),
        ),
        ("11, 15", "the result is an object, or empty", ("test_a_signal_may_have_any_value_or_none",)),
    ],
    "Wait for a condition": [
        (
            "1 to 5, 9, 12",
            "until a counter or an object says so, from a given state, at fixed intervals; the last state goes on",
            ("test_a_condition_is_looked_at_until_it_is_true",),
        ),
        ("10", "the last state is null", ("test_results_come_back_as_they_were_also_after_a_sleep",)),
        (
            "6, 7, 8",
            "never true; the check raises, and the handler catches that",
            ("test_a_condition_that_never_is_true_and_a_check_that_fails_are_errors_that_may_be_caught",),
        ),
        ("13", "two, one after another", ("test_two_conditions_one_after_another",)),
    ],
    "Child context": [
        (
            "1, 2, 3, 6, 10, 13, 18",
            "steps and waits inside and behind, by name, nested, replayed",
            ("test_functions_with_steps_and_sleeps_are_called_by_others",),
        ),
        (
            "4, 5, 8, 15",
            "an error inside, caught outside or not",
            ("test_an_error_in_a_group_of_steps_is_caught_outside_of_it_in_each_run",),
        ),
        (
            "7",
            "a step inside is tried again",
            ("test_a_step_is_tried_again_by_its_own_policy_and_the_others_do_not_run_again",),
        ),
        ("11", "a result that is too large is made again from its children", ("test_a_large_result_comes_back",)),
        (
            "12",
            "interrupted, and run again",
            (
                "test_a_message_with_a_record_that_is_handed_back_goes_on_where_it_was",
                "test_no_finished_step_runs_again_and_no_signal_is_lost_or_given_twice",
            ),
        ),
    ],
    "Invoke": [
        (
            "1 to 4, 9, 11, 12",
            "a result, an object or null, before and behind steps; a replay does not invoke again",
            ("test_a_handler_calls_another_one_and_waits_for_its_result",),
        ),
        ("7", "a large payload", ("test_a_large_result_comes_back",)),
        (
            "13, 14",
            "inside of a child context; several in a row",
            (
                "test_functions_with_steps_and_sleeps_are_called_by_others",
                "test_two_signals_are_waited_for_in_any_order",
            ),
        ),
    ],
    "Parallel": [
        (
            "1, 2, 3, 4, 11",
            "branches with steps; named or not; results of several types, in the order of the branches",
            (
                "test_branches_of_an_async_handler_run_beside_each_other",
                "test_results_of_branches_are_in_their_order_whichever_ends_first",
            ),
        ),
        ("5", "no branches", ("test_no_branches_are_done_at_once",)),
        ("6, 7", "the first failure ends the handler", ("test_a_failure_of_one_branch_is_tolerated_or_ends_the_run",)),
        (
            "9, 16, 20",
            "failures are tolerated, and told apart",
            ("test_a_failure_of_one_branch_is_tolerated_or_ends_the_run",),
        ),
        (
            "14",
            "a branch waits; what others have done is not repeated",
            ("test_a_branch_that_sleeps_ends_the_run_and_what_others_have_done_stays",),
        ),
        ("21", "branches in branches", ("test_branches_in_branches",)),
    ],
    "Map": [
        (
            "1, 2, 3, 11, 13, 15, 17",
            "a function for each item and its number, results in order; a wait in between, and behind",
            ("test_items_are_mapped_in_order_and_each_step_runs_once_though_the_handler_sleeps_in_between",),
        ),
        ("4", "no items", ("test_no_branches_are_done_at_once",)),
        (
            "5, 6, 8, 18",
            "fail fast, raise again, tolerate",
            ("test_a_failure_of_one_branch_is_tolerated_or_ends_the_run",),
        ),
        ("16", "results that are large together", ("test_limits_of_steps_say_what_is_too_much",)),
    ],
}
