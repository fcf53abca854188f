"""Legacy completions: what is taken, what an upstream gets, and what comes of its answer."""

import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pytest

from billing.tokens import Tokens
from gateway.protocols.openai_chat import AnswerReader, ChatRequest, Fit
from gateway.protocols.openai_completions import sides
from gateway.protocols.sides import Asking, Ours
from gateway.wire import sse
from gateway.wire.errors import InvalidRequest, UpstreamFault
from tests.protocols.openai_responses.answers import sdk
from tests.protocols.strange import changed

DONE = b"data: [DONE]\n\n"
GATEWAYS = Ours("g1", 1700000000, "acme/m-1")
OURS = {"id": "g1", "object": "text_completion", "created": 1700000000, "model": "acme/m-1"}


def ask(prompt: Any = "def f(", **fields: Any) -> dict[str, Any]:
    return {"model": "m-1", "prompt": prompt} | fields


def read(prompt: Any = "def f(", **fields: Any) -> ChatRequest:
    return sides.read(ask(prompt, **fields))


def asking(*, output_cap: int | None = None, ask_usage: bool = True, fit: Fit | None = None) -> Asking:
    return Asking("up-1", output_cap, fit or Fit(), "", ("prompt",), "max_tokens", ask_usage, "", GATEWAYS)


def sent(asked: ChatRequest, **how: Any) -> dict[str, Any]:
    """The body that an upstream gets."""
    made = sides.Upstream().sent(asked, asking(**how))
    assert made.path == "/completions"
    body: dict[str, Any] = json.loads(made.body)
    return body


def reading(asked: ChatRequest) -> AnswerReader:
    """What reads the answer."""
    writer = sides.Client().writer(asked, GATEWAYS)
    reader = AnswerReader(asked, id="g1", created=1700000000, model="acme/m-1", writer=writer)
    reader.understand(sides.Upstream().sent(asked, asking()))
    return reader


def chunk(text: str = "", finish: str | None = None, index: int = 0, **top: Any) -> bytes:
    choice = {"text": text, "index": index, "logprobs": None, "finish_reason": finish}
    body = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "up-1", "choices": [choice]}
    return sse.encode(json.dumps(body | top).encode())


def whole(*texts: str, finish: str = "stop", **top: Any) -> bytes:
    choices = [{"text": text, "index": at, "logprobs": None, "finish_reason": finish} for at, text in enumerate(texts)]
    return json.dumps({"id": "cmpl-1", "object": "text_completion", "created": 1, "choices": choices} | top).encode()


USAGE = {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7}
STREAM = chunk("é, ") + chunk("x") + chunk("):", "length") + chunk(choices=[], usage=USAGE) + DONE


def answer(pieces: Iterable[bytes], **asked: Any) -> tuple[AnswerReader, bytes, bytes]:
    """The reader, what goes out at once, and what waits for the settlement."""
    reader = reading(read(**asked))
    early = b"".join(frame for piece in pieces for frame in reader.feed(piece))
    reader.end()
    return reader, early, reader.final()


def chunks(frames: bytes) -> list[Any]:
    return [json.loads(data) for _, data in sse.EventReader().feed(frames) if data != b"[DONE]"]


def failing(upstream: bytes, **asked: Any) -> UpstreamFault:
    with pytest.raises(UpstreamFault) as caught:
        answer([upstream], **asked)
    return caught.value


@pytest.mark.parametrize(
    ("asked", "choices", "written", "most_tokens"),
    (
        ({"prompt": "abé"}, 1, 1, 4),
        ({"prompt": "ab", "suffix": "é"}, 1, 1, 4),
        ({"prompt": ["a", "bc"], "n": 2}, 4, 4, 3),
        ({"prompt": [1, 2, 3]}, 1, 1, 3),
        ({"prompt": [[1, 2], [3]], "n": 2, "best_of": 3}, 4, 6, 3),
    ),
)
def test_every_form_of_prompt(asked: dict[str, Any], choices: int, written: int, most_tokens: int) -> None:
    request = read(**asked)
    assert request.spoken is not None
    assert (request.spoken.form.choices, request.n, request.text_bytes) == (choices, written, most_tokens)
    assert sent(request) == asked | {"model": "up-1"}


@pytest.mark.parametrize(
    ("body", "param"),
    (
        ([], None),
        ({"prompt": "a"}, "model"),
        ({"model": "m"}, "prompt"),
        (ask(""), "prompt"),
        (ask(["a", 1]), "prompt[1]"),
        (ask(["a"] * 129), "prompt"),
        (ask(["a"] * 20, best_of=8), "prompt"),
        (ask(suffix=1), "suffix"),
        (ask(echo=1), "echo"),
        (ask(n=0), "n"),
        (ask(n=3, best_of=2), "best_of"),
        (ask(best_of=2, stream=True), "best_of"),
        (ask(logprobs=21), "logprobs"),
        (ask(logprobs=True), "logprobs"),
        (ask(max_tokens=-1), "max_tokens"),
        (ask(temperature=3), "temperature"),
        (ask(stop=["a"] * 5), "stop"),
        (ask(stop=[""]), "stop"),
        (ask(stream="yes"), "stream"),
        (ask(stream_options={"include_usage": True}), "stream_options"),
        (ask(model_routing_config={}), "model_routing_config"),
        (ask(provider={"routing": {"type": "best"}}), "provider.routing.type"),
        (ask(usage={}), "usage.include"),
        (ask(service_tier="x" * 513), "service_tier"),
        (ask(service_tier=["flex"]), "service_tier"),
        (ask(base_url="https://evil.example"), "base_url"),
    ),
)
def test_what_is_refused_is_named(body: Any, param: str | None) -> None:
    with pytest.raises(InvalidRequest) as caught:
        sides.read(body)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_what_goes_on() -> None:
    asked = {"suffix": "\n", "stop": ["\n\n"], "stream": True, "max_tokens": 500, "user": "u", "min_p": 0.1}
    request = read(**asked, seed=None, provider={"routing": {}}, logit_bias={})
    assert (request.output_cap, request.end_user, request.unknown, request.include_usage) == (
        500,
        "u",
        ("min_p",),
        False,
    )
    fit = Fit(withheld=frozenset({"logit_bias"}))
    assert sent(request, output_cap=64, fit=fit) == asked | {
        "model": "up-1",
        "prompt": "def f(",
        "max_tokens": 64,
        "stream_options": {"include_usage": True},
    }
    plain = sent(request, ask_usage=False, fit=Fit(enforced_stops=("\n\n",)))
    assert plain.keys().isdisjoint({"stream_options", "stop", "provider"})


def test_what_an_offer_must_list_and_what_a_model_must_make() -> None:
    gap, plain = read(suffix="x").spoken, read().spoken
    assert gap is not None and plain is not None
    assert (gap.built_in, plain.built_in) == (("prompt", "suffix"), ("prompt",))
    assert gap.makes == {"text"}
    assert gap.told("messages[0].content") == "prompt"


def test_it_is_a_chat_for_whoever_plans_and_estimates() -> None:
    asked = read(["ab", "c"], suffix="d", logprobs=0, best_of=2, stop="x", top_p=0.5)
    assert asked.body == {
        "model": "m-1",
        "messages": [{"role": "user", "content": text} for text in ("ab", "c", "d")],
        "logprobs": True,
        "stop": "x",
        "top_p": 0.5,
    }
    assert (asked.stops, read(echo=True, stop="x").stops) == (("x",), ())
    tokens = read([[1, 2], [3]], echo=True)
    assert (tokens.tokens, tokens.text_bytes, tokens.body["messages"], tokens.echoed_bytes) == (3, 3, [], 12)


def test_text_passes_at_once_and_the_end_waits() -> None:
    reader, early, final = answer([STREAM], stream=True, stream_options={"include_usage": True})
    assert [made["choices"][0]["text"] for made in chunks(early)] == ["é, ", "x", "):"]
    assert all(made | OURS == made and made["usage"] is None for made in chunks(early))
    assert {made["choices"][0]["finish_reason"] for made in chunks(early)} == {None}
    last, usage = chunks(final)
    assert last["choices"] == [{"text": "", "index": 0, "logprobs": None, "finish_reason": "length"}]
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 7)
    assert final.endswith(DONE)
    assert (reader.usage, reader.finish_reason, reader.upstream_id) == (
        Tokens(prompt=4, completion=3),
        "length",
        "cmpl-1",
    )
    assert reader.relayed_bytes == 7


def test_usage_is_read_and_not_shown_unasked() -> None:
    reader, _, final = answer([STREAM], stream=True)
    assert reader.usage == Tokens(prompt=4, completion=3)
    assert b"usage" not in final


@pytest.mark.parametrize("upstream", (STREAM, whole("é, x):", finish="length", usage=USAGE)), ids=("stream", "whole"))
@pytest.mark.parametrize("streams", (True, False))
def test_client_and_upstream_may_each_stream_or_not(upstream: bytes, streams: bool) -> None:
    reader, early, final = answer([upstream], stream=streams)
    if streams:
        made = chunks(early + final)
        assert "".join(c["text"] for chunk in made for c in chunk["choices"]) == "é, x):"
        assert made[-1]["choices"][0]["finish_reason"] == "length"
    else:
        assert early == b""
        body = json.loads(final)
        assert body["choices"] == [{"text": "é, x):", "index": 0, "logprobs": None, "finish_reason": "length"}]
        assert body | OURS == body
        assert body["usage"]["prompt_tokens"] == 4
    assert reader.complete


@pytest.mark.parametrize("streams", (True, False))
def test_where_the_bytes_are_cut_makes_no_difference(streams: bool) -> None:
    _, early, final = answer([STREAM], stream=streams)
    for at in range(1, len(STREAM)):
        assert answer([STREAM[:at], STREAM[at:]], stream=streams)[1:] == (early, final)
    pieces = [STREAM[at : at + 1] for at in range(len(STREAM))]
    assert answer(pieces, stream=streams)[1:] == (early, final)


def test_texts_of_several_prompts_stay_apart() -> None:
    upstream = chunk("a") + chunk("b", index=1) + chunk("A", "stop") + chunk("B", "length", index=1) + DONE
    _, _, final = answer([upstream], prompt=["x", "y"])
    made = json.loads(final)["choices"]
    assert [(choice["index"], choice["text"], choice["finish_reason"]) for choice in made] == [
        (0, "aA", "stop"),
        (1, "bB", "length"),
    ]


def test_log_probabilities_pass_and_are_put_together() -> None:
    logprobs = {"tokens": ["a"], "token_logprobs": [-0.5], "top_logprobs": [{"a": -0.5}], "text_offset": [0]}
    choice = {"text": "a", "index": 0, "logprobs": logprobs, "finish_reason": None}
    upstream = chunk(choices=[choice]) + chunk(choices=[choice | {"finish_reason": "stop"}]) + DONE
    _, early, final = answer([upstream], stream=True, logprobs=1)
    assert [made["choices"][0]["logprobs"] for made in chunks(early + final)] == [logprobs, logprobs, None]
    _, _, final = answer([upstream], logprobs=1)
    assert json.loads(final)["choices"][0]["logprobs"]["tokens"] == ["a", "a"]


def test_a_prompt_that_comes_back_is_not_what_was_written() -> None:
    reader, _, _ = answer([whole("def f(x)")], echo=True)
    assert reader.relayed_bytes == 2


@pytest.mark.parametrize("word", ("eos", "max_tokens", "content_filter"))
def test_finish_reasons_are_openais(word: str) -> None:
    reader, _, final = answer([whole("x", finish=word)])
    choice = json.loads(final)["choices"][0]
    assert choice["finish_reason"] == {"eos": "stop", "max_tokens": "length"}.get(word, word)
    assert choice.get("native_finish_reason", word) == word == reader.native_finish_reason


@pytest.mark.parametrize("streams", (True, False))
@pytest.mark.parametrize(
    ("upstream", "kind"),
    (
        (b"", "invalid_response"),
        (DONE, "invalid_response"),
        (b": ping\n\n", "invalid_response"),
        (b"{", "invalid_response"),
        (b"{}", "invalid_response"),
        (b'{"choices":[]}', "invalid_response"),
        (b'{"choices":[7]}', "invalid_response"),
        (whole("a", "b"), "invalid_response"),
        (chunk("a") + b"data: {\n\n", "invalid_response"),
        (chunk("a"), "truncated"),
        (chunk("a") + b'data: {"cho', "truncated"),
        (chunk("a", "error"), "server_error"),
        (b'{"error":{"message":"no","type":"rate_limit"}}', "rate_limited"),
        (chunk("a") + b'data: {"error":{"message":"no","code":"overloaded"}}\n\n', "overloaded"),
    ),
)
def test_what_is_no_answer_is_a_fault(upstream: bytes, kind: str, streams: bool) -> None:
    assert failing(upstream, stream=streams).kind.value == kind


def test_text_before_a_fault_is_not_lost() -> None:
    reader = reading(read(stream=True))
    assert len(reader.feed(chunk("a") + b'data: {"error":{"code":"overloaded"}}\n\n')) == 1
    assert reader.fault is not None
    with pytest.raises(UpstreamFault):
        reader.end()


def test_texts_that_were_asked_for_and_never_came_are_missed() -> None:
    assert failing(chunk("a", "stop") + DONE, prompt=["x", "y"]).kind.value == "truncated"
    assert failing(whole("a"), prompt=["x", "y"]).kind.value == "truncated"


def test_who_is_done_without_saying_why_just_stopped() -> None:
    assert answer([chunk("a") + DONE])[0].finish_reason == "stop"
    assert answer([chunk("") + DONE])[0].finish_reason == "stop"


def test_a_stream_without_done_is_whole_when_its_texts_are() -> None:
    assert answer([chunk("a", "stop")], stream=True)[0].complete
    assert answer([chunk("a", "stop").rstrip()], stream=True)[0].complete


def test_what_is_billed_is_shown() -> None:
    reader = reading(read(usage={"include": True}))
    reader.feed(whole("x", usage=USAGE))
    reader.end()
    reader.set_usage(Tokens(prompt=9, completion=1))
    reader.set_cost(Decimal("0.5"))
    usage = json.loads(reader.final())["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"], usage["cost"]) == (9, 1, 10, 0.5)


def test_a_body_with_a_strange_value_is_taken_or_refused_by_name() -> None:
    every = ask(["a"], suffix="b", echo=True, n=1, best_of=1, logprobs=1, stop=["c"], stream=True, logit_bias={"1": 1})
    for body in changed(every | {"stream_options": {"include_usage": True}, "metadata": {"a": "b"}, "user": "u"}):
        try:
            request = sides.read(body)
        except InvalidRequest as error:
            assert error.param
        else:
            assert sent(request)


@pytest.mark.parametrize("streams", (True, False))
def test_an_answer_with_a_strange_value_is_read_or_a_fault(streams: bool) -> None:
    logprobs = {"tokens": ["a"], "token_logprobs": [-0.5]}
    choice = {"text": "a", "index": 0, "logprobs": logprobs, "finish_reason": "stop"}
    for strange in changed({"id": "x", "choices": [choice], "usage": USAGE}):
        for upstream in (json.dumps(strange).encode(), sse.encode(json.dumps(strange).encode()) + DONE):
            try:
                assert answer([upstream], stream=streams)[2]
            except UpstreamFault:
                continue


def test_the_official_sdk_reads_both() -> None:
    _, early, final = answer([STREAM], stream=True)
    streamed = sdk(early + final).completions.create(model="m", prompt="x", stream=True)
    assert "".join(made.choices[0].text for made in streamed) == "é, x):"
    _, _, body = answer([STREAM])
    made = sdk(body, "application/json").completions.create(model="m", prompt="x")
    assert (made.choices[0].text, made.choices[0].finish_reason) == ("é, x):", "length")
    assert made.usage is not None
    assert made.usage.completion_tokens == 3
