"""What is left of an error once it has been told: nothing that only the collector would find."""

import gc
import weakref

from gateway.wire.errors import GatewayError, let_go


def caught(raising: BaseException, because: BaseException | None = None) -> None:
    """Raises it and catches it, perhaps because of another one."""
    try:
        raise raising from because
    except BaseException as error:
        assert error is raising


def test_a_chain_of_errors_keeps_no_frame() -> None:
    first, second, third = ValueError("first"), OSError("second"), GatewayError("third")
    caught(first)
    caught(second, first)
    caught(third, second)
    let_go(third)
    assert [error.__traceback__ for error in (first, second, third)] == [None, None, None]


def test_one_that_is_kept_and_raised_anew_by_its_own_consequence_is_no_circle() -> None:
    kept, told = OSError("the disk is full"), GatewayError("not just now")
    caught(told, kept)
    try:
        raise told
    except GatewayError:
        caught(kept)  # as a settlement does, each time that somebody waits for it
    assert kept.__context__ is told
    gc.collect()
    gc.disable()
    try:
        let_go(told)  # returns
        gone = weakref.ref(told)
        assert (kept.__traceback__, told.__traceback__) == (None, None)
        del told
        assert gone() is None
    finally:
        gc.enable()
