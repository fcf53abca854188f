"""Starting a server on a remembered port of 127.0.0.1, whoever may sit there, and waiting for its answer."""

import time
from collections.abc import Callable

from deploy.processes import Child, Step, free_port, why_not_free
from deploy.state import Memory, StartError

READY_SECONDS = 60  # Recovery after a crash may take a while; an ordinary start takes well under one.


def remembered_port(memory: Memory, name: str) -> int:
    """The port remembered under `name`, chosen now if there is none."""
    return int(memory.recall(name, lambda: str(free_port())))


def start_listening(
    memory: Memory,
    name: str,
    launch: Callable[[], Child],
    answers: Callable[[Child], bool],
    steps: tuple[Step, ...],
    *,
    passing: str = "",
) -> Child:
    """Launch a server on the port remembered under `name`, or on another if a stranger has that one.

    Returns when `answers` says it does. An end of the server that is not about its port raises `StartError`
    with the last lines of its log, unless they hold `passing`, a complaint that goes away by itself. `steps`
    end a server that does not answer in `READY_SECONDS`.
    """
    deadline = time.monotonic() + READY_SECONDS
    while True:
        if why_not_free(remembered_port(memory, name)):
            memory.replace(name, str(free_port()))
        child = launch()
        try:
            while child.code is None and time.monotonic() < deadline:
                if answers(child) and child.code is None:
                    return child
                time.sleep(0.02)
        except BaseException:
            child.stop(*steps)
            raise
        late = time.monotonic() >= deadline
        port_is_ours = why_not_free(remembered_port(memory, name)) is None
        if child.code is None:
            child.stop(*steps)
            raise StartError(f"{child.name} did not answer within {READY_SECONDS} s:\n{child.tail()}")
        if late or (port_is_ours and not (passing and passing in child.tail())):
            raise StartError(f"{child.name} ended with {child.code}:\n{child.tail()}")
        time.sleep(0.1)
