"""A victim beside an attacker: it asks at its own pace, and what it met is kept."""

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.attacks.scale import WHOLE
from tests.stage.product import Gateway

MOST_SECONDS = 1.0  # a median of a victim's: what is under it is no attacker's doing but this machine's
ATTEMPTS = 3  # what else runs on the machine may spoil one; an attack that works spoils all


@dataclass
class Victim:
    """Asks one thing after another. `statuses` and `seconds` are what it met."""

    gateway: Gateway
    secret: str
    model: str
    statuses: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def ask(self) -> None:
        """One paid request."""
        began = time.monotonic()
        self.statuses.append(self.gateway.chat(self.secret, self.model).status_code)
        self.seconds.append(time.monotonic() - began)

    def median(self, times: int) -> float:
        """Of so many further requests."""
        before = len(self.seconds)
        for _ in range(times):
            self.ask()
        return statistics.median(self.seconds[before:])


@contextmanager
def attacked(*attackers: Callable[[], object]) -> Iterator[None]:
    """Each of `attackers` again and again, in a thread of its own. What they meet themselves is not asked."""
    over = threading.Event()

    def attack(once: Callable[[], object]) -> None:
        while not over.is_set():
            try:
                once()
            except OSError:
                over.wait(0.01)

    threads = [threading.Thread(target=attack, args=(once,)) for once in attackers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def holds(victim: Victim, *attackers: Callable[[], object], times: int = 20 if WHOLE else 5) -> None:
    """Asserts that the victim's median at most doubles beside the attackers, and that nothing of it fails."""
    for attempt in range(ATTEMPTS):
        quiet = victim.median(times)
        with attacked(*attackers):
            victim.median(3)  # the attack is under way
            beset = victim.median(times)
        assert set(victim.statuses) == {200}, victim.statuses
        print(f"{attempt}: median {quiet * 1000:.1f} ms, beside the attack {beset * 1000:.1f} ms")
        if beset <= max(2 * quiet, MOST_SECONDS):
            return
    raise AssertionError(f"{quiet:.3f} s, and {beset:.3f} s beside the attack")
