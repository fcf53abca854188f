"""Ids of responses that a provider keeps."""

import base64

import pytest

from gateway.protocols.openai_responses.sealed_ids import Kept, opened, seal
from gateway.wire.errors import InvalidRequest

KEY, NEWER = b"k" * 32, b"n" * 32
KEPT = Kept("offer-1", "credential-1", "resp_68a1c0ffee")


def refused(id: str, organization: str = "alice", keys: tuple[bytes, ...] = (KEY,)) -> str:
    with pytest.raises(InvalidRequest) as caught:
        opened(id, organization, keys)
    assert (caught.value.status, caught.value.param) == (400, "previous_response_id")
    return caught.value.message


def test_it_opens_for_its_organization() -> None:
    id = seal(KEPT, "alice", [KEY])
    assert opened(id, "alice", [KEY]) == KEPT
    assert opened(id, "alice", [NEWER, KEY]) == KEPT  # after a new key


def test_it_says_nothing_of_the_provider() -> None:
    id = seal(KEPT, "alice", [KEY])
    assert id.startswith("resp_")
    assert id.replace("_", "").replace("-", "").isalnum()
    assert KEPT.id.encode() not in base64.urlsafe_b64decode(id.removeprefix("resp_") + "===")
    assert seal(KEPT, "alice", [KEY]) != id


def test_charlie_is_told_the_same_as_who_invents_one() -> None:
    id = seal(KEPT, "alice", [KEY])
    told = {refused(id, "charlie"), refused(id, keys=(NEWER,)), refused("resp_68a1c0ffee"), refused("resp_")}
    told |= {refused(""), refused("gen-1"), refused("resp_é"), refused("resp_" + "A" * 200), refused(id + "A")}
    told |= {refused(id[:at] + ("A" if id[at] != "A" else "B") + id[at + 1 :]) for at in range(5, len(id) - 1)}
    assert len(told) == 1
