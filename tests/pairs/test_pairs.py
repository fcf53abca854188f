"""Every client's protocol over every provider's, streamed and whole: what the one says is what the other hears.

A scene is said in the provider's protocol (`providers`), asked for and heard in the client's (`clients`), and compared
in neither (`said`). `python -m tests.pairs` prints how each pair went in each case, and writes docs/protocols.md.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from tests.pairs.clients import CLIENTS
from tests.pairs.play import Play
from tests.pairs.providers import PROVIDERS
from tests.pairs.said import CAP, PNG, PROOF, SCHEMA, Call, Counts, Question, Said, Tool, written

TEXT = "Grüß dich, 世界! 🌍 It is  cold."
WEATHER = Tool("get_weather", "The weather of a city.", SCHEMA)
NOW = Tool("now", "The time.")
OSLO, ZURICH = Call("call_a1", "get_weather", {"city": "Oslo"}), Call("call_b2", "get_weather", {"city": "Zürich"})
TIME = Call("call_c3", "now", {})

# What is asked and said in each case.
SCENES: dict[str, tuple[Question, Said]] = {
    "text": (Question(), Said(TEXT)),
    "one tool": (Question(tools=(WEATHER,)), Said(calls=(OSLO,), finish="tool_calls")),
    "tool after text": (Question(tools=(WEATHER,)), Said(TEXT, calls=(OSLO,), finish="tool_calls")),
    "parallel tools": (Question(tools=(WEATHER, NOW)), Said(calls=(OSLO, ZURICH, TIME), finish="tool_calls")),
    "no arguments": (Question(tools=(NOW,)), Said(calls=(TIME,), finish="tool_calls")),
    "no tool used": (Question(tools=(WEATHER, NOW)), Said(TEXT)),
    "reasoning": (Question(reasons=True), Said(TEXT, "First  I think: ja.", PROOF, counts=Counts(11, 30, 0, 20))),
    "image": (Question(image=PNG), Said("A red dot.")),
    "structured": (Question(schema=SCHEMA), Said('{"city":"Zürich"}')),
    "length": (Question(), Said("Once upon", finish="length")),
    "cached usage": (Question(), Said(TEXT, counts=Counts(5000, 9, 4096))),
    "refusal": (Question(), Said("I can't help with that.", refused=True)),
}
FORMS = ((False, "whole"), (True, "streamed"))
WHOLE = os.environ.get("PAIRS") == "whole"

every_pair = pytest.mark.parametrize(
    ("client", "provider", "stream"),
    [
        pytest.param(client, provider, stream, id=f"{form}-{provider}-{client}")
        for (j, client), (k, provider), (stream, form) in product(enumerate(CLIENTS), enumerate(PROVIDERS), FORMS)
        if WHOLE or (j + k) % 2 == stream  # in `make test` by turns: each pair in one form, each protocol in both
    ],
)


def every_pair_with(name: str, values: Iterable[str]) -> pytest.MarkDecorator:
    """Every pair with each of the values, streamed and whole.

    In `make test` by turns: each pair meets each second value, and each protocol of the four on either side each value
    once streamed and once whole.
    """
    cells = [
        pytest.param(client, provider, stream, value, id=f"{form}-{provider}-{client}-{value}")
        for (i, value), (j, client), (k, provider), (stream, form) in product(
            enumerate(values), enumerate(CLIENTS), enumerate(PROVIDERS), FORMS
        )
        if WHOLE or (i + j + k) % 4 == 2 * stream
    ]
    return pytest.mark.parametrize(("client", "provider", "stream", name), cells)


@pytest.fixture(autouse=True)
def cell(request: pytest.FixtureRequest, record_property: Callable[[str, Any], None]) -> None:
    """Names the cell of the table that a test fills."""
    given = request.node.callspec.params
    case = given.get("case") or request.node.originalname.removeprefix("test_").replace("_", " ")
    record_property("cell", (given["client"], given["provider"], case))


@every_pair_with("case", SCENES)
def test_scene(play: Play, client: str, provider: str, stream: bool, case: str) -> None:
    question, said = SCENES[case]
    speaks = PROVIDERS[provider]
    play.says(provider, speaks.stream(said) if stream else speaks.whole(said), stream=stream)
    heard = play.hears(client, question, stream).said
    assert heard == replace(said, proof="", finish=told_finish(said, client, provider))
    got, _ = play.asked(provider)
    assert got.turns == (("user", question.text),)
    assert (got.system, got.cap, got.choice) == (question.system, CAP, "")
    assert [name for name, _ in got.tools] == [tool.name for tool in question.tools]
    assert all(same(schema, tool.parameters) for (_, schema), tool in zip(got.tools, question.tools, strict=True))
    assert got.image == (("image/png", question.image) if question.image else None)
    assert same(got.schema, question.schema)
    row, counts = play.usage, said.counts
    assert (row.status, row.basis) == ("completed", "reported")
    assert (row.prompt_tokens, row.completion_tokens) == (counts.prompt, counts.completion)
    assert (row.cached_tokens, row.reasoning_tokens) == (counts.cached, counts.thought)


@every_pair_with("choice", ["required", "none", "get_weather"])
def test_tool_choice(play: Play, client: str, provider: str, stream: bool, choice: str) -> None:
    question = Question(tools=(WEATHER, NOW), choice=choice)
    speaks, said = PROVIDERS[provider], Said(TEXT)
    play.says(provider, speaks.stream(said) if stream else speaks.whole(said), stream=stream)
    assert play.hears(client, question, stream).said == said
    got, _ = play.asked(provider)
    assert got.choice == choice
    assert [name for name, _ in got.tools] == [WEATHER.name, NOW.name]


# The proof of a thought stays with the turn that it was given for, and comes back where it came from.
THINKS = Said(TEXT, "First  I think: ja.", PROOF, calls=(OSLO, TIME), finish="tool_calls", counts=Counts(11, 30, 0, 20))
RESULTS = ((OSLO, "Schnee, -3 °C"), (TIME, "12:00"))


@every_pair_with("next", PROVIDERS)
def test_second_turn(play: Play, client: str, provider: str, stream: bool, next: str) -> None:
    question = Question(tools=(WEATHER, NOW), reasons=True)
    speaks = PROVIDERS[provider]
    play.says(provider, speaks.stream(THINKS) if stream else speaks.whole(THINKS), stream=stream)
    heard = play.hears(client, question, stream)
    assert heard.said == replace(THINKS, proof="")
    play.says(next, PROVIDERS[next].whole(Said("Snow.")), stream=False)
    again = replace(question, turns=((heard.turn, RESULTS),))
    assert play.hears(client, again, stream=False).said == Said("Snow.")
    got, raw = play.asked(next)
    thoughts = [turn[1:] for turn in got.turns if turn[0] == "thought"]
    rest = [turn for turn in got.turns if turn[0] != "thought"]
    assert rest == [
        ("user", question.text),
        ("said", TEXT),
        *(("call", call.id, call.name, call.arguments) for call, _ in RESULTS),
        *(("result", call.id, text) for call, text in RESULTS),
    ]
    if next == provider:
        assert "".join(text for text, _ in thoughts) == THINKS.thought
        assert [proof for _, proof in thoughts if proof] == [PROOF]
    else:
        assert PROOF not in raw
        assert not [proof for _, proof in thoughts if proof and proof != UNSIGNED]


# What Google takes for the signature of a call that its model did not make.
UNSIGNED = "skip_thought_signature_validator"


@every_pair_with("kind", ["invalid", "too_long", "limited", "overloaded"])
def test_error_before(play: Play, client: str, provider: str, stream: bool, kind: str) -> None:
    status, data = PROVIDERS[provider].failure(kind)
    play.says(provider, data, stream=False, status=status)
    response = play.asks(client, Question(), stream)
    told, message = CLIENTS[client].failed(response.json())
    assert (response.status_code, told) == CLIENTS[client].TOLD[kind], response.text
    if kind == "invalid":
        assert message == "Bad top_p."
    assert play.usage.status != "completed"
    assert play.usage.charge == 0


# How a provider that names parameters calls the cap, and how each client does.
CAPS = {"openai_chat": "max_completion_tokens", "openai_responses": "max_output_tokens"}
CALLED = CAPS | {"anthropic_messages": "max_tokens", "google_gemini": "generationConfig.maxOutputTokens"}


@pytest.mark.parametrize("provider", CAPS)
@pytest.mark.parametrize("client", CLIENTS)
def test_named_parameter(play: Play, client: str, provider: str) -> None:
    """The parameter that a provider faults is named as the client knows it."""
    error = {"message": "Too many.", "type": "invalid_request_error", "param": CAPS[provider], "code": "invalid_value"}
    play.says(provider, written({"error": error}).encode(), stream=False, status=400)
    told = play.asks(client, Question(), stream=False).json()["error"]
    violations = [one for detail in told.get("details", ()) for one in detail.get("fieldViolations", ())]
    assert [told.get("param"), *(one["field"] for one in violations)][-1] == CALLED[client]


@every_pair
def test_error_after(play: Play, client: str, provider: str, stream: bool) -> None:
    play.says(provider, PROVIDERS[provider].broken("Half an ans"), stream=True)
    response = play.asks(client, Question(), stream)
    if stream:
        assert response.status_code == 200
        assert CLIENTS[client].broken(response.text) == ("Half an ans", CLIENTS[client].BROKEN)
    else:
        told, _ = CLIENTS[client].failed(response.json())
        assert (response.status_code, told) == CLIENTS[client].TOLD["overloaded"]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_first_words(play: Play, client: str, provider: str) -> None:
    """They are there while the provider has said no more."""
    data = PROVIDERS[provider].stream(Said(TEXT))
    first = TEXT[:5].encode()
    play.says(provider, data, stream=True, hold=data.index(b"\n\n", data.index(first)) + 2)
    speaks, came = CLIENTS[client], b""
    with play.gateway.client.stream(
        "POST",
        speaks.path(play.model, True),
        json=speaks.body(Question(), play.model, True),
        headers={"Authorization": f"Bearer {play.tenant.secret}"},
    ) as response:
        parts = response.iter_raw()
        while first not in came:
            came += next(parts)
        play.simulated.until(waiting=1)
        play.simulated.release()
        came += b"".join(parts)
    assert speaks.hear(came.decode(), True).said == Said(TEXT)


@every_pair
def test_other_form(play: Play, client: str, provider: str, stream: bool) -> None:
    """The provider streams though nobody asked it to, or does not though it was asked to."""
    speaks = PROVIDERS[provider]
    play.says(provider, speaks.whole(THINKS) if stream else speaks.stream(THINKS), stream=not stream)
    question = Question(tools=(WEATHER, NOW), reasons=True)
    assert play.hears(client, question, stream).said == replace(THINKS, proof="")


@every_pair
def test_error_at_once(play: Play, client: str, provider: str, stream: bool) -> None:
    """In an answer that began well: nothing of it was sent, so it is an error as any other."""
    whole = PROVIDERS[provider].broken("Half")
    error = whole[whole.rstrip().rindex(b"\n\n") + 2 :]
    play.says(provider, error, stream=True)
    response = play.asks(client, Question(), stream)
    told, _ = CLIENTS[client].failed(response.json())
    assert (response.status_code, told) == CLIENTS[client].TOLD["overloaded"]


@every_pair
def test_broken_off(play: Play, client: str, provider: str, stream: bool) -> None:
    whole = PROVIDERS[provider].broken("Half an ans")
    cut = whole[: whole.rstrip().rindex(b"\n\n") + 2]  # without what tells of the failure
    play.says(provider, cut, stream=True)
    response = play.asks(client, Question(), stream)
    if stream:
        assert CLIENTS[client].broken(response.text) == ("Half an ans", CLIENTS[client].CUT[1])
    else:
        told, _ = CLIENTS[client].failed(response.json())
        assert (response.status_code, told) == (502, CLIENTS[client].CUT[0])
    assert play.usage.status != "completed"


def told_finish(said: Said, client: str, provider: str) -> str:
    """Where some protocols end a refusal as an ordinary answer, others have a reason of its own for it."""
    ordinary = {"openai_chat", "openai_responses"}
    return said.finish if not said.refused or {client, provider} <= ordinary else "content_filter"


def same(schema: Any, asked: Any) -> bool:
    """Whether a schema says the same: no parameters are written in many ways."""
    return schema == asked or not ((asked or {}).get("properties") or (schema or {}).get("properties"))
