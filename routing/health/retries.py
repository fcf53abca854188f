"""How many second dials a process may spend, so that a provider's outage does not become a storm of our own making."""

WINDOW = 10  # seconds
SHARE = 0.095  # of the requests of the window: 10 % of any ten seconds, also when fewer requests come than before
FLOOR = 64  # in the window, for a process with little traffic


class RetryBudget:
    """Counts the requests and the retries of the last ten seconds, by the second. Times are monotonic seconds."""

    __slots__ = ("_requests", "_retries", "_second")

    def __init__(self, now: float) -> None:
        self._second = int(now)
        # One second more of retries than of requests: whichever ten seconds are looked at, the share holds.
        self._requests = [0] * WINDOW
        self._retries = [0] * (WINDOW + 1)

    def request(self, now: float) -> None:
        """Counts a request, whatever becomes of it."""
        if int(now) > self._second:
            self._turn(int(now))
        self._requests[self._second % WINDOW] += 1

    def may_retry(self, now: float) -> bool:
        """Takes one retry out of the budget; False when there is none left, and then nothing was taken."""
        if int(now) > self._second:
            self._turn(int(now))
        if sum(self._retries) >= max(FLOOR, SHARE * sum(self._requests)):
            return False
        self._retries[self._second % (WINDOW + 1)] += 1
        return True

    def _turn(self, second: int) -> None:
        for passed in range(max(self._second + 1, second - WINDOW), second + 1):
            self._requests[passed % WINDOW] = 0
            self._retries[passed % (WINDOW + 1)] = 0
        self._second = second
