"""What a monitor does when time has passed."""

import contextlib

from reliq.transport.store import Store


def bring_due(store: Store, *, ticks: bool) -> int:
    """Make messages ready that are due by the clock of the server; return how many. `ticks`: of schedules, too."""
    from reliq_monitor import Monitor
    from reliq_monitor.duties import DUTIES
    from reliq_monitor.duty import DueDuty
    from reliq_monitor.promote import Promotion

    duties = [duty for duty in DUTIES if duty.brings_due and (ticks or issubclass(duty, DueDuty))]
    with contextlib.closing(Monitor(store)) as monitor:
        monitor.look()
        came: int = sum(monitor.perform(duty) for duty in duties)
        while promoted := monitor.perform(Promotion)[0]:
            came += promoted
    return came
