"""Whether a client's own body goes on to a provider of its protocol, and what not of it."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from gateway.protocols.anthropic_messages import sides as messages
from gateway.protocols.google_gemini import sides as gemini
from gateway.protocols.google_gemini.client.fields import camel
from gateway.protocols.google_gemini.signatures import NO_SIGNATURE, pack
from gateway.protocols.openai_chat import ChatRequest, Fit
from gateway.protocols.openai_chat.request.passing import passes, without
from gateway.protocols.openai_responses import sides as responses
from gateway.protocols.sides import Asking, Ours
from gateway.wire.errors import InvalidRequest

HI = [{"role": "user", "content": "hi"}]


def asking(fit: Fit | None = None, *takes: str, prefill: str = "") -> Asking:
    return Asking("up-1", None, fit or Fit(), prefill, takes, "max_tokens", True, "", Ours("id", 1, "m"))


def message(**fields: Any) -> ChatRequest:
    return messages.read({"model": "m", "max_tokens": 50, "messages": HI, **fields}, 100, {})


def contents(parts: list[dict[str, Any]], **fields: Any) -> ChatRequest:
    said = [{"role": "user", "parts": [{"text": "hi"}]}, {"role": "model", "parts": parts}]
    said.append({"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}]})
    return gemini.read({"contents": said, **fields}, 100, model="m", stream=False, events=False)


def sent(side: Any, asked: ChatRequest, fit: Fit | None = None, *takes: str) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.json.decode(side.Upstream().sent(asked, asking(fit, *takes)).body)
    return body


def test_it_goes_on_where_nothing_of_it_is_ours() -> None:
    asked = message()
    assert passes(asked, asking(), messages.NAME)
    assert not passes(asked, asking(), gemini.NAME)
    assert not passes(asked, asking(Fit(enforced_stops=("x",))), messages.NAME)
    assert not passes(asked, asking(prefill="So"), messages.NAME)
    taken = Fit(withheld=frozenset({"seed"}))
    assert passes(asked, asking(taken), messages.NAME)
    assert not passes(asked, asking(taken), messages.NAME, chat_first=frozenset({"seed"}))


def test_what_the_chat_form_has_no_place_for_is_not_dropped() -> None:
    asked = message(container="c-1")
    assert passes(asked, asking(), messages.NAME)
    for one in (asking(Fit(enforced_stops=("x",))), asking(prefill="So")):
        with pytest.raises(InvalidRequest) as caught:
            passes(asked, one, messages.NAME)
        assert (caught.value.param, caught.value.told) == ("container", True)


@pytest.mark.parametrize(
    ("path", "left"),
    [
        ("a", {"b_c": {"d": 1, "e": [2]}}),
        ("bC", {"a": 0}),
        ("bC.d", {"a": 0, "b_c": {"e": [2]}}),
        ("bC.e.x", {"a": 0, "b_c": {"d": 1, "e": [2]}}),
        ("none.such", {"a": 0, "b_c": {"d": 1, "e": [2]}}),
    ],
)
def test_paths_are_taken_out(path: str, left: dict[str, Any]) -> None:
    body = {"a": 0, "b_c": {"d": 1, "e": [2]}}
    assert without(body, [path], camel) == left
    assert body == {"a": 0, "b_c": {"d": 1, "e": [2]}}


def test_a_wish_that_is_only_spelled_otherwise_stays() -> None:
    fit = Fit(withheld=frozenset({"reasoning_effort"}), changes={"reasoning": {"effort": "low"}})
    asked = responses.read({"model": "m", "input": "hi", "reasoning": {"effort": "low"}}, 100, pytest.fail)
    assert sent(responses, asked, fit, "reasoning")["reasoning"] == {"effort": "low"}
    assert "effort" not in sent(responses, asked, replace(fit, changes={}), "temperature").get("reasoning", {})


def test_others_thoughts_do_not_go_on_to_google() -> None:
    packed = pack([{"type": "reasoning.text", "text": "hm", "format": "other-v1"}])
    call = {"functionCall": {"name": "f", "args": {}}}
    asked = contents([{"text": "so", "thoughtSignature": packed}, {**call, "thought_signature": packed}])
    parts = sent(gemini, asked)["contents"][1]["parts"]
    assert parts == [{"text": "so"}, {**call, "thought_signature": NO_SIGNATURE}]
    own = contents([{**call, "thoughtSignature": "AAAA"}])
    assert sent(gemini, own)["contents"][1]["parts"] == [{**call, "thoughtSignature": "AAAA"}]


def test_what_a_provider_of_google_s_is_not_asked_is_named() -> None:
    said = [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]
    asked = message(messages=[{"role": "user", "content": said}], tool_choice={"type": "auto"})
    made = gemini.Upstream().sent(asked, asking())
    assert made.ignored == ("cache_control",)
    assert b"cache_control" not in made.body
