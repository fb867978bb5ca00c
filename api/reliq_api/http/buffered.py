"""The memory for request bodies: one budget for all requests of the process."""

from reliq_api.http.problems import Problem


class Buffered:
    """Counts the bytes of bodies that were received and are still needed, up to `most` of them."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0

    def check(self, size: int) -> None:
        """Raise Problem if a body of this size does not fit now."""
        if self.held + size > self.most:
            raise Problem(
                "overloaded",
                f"bodies of {self.held:,} bytes are in memory, {size:,} more would exceed the limit of {self.most:,} "
                "(max_buffered of `reliq api`)",
            )

    def take(self, size: int) -> None:
        """Count received bytes; raises Problem, without counting them, if they are too many."""
        self.check(size)
        self.held += size

    def give_back(self, size: int) -> None:
        self.held -= size
