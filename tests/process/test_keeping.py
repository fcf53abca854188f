"""What is kept of an answer on its way out: its very bytes, within bounds, and nothing once it is over."""

import gc
import secrets
import weakref
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounts.sealing import CannotOpen
from billing.backbone.claims import Claim
from gateway.process.keeping import BLOCK, MOST_BYTES, MOST_PACKED, Keeping, Replayed, opened
from gateway.process.memory import process_memory
from gateway.wire.errors import GatewayError

GENERATION = uuid4().hex
HEADERS = {b"content-type": b"text/event-stream", b"x-odd": "ä".encode("latin-1")}


class Told:
    """An answer to an error."""

    status, body = 502, b'{"error":{}}'

    def __init__(self) -> None:
        self.headers = dict(HEADERS)


def keeping() -> Keeping:
    """One whose answers go well, or fail with 502."""
    claim = Claim(uuid4(), uuid4(), uuid4(), uuid4(), GENERATION)
    return Keeping(claim, lambda: (200, HEADERS), lambda error: Told())


def told(found: Keeping, content: bytes | None) -> Replayed:
    """What was kept, opened."""
    assert content is not None
    return opened(content, found.claim.id.hex, GENERATION)


@given(
    st.lists(
        st.one_of(st.binary(max_size=300), st.just(b"data: {}\n\n" * 9000), st.just(bytes(BLOCK + 1))), max_size=20
    )
)
def test_the_same_bytes_however_they_came(parts: list[bytes]) -> None:
    found = keeping()
    for part in parts:
        found.take(part)
    kept = found.answered(b"the last\n")
    replayed = told(found, kept.content)
    assert replayed.body == b"".join(parts) + b"the last\n"
    assert (replayed.status, replayed.headers) == (200, {"content-type": "text/event-stream", "x-odd": "ä"})
    assert process_memory.held == 0


def test_a_failure_is_kept_as_it_was_told() -> None:
    found = keeping()
    replayed = told(found, found.refused(GatewayError("no")).content)
    assert (replayed.status, replayed.body) == (502, b'{"error":{}}')


def test_a_stream_takes_a_fraction_of_its_bytes() -> None:
    found = keeping()
    event = b'data: {"id":"0123456789abcdef","choices":[{"index":0,"delta":{"content":"%d"}}]}\n\n'
    for number in range(50_000):
        found.take(event % number)
    kept = found.answered(b"data: [DONE]\n\n")
    assert kept.content is not None and len(kept.content) < 400_000
    assert len(told(found, kept.content).body) > 4_000_000


@pytest.mark.parametrize(
    "parts",
    [
        [b"x" * BLOCK] * (MOST_BYTES // BLOCK + 1),
        [secrets.token_bytes(MOST_PACKED + 1)],
        [secrets.token_bytes(BLOCK)] * 40,
    ],
    ids=["long", "one part", "many that cannot be packed"],
)
def test_past_its_bounds_it_is_let_go(parts: list[bytes]) -> None:
    found = keeping()
    for part in parts:
        found.take(part)
    kept = found.answered(b"")
    assert (kept.id, kept.content) == (found.claim.id, None)
    assert process_memory.held == 0


def test_it_counts_in_the_memory_and_goes_without_where_there_is_none() -> None:
    found, beside = keeping(), UUID(int=1)
    for _ in range(3):
        found.take(secrets.token_bytes(BLOCK))
    assert 3 * BLOCK <= process_memory.held <= 4 * BLOCK
    taken = process_memory._most
    process_memory.change(beside, beside, taken)
    for _ in range(3):
        found.take(secrets.token_bytes(BLOCK))
    assert process_memory.held == taken
    process_memory.change(beside, beside, -taken)
    assert found.answered(b"").content is None


def test_what_is_over_holds_nobody() -> None:
    class Request:
        kept: Keeping

        def head(self) -> tuple[int, dict[bytes, bytes]]:
            return 200, {}

        def tell(self, error: GatewayError) -> Told:
            return Told()

    gc.disable()
    try:
        for end in (lambda one: one.answered(b""), lambda one: one.refused(GatewayError("no")), Keeping.drop):
            request = Request()
            request.kept = Keeping(keeping().claim, request.head, request.tell)
            end(request.kept)
            seen = weakref.ref(request)
            del request
            assert seen() is None
    finally:
        gc.enable()


def test_it_opens_for_its_own_claim_and_generation_alone() -> None:
    found = keeping()
    content = found.answered(b"whole").content
    assert content is not None and b"whole" not in content
    for claim, generation in ((uuid4().hex, GENERATION), (found.claim.id.hex, uuid4().hex)):
        with pytest.raises(CannotOpen):
            opened(content, claim, generation)
