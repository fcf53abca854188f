"""Counting the tokens of a request before it is made."""

import json
from typing import Any

import pytest

from gateway.protocols.anthropic_messages.counting import answer, count_form, estimated
from gateway.protocols.openai_chat import parse
from gateway.wire.errors import InvalidRequest

PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}


@pytest.mark.row("B350")
def test_a_request_is_counted_by_what_is_said_in_it_and_its_pictures() -> None:
    asked = {"model": "m", "system": "a" * 40, "messages": [{"role": "user", "content": "b" * 60}]}
    plain = parse(count_form(asked).body, 1_000)
    assert estimated(plain) == 25 and estimated(plain, 2.0) == 50
    seen = {**asked, "messages": [{"role": "user", "content": [{"type": "text", "text": "b" * 60}, PICTURE]}]}
    assert estimated(parse(count_form(seen).body, 1_000)) == 1_625


def test_an_estimate_says_so() -> None:
    assert json.loads(answer(25, is_estimate=True)) == {"input_tokens": 25, "estimated": True}
    assert json.loads(answer(25, is_estimate=False)) == {"input_tokens": 25}


def test_what_is_no_request_is_refused() -> None:
    bodies: list[Any] = [[], {"model": "m"}]
    for body in bodies:
        with pytest.raises(InvalidRequest):
            count_form(body)
