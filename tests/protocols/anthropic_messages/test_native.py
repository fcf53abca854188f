"""Where client and provider both speak the Messages protocol, and how each variant of it is called."""

import json
from base64 import b64decode
from typing import Any

import pytest

from gateway.protocols.anthropic_messages import native
from gateway.protocols.anthropic_messages.faults import fault
from gateway.protocols.anthropic_messages.native import Passing
from gateway.protocols.anthropic_messages.upstream_answer import UpstreamAnswer
from gateway.protocols.anthropic_messages.variants import (
    VARIANTS,
    Call,
    FramedEvents,
    call,
    count_call,
    read_betas,
    read_version,
)
from gateway.wire.aws_event_stream import BadFrame
from gateway.wire.errors import UpstreamFault
from gateway.wire.sse import EventReader
from routing.health.faults import Fault
from tests.protocols.anthropic_messages.messages import chunks, events, message, recorded, shown
from tests.wire.frames import frame, framed, text

HI = {"role": "user", "content": "hi"}
COUNTS = {"prompt_tokens": 30, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 10}}


def test_a_body_passes_with_what_nobody_here_knows() -> None:
    asked = {
        "model": "acme/m-1",
        "max_tokens": 64,
        "messages": [HI],
        "context_management": {"edits": [{"type": "clear_thinking_20251015"}]},
        "tools": [{"type": "web_search_20250305", "name": "web_search"}],
        "provider": {"routing": {}},
        "new_beta_field": [1],
        "diagnostics": None,
    }
    made, ignored = native.upstream_body(asked, model="up-1", output_cap=None)
    assert ignored == () and native.built_in(asked) == ("web_search",)
    gone = {"provider", "diagnostics"}
    assert made == {name: value for name, value in asked.items() if name not in gone} | {"model": "up-1"}


@pytest.mark.parametrize(
    ("cap", "thinking", "ignored"),
    [
        (4_000, {"type": "enabled", "budget_tokens": 2_000, "display": "omitted"}, ()),
        (2_000, {"type": "enabled", "budget_tokens": 1_999, "display": "omitted"}, ()),
        (1_024, None, ("thinking",)),
    ],
)
def test_a_lowered_cap_lowers_the_budget_to_think_in(cap: int, thinking: Any, ignored: tuple[str, ...]) -> None:
    asked = {"thinking": {"type": "enabled", "budget_tokens": 2_000, "display": "omitted"}, "max_tokens": 8_000}
    made = native.upstream_body({"model": "m", "messages": [HI], **asked}, model="m", output_cap=cap)
    assert (made.body["max_tokens"], made.body.get("thinking")) == (cap, thinking)
    assert made.ignored == ignored


def test_who_goes_on_from_another_one_s_call_does_not_think_in_a_budget() -> None:
    """Providers refuse it: the call has no thought of their own before it."""
    sealed = {"type": "thinking", "thinking": "Hm.", "signature": "sealed:e30="}
    call = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    results = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "1"}]}
    budget = {"type": "enabled", "budget_tokens": 2_000}
    asked = {
        "model": "m",
        "max_tokens": 8_000,
        "messages": [HI, {"role": "assistant", "content": [sealed, call]}, results],
    }
    made = native.upstream_body({**asked, "thinking": budget}, model="m", output_cap=None)
    assert "thinking" not in made.body and made.ignored == ("thinking",)
    assert made.body["messages"][1]["content"] == [call]
    adaptive = native.upstream_body({**asked, "thinking": {"type": "adaptive"}}, model="m", output_cap=None)
    assert adaptive.body["thinking"] == {"type": "adaptive"} and adaptive.ignored == ()
    own = {"type": "thinking", "thinking": "Hm.", "signature": "Eq=="}
    asked["messages"] = [HI, {"role": "assistant", "content": [own, call]}, results]
    assert native.upstream_body({**asked, "thinking": budget}, model="m", output_cap=None).body["thinking"] == budget


def test_what_another_one_cited_does_not_go() -> None:
    page = {"type": "web_search_result_location", "url": "https://x.example", "title": "", "cited_text": ""}
    said = {"type": "text", "text": "Sun.", "citations": [{**page, "encrypted_index": ""}]}
    own = {"type": "text", "text": "Rain.", "citations": [{**page, "encrypted_index": "Eo8B"}]}
    asked = {"model": "m", "max_tokens": 9, "messages": [HI, {"role": "assistant", "content": [said, own]}, HI]}
    made = native.upstream_body(asked, model="m", output_cap=None).body["messages"][1]["content"]
    assert made == [{"type": "text", "text": "Sun.", "citations": None}, own]


def test_a_turn_of_another_one_s_thoughts_alone_does_not_go() -> None:
    sealed = {"type": "redacted_thinking", "data": "sealed:e30="}
    asked = {"model": "m", "max_tokens": 9, "messages": [HI, {"role": "assistant", "content": [sealed]}, HI]}
    assert native.upstream_body(asked, model="m", output_cap=None).body["messages"] == [HI, HI]


@pytest.mark.parametrize("case", ["text", "tool", "thinking_tool", "search", "refusal"])
def test_events_pass_as_they_came_but_for_id_model_and_counts(case: str) -> None:
    passing = Passing(id="gen-1", model="acme/m-1")
    out, held = b"", 0
    for event in EventReader().feed(recorded(case)):
        made = passing.event(event.name.decode(), json.loads(event.data), event.data)
        held += not made
        out += made
    assert held == 2
    before, after = events(recorded(case)), events(out + passing.final(COUNTS))
    assert after[1:-2] == before[1:-2]
    assert after[0][1]["message"] == before[0][1]["message"] | {"id": "gen-1", "model": "acme/m-1"}
    assert after[-2][1]["delta"] == before[-2][1]["delta"] and after[-1] == before[-1]
    usage = after[-2][1]["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]) == (20, 10, 5)


def test_a_stream_that_begins_twice_or_has_no_end_is_put_right() -> None:
    passing = Passing(id="gen-1", model="m")
    stream = [(e.name.decode(), json.loads(e.data), e.data) for e in EventReader().feed(recorded("text"))][:-1]
    out = b"".join(passing.event(*event) for event in (stream[0], *stream)) + passing.final(None)
    names = [name for name, _ in events(out)]
    assert names.count("message_start") == 1 and names[-2:] == ["message_delta", "message_stop"]


def test_a_whole_message_passes() -> None:
    made = json.loads(native.whole(message("thinking_tool"), id="gen-1", model="m", counts=COUNTS))
    assert made["content"] == message("thinking_tool")["content"] and made["id"] == "gen-1"
    assert (made["usage"]["input_tokens"], made["usage"]["cache_read_input_tokens"]) == (20, 10)


BODY = {"model": "m-1:0", "max_tokens": 9, "messages": [HI], "stream": True}


@pytest.mark.row("B017")
@pytest.mark.parametrize(
    ("variant", "expected"),
    [
        (
            "plain",
            Call(
                "/messages",
                (("anthropic-version", "2023-06-01"), ("anthropic-beta", "a-1,b-2")),
                {"model": "m-1:0", "max_tokens": 9, "messages": [HI], "stream": True},
            ),
        ),
        (
            "invoke",
            Call(
                "/model/m-1:0/invoke-with-response-stream",
                (),
                {
                    "max_tokens": 9,
                    "messages": [HI],
                    "anthropic_version": "bedrock-2023-05-31",
                    "anthropic_beta": ["a-1", "b-2"],
                },
            ),
        ),
        (
            "raw_predict",
            Call(
                "/publishers/anthropic/models/m-1:0:streamRawPredict",
                (("anthropic-beta", "a-1,b-2"),),
                {"max_tokens": 9, "messages": [HI], "stream": True, "anthropic_version": "vertex-2023-10-16"},
            ),
        ),
    ],
)
def test_each_variant_is_called_its_own_way(variant: str, expected: Call) -> None:
    assert call(VARIANTS[variant], BODY, betas=["a-1", "b-2", "a-1"]) == expected


def test_a_name_with_a_slash_stays_one_segment() -> None:
    arn = "arn:aws:bedrock:us-east-1:1:inference-profile/us.m-1"
    made = call(VARIANTS["invoke"], {**BODY, "model": arn})
    assert made.path == "/model/arn:aws:bedrock:us-east-1:1:inference-profile%2Fus.m-1/invoke-with-response-stream"


def test_without_a_stream_or_betas() -> None:
    whole = {name: value for name, value in BODY.items() if name != "stream"}
    assert [call(variant, whole).path for variant in VARIANTS.values()] == [
        "/messages",
        "/model/m-1:0/invoke",
        "/publishers/anthropic/models/m-1:0:rawPredict",
    ]
    assert call(VARIANTS["plain"], whole, version="2026-10-21").headers == (("anthropic-version", "2026-10-21"),)


def test_tokens_are_counted_where_there_is_somebody_to_count_them() -> None:
    body = native.count_body({**BODY, "temperature": 1, "tools": []}, model="up-1")
    assert body == {"model": "up-1", "messages": [HI], "tools": []}
    plain, invoke, raw = (count_call(variant, body) for variant in VARIANTS.values())
    assert plain is not None and (plain.path, plain.body) == ("/messages/count_tokens", body)
    assert invoke is None
    assert raw is not None and raw.path == "/publishers/anthropic/models/count-tokens:rawPredict"
    assert raw.body == {**body, "anthropic_version": "vertex-2023-10-16"}


@pytest.mark.row("B339")
def test_betas_and_versions_of_a_client_s_headers() -> None:
    assert read_betas(None) == read_betas("") == ()
    assert read_betas("claude-code-20250219, effort-2025-11-24,claude-code-20250219,\r\nX: y,A B") == (
        "claude-code-20250219",
        "effort-2025-11-24",
    )
    assert read_version("2026-10-21") == "2026-10-21"
    assert read_version(None) is read_version("") is read_version("1\r\nx: y") is None


def test_framed_or_not_a_stream_is_the_same_events() -> None:
    stream = b"".join(framed(recorded("thinking_tool")))
    expected = [event.data for event in EventReader().feed(recorded("thinking_tool"))]
    for at in range(0, len(stream), 7):
        reader = FramedEvents()
        found = [*reader.feed(stream[:at]), *reader.feed(stream[at:]), *reader.close()]
        assert [event.data for event in found] == expected
    answer = UpstreamAnswer()
    made = [chunk for data in expected for chunk in answer.event("", json.loads(data))]
    assert made == chunks(recorded("thinking_tool")) and answer.complete


def test_frames_that_hold_no_event() -> None:
    other = frame(b"{}", (text(":message-type", "event"), text(":event-type", "other")))
    assert FramedEvents().feed(other) == []
    for payload in (b"{}", b"no", b'{"bytes":"!"}'):
        with pytest.raises(BadFrame):
            FramedEvents().feed(frame(payload, (text(":message-type", "event"), text(":event-type", "chunk"))))
    reader = FramedEvents()
    reader.feed(other[:9])
    with pytest.raises(BadFrame):
        reader.close()


def test_framed_events_before_one_that_is_none_are_given() -> None:
    none = frame(b"{}", (text(":message-type", "event"), text(":event-type", "chunk")))
    stream = b"".join(framed(recorded("text")))
    reader = FramedEvents()
    assert [event.data for event in reader.feed(stream + none + stream)] == [
        event.data for event in EventReader().feed(recorded("text"))
    ]
    with pytest.raises(BadFrame, match="does not hold bytes"):
        reader.feed(stream)


def test_aws_s_own_library_takes_the_same_events_out_of_frames() -> None:
    eventstream: Any = pytest.importorskip("botocore.eventstream")
    stream = b"".join(framed(recorded("thinking_tool")))
    theirs = eventstream.EventStreamBuffer()
    theirs.add_data(stream)
    expected = [b64decode(json.loads(one.payload)["bytes"]) for one in theirs]
    assert [event.data for event in FramedEvents().feed(stream)] == expected


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("throttlingException", Fault.RATE_LIMITED),
        ("serviceUnavailableException", Fault.OVERLOADED),
        ("modelTimeoutException", Fault.TIMEOUT),
        ("validationException", Fault.REJECTED),
        ("internalServerException", Fault.SERVER_ERROR),
        ("modelStreamErrorException", Fault.SERVER_ERROR),
        ("newerException", Fault.SERVER_ERROR),
    ],
)
def test_an_exception_in_frames_keeps_its_meaning(name: str, kind: Fault) -> None:
    headers = (text(":message-type", "exception"), text(":exception-type", name))
    (event,) = FramedEvents().feed(frame(b'{"message":"It is so."}', headers))
    told = json.loads(event.data)
    assert event.name == b"error" and told["error"]["message"] == "It is so."
    with pytest.raises(UpstreamFault) as caught:
        UpstreamAnswer().event("error", told)
    assert caught.value.kind is kind


@pytest.mark.parametrize(
    ("status", "name", "said", "kind"),
    [
        (400, "ValidationException", "messages: at least one message is required", Fault.REJECTED),
        (400, "ValidationException", "The provided model identifier is invalid.", Fault.NOT_FOUND),
        (
            400,
            "ValidationException",
            "Invocation of model ID m with on-demand throughput isn't supported.",
            Fault.NOT_FOUND,
        ),
        (400, "ExpiredTokenException", "The security token included in the request is expired", Fault.AUTH),
        (400, "ServiceQuotaExceededException", "Your request exceeds a quota.", Fault.EXHAUSTED),
        (403, "AccessDeniedException:http://internal/", "You don't have access to the model.", Fault.AUTH),
        (403, "InvalidSignatureException", "Signature expired", Fault.AUTH),
        (404, "ResourceNotFoundException", "Could not resolve the model.", Fault.REJECTED),
        (408, "ModelTimeoutException", "Too late.", Fault.TIMEOUT),
        (424, "ModelErrorException", "It failed.", Fault.SERVER_ERROR),
        (429, "ThrottlingException", "Too many tokens per day, please wait.", Fault.RATE_LIMITED),
        (429, "ModelNotReadyException", "Not ready.", Fault.OVERLOADED),
        (500, "InternalServerException", "Oh.", Fault.SERVER_ERROR),
        (503, "ServiceUnavailableException", "Busy.", Fault.OVERLOADED),
    ],
)
def test_an_exception_of_aws_s_keeps_its_meaning(status: int, name: str, said: str, kind: Fault) -> None:
    made = fault(status, {"x-amzn-errortype": name}, json.dumps({"message": said}).encode())
    assert (made.kind, made.upstream_status) == (kind, status)


def test_a_prompt_that_is_too_long_for_a_model_at_aws() -> None:
    said = b'{"message":"Input is too long for requested model."}'
    made = fault(400, {"x-amzn-errortype": "ValidationException"}, said)
    assert (made.kind, made.code) == (Fault.REJECTED, "context_length_exceeded")


@pytest.mark.parametrize(
    ("status", "error", "kind", "code"),
    [
        (400, ("invalid_request_error", "max_tokens: too large"), Fault.REJECTED, None),
        (400, ("invalid_request_error", "prompt is too long: 9 tokens > 8"), Fault.REJECTED, "context_length_exceeded"),
        (400, ("invalid_request_error", "Your credit balance is too low"), Fault.EXHAUSTED, None),
        (401, ("authentication_error", "invalid x-api-key"), Fault.AUTH, None),
        (402, ("billing_error", "Check your payment."), Fault.EXHAUSTED, None),
        (403, ("permission_error", "No."), Fault.AUTH, None),
        (404, ("not_found_error", "model: m-9"), Fault.NOT_FOUND, None),
        (413, ("request_too_large", "Too large."), Fault.REJECTED, None),
        (429, ("rate_limit_error", "Slower."), Fault.RATE_LIMITED, None),
        (500, ("api_error", "Internal server error"), Fault.SERVER_ERROR, None),
        (529, ("overloaded_error", "Overloaded"), Fault.OVERLOADED, None),
    ],
)  # fmt: skip
def test_a_provider_s_error_keeps_its_meaning_and_its_advice(
    status: int, error: Any, kind: Fault, code: str | None
) -> None:
    said = {"type": "error", "error": {"type": error[0], "message": error[1]}, "request_id": "req_1"}
    made = fault(status, {"retry-after": "7"}, json.dumps(said).encode())
    assert (made.kind, made.retry_after if kind is Fault.RATE_LIMITED else 7) == (kind, 7)
    if code is not None:
        assert made.code == code


def test_shown_counts_match_what_was_passed() -> None:
    """A native answer is read by the same reader for its bill."""
    made = shown([chunk for name, data in events(recorded("text")) for chunk in UpstreamAnswer().event(name, data)])
    assert made[-1]["usage"]["completion_tokens"] == 9
