"""Ids of responses that a provider keeps."""

import base64
from uuid import UUID

import pytest
from django.conf import LazySettings

from gateway.protocols.sides import Kept
from gateway.request.sealed_ids import opened, seal
from gateway.wire.errors import InvalidRequest

ALICE, CHARLIE = UUID(int=1), UUID(int=2)
OLDER, NEWER = (base64.urlsafe_b64encode(letter * 32).decode() for letter in (b"k", b"n"))
KEPT = Kept("0" * 31 + "7", "resp_68a1c0ffee", 4711)


def sealed() -> str:
    return seal(ALICE, KEPT.account, KEPT.tokens, KEPT.id)


@pytest.fixture(autouse=True)
def keys(settings: LazySettings) -> LazySettings:
    settings.SEALING_KEYS = [OLDER]
    return settings


def refused(id: str, organization: UUID = ALICE) -> str:
    with pytest.raises(InvalidRequest) as caught:
        opened(id, organization)
    assert (caught.value.status, caught.value.param) == (400, "previous_response_id")
    return caught.value.message


def test_it_opens_for_its_organization_and_after_a_new_key(keys: LazySettings) -> None:
    id = sealed()
    assert opened(id, ALICE) == KEPT
    keys.SEALING_KEYS = [NEWER, OLDER]
    assert opened(id, ALICE) == KEPT
    keys.SEALING_KEYS = [NEWER]
    assert "Send the conversation in input." in refused(id)


def test_it_says_nothing_of_the_provider() -> None:
    id = sealed()
    assert id.startswith("resp_")
    assert id.replace("_", "").replace("-", "").isalnum()
    assert KEPT.id.encode() not in base64.urlsafe_b64decode(id.removeprefix("resp_") + "===")
    assert sealed() != id


def test_charlie_is_told_the_same_as_who_invents_one() -> None:
    id = sealed()
    told = {refused(id, CHARLIE), refused("resp_68a1c0ffee"), refused("resp_"), refused(""), refused("gen-1")}
    told |= {refused("resp_é"), refused("resp_" + "A" * 200), refused(id + "A"), refused(id + "AAAA" * 1000)}
    told |= {refused(id[:at]) for at in range(0, len(id), 7)} | {refused(id[:9] + "!" + id[9:])}
    told |= {refused(id[:at] + ("A" if id[at] != "A" else "B") + id[at + 1 :]) for at in range(5, len(id) - 1)}
    assert len(told) == 1
