"""The official openai SDK against the gateway: base_url and api_key are changed, and nothing else."""

import asyncio
import json
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from billing.models import Budget, Limit, Usage
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant, make_key
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import make_model, make_provider

HI: Any = [{"role": "user", "content": "hi"}]
WEATHER: Any = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
Complete = Callable[..., Any]


class Client:
    """Both of the SDK's clients, called alike."""

    def __init__(self, gateway: Gateway, *, asynchronous: bool) -> None:
        self.url = f"{gateway.url}/v1"
        self.asynchronous = asynchronous

    def run(self, secret: str, call: Callable[[Any], Any], **options: Any) -> Any:
        """What `call` gives, which takes a client; a stream as the list of what it held."""
        options = {"base_url": self.url, "api_key": secret, **options}
        if not self.asynchronous:
            with OpenAI(**options) as client:
                answer = call(client)
                return list(answer) if hasattr(answer, "__next__") else answer

        async def run() -> Any:
            async with AsyncOpenAI(**options) as client:
                answer = await call(client)
                return [part async for part in answer] if hasattr(answer, "__anext__") else answer

        return asyncio.run(run())

    def chat(self, secret: str, model: str, messages: Any = HI, **fields: Any) -> Any:
        """A chat completion, or the chunks of its stream."""
        return self.run(secret, lambda client: client.chat.completions.create(model=model, messages=messages, **fields))


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def sdk(gateway: Gateway, request: pytest.FixtureRequest) -> Client:
    """The SDK, pointed at the gateway."""
    return Client(gateway, asynchronous=request.param)


@pytest.fixture
def shelf(gateway: Gateway, simulated: SimulatedProvider) -> Callable[[str], str]:
    """Puts a model on the shelf that does what `options` say, and gives its name."""

    def put(options: str) -> str:
        slug = make_model(make_provider(simulated.base_url), f"sim-small?{options}").slug
        synchronize(gateway)
        return slug

    return put


def answers(gateway: Gateway, status: int) -> int:
    """How many answers of this status the gateway has given."""
    name = f'meterline_answers_total{{status="{status}"}} '
    lines = gateway.client.get("/metrics").text.splitlines()
    return sum(int(float(line.removeprefix(name))) for line in lines if line.startswith(name))


# --- answers --------------------------------------------------------------------------------------------------------


def test_a_chat(sdk: Client, alice: Tenant, shelf: Callable[[str], str]) -> None:
    model = shelf("text=good%20day%20to%20you&prompt=11")
    answer = sdk.chat(alice.secret, model, user="u-1", max_tokens=50, temperature=0.2, seed=7, stop=["END"])
    assert answer.choices[0].message.content == "good day to you"
    assert (answer.choices[0].finish_reason, answer.model, answer.object) == ("stop", model, "chat.completion")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (11, 4, 15)
    assert len(answer._request_id) == 32
    usage = Usage.objects.get(id=answer.id)
    assert (usage.prompt_tokens, usage.completion_tokens, usage.end_user) == (11, 4, "u-1")


def test_a_stream(sdk: Client, alice: Tenant, shelf: Callable[[str], str]) -> None:
    model = shelf("text=good%20day%20to%20you&prompt=11")
    for options, counted in ({"stream_options": {"include_usage": True}}, 1), ({}, 0):
        chunks = sdk.chat(alice.secret, model, stream=True, **options)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "good day to you"
        assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
        usages = [chunk.usage for chunk in chunks if chunk.usage]
        assert [(usage.prompt_tokens, usage.completion_tokens) for usage in usages] == [(11, 4)] * counted
        assert {chunk.model for chunk in chunks} == {model}
        usage = Usage.objects.get(id=chunks[0].id)
        assert (usage.status, usage.prompt_tokens, usage.completion_tokens) == ("completed", 11, 4)


def test_the_stream_helper(gateway: Gateway, alice: Tenant, shelf: Callable[[str], str]) -> None:
    model = shelf("text=good%20day&prompt=11")
    with (
        OpenAI(base_url=f"{gateway.url}/v1", api_key=alice.secret) as client,
        client.chat.completions.stream(model=model, messages=HI) as stream,
    ):
        for event in stream:
            assert event.type
        assert stream.get_final_completion().choices[0].message.content == "good day"


def test_a_loop_of_tools(sdk: Client, alice: Tenant, shelf: Callable[[str], str]) -> None:
    model = shelf("tools=2&text=sunny%20everywhere")
    messages = [{"role": "user", "content": "weather in Oslo and Rome?"}]
    asked = sdk.chat(alice.secret, model, messages, tools=[WEATHER])
    assert asked.choices[0].finish_reason == "tool_calls"
    message = asked.choices[0].message
    assert [call.function.name for call in message.tool_calls] == ["weather", "weather"]
    assert len({call.id for call in message.tool_calls}) == 2
    for call in message.tool_calls:
        assert isinstance(json.loads(call.function.arguments), dict)
    streamed = sdk.chat(alice.secret, model, messages, tools=[WEATHER], stream=True)
    arguments: dict[int, str] = {}
    for chunk in streamed:
        for part in chunk.choices[0].delta.tool_calls or []:
            arguments[part.index] = arguments.get(part.index, "") + (part.function.arguments or "")
    assert [arguments[at] for at in (0, 1)] == [call.function.arguments for call in message.tool_calls]
    results = [{"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in message.tool_calls]
    rest = [*messages, message.model_dump(exclude_none=True), *results]
    told = sdk.chat(alice.secret, model, rest, tools=[WEATHER], tool_choice="none")
    assert told.choices[0].message.content == "sunny everywhere"


def test_pictures_and_fields_that_nobody_knows_reach_the_provider(
    sdk: Client, alice: Tenant, shelf: Callable[[str], str]
) -> None:
    model = shelf("echo")
    content = [
        {"type": "text", "text": "what is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "high"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    ]
    messages = [{"role": "user", "content": content}]
    strange = {"a_new_field": {"deep": [1, None, {"x": 1.5}]}, "top_k": 40, "chat_template_kwargs": {"think": False}}
    answer = sdk.chat(alice.secret, model, messages, extra_body=strange, logit_bias={"50256": -100})
    sent = json.loads(answer.choices[0].message.content)
    assert sent == {"model": "sim-small?echo", "messages": messages, "logit_bias": {"50256": -100}, **strange}


class City(BaseModel):
    """An answer with a shape."""

    name: str
    people: int


def test_a_parsed_answer(gateway: Gateway, alice: Tenant, shelf: Callable[[str], str]) -> None:
    model = shelf("text=%7B%22name%22:%22Oslo%22,%22people%22:700000%7D")
    with OpenAI(base_url=f"{gateway.url}/v1", api_key=alice.secret) as client:
        answer = client.chat.completions.parse(model=model, messages=HI, response_format=City)
    assert answer.choices[0].message.parsed == City(name="Oslo", people=700_000)


def test_the_models(sdk: Client, alice: Tenant, shelf: Callable[[str], str]) -> None:
    model = shelf("tokens=1")
    _, secret = make_key(alice.project, allowed_models=[model])
    assert [listed.id for listed in sdk.run(secret, lambda client: client.models.list()).data] == [model]
    one = sdk.run(secret, lambda client: client.models.retrieve(model))
    assert (one.id, one.object, one.owned_by) == (model, "model", "test")
    with pytest.raises(openai.NotFoundError):
        sdk.run(secret, lambda client: client.models.retrieve("no/such"))


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_refusals_are_the_sdks_own_exceptions_and_are_not_sent_again(
    gateway: Gateway, sdk: Client, alice: Tenant, shelf: Callable[[str], str], stream: bool
) -> None:
    model = shelf("tokens=1")
    poor, poor_secret = make_key(alice.project, name="poor")
    Budget.objects.create(
        organization=alice.organization, project=alice.project, key=poor, period="total", amount=Decimal(0)
    )
    _, narrow = make_key(alice.project, name="narrow", allowed_endpoints=["models"])
    cases: list[tuple[str, str, dict[str, Any], type[openai.APIStatusError], int, str]] = [
        ("sk-ml-wrong", model, {}, openai.AuthenticationError, 401, "invalid_api_key"),
        (poor_secret, model, {}, openai.APIStatusError, 402, "insufficient_credit"),
        (narrow, model, {}, openai.PermissionDeniedError, 403, "endpoint_not_allowed"),
        (alice.secret, "no/such", {}, openai.NotFoundError, 404, "model_not_found"),
        (alice.secret, model, {"max_tokens": 0}, openai.BadRequestError, 400, "invalid_value"),
        (alice.secret, model, {"extra_body": {"api_base": "x"}}, openai.BadRequestError, 400, "forbidden_parameter"),
        (alice.secret, shelf("status=400&code=context_length_exceeded"), {}, openai.BadRequestError, 400,
         "context_length_exceeded"),
        (alice.secret, shelf("status=422&code=odd"), {}, openai.UnprocessableEntityError, 422, "odd"),
    ]  # fmt: skip
    synchronize(gateway)
    for secret, name, fields, kind, status, code in cases:
        before = answers(gateway, status)
        with pytest.raises(kind) as refused:
            sdk.chat(secret, name, stream=stream, **fields)
        assert type(refused.value) is kind
        assert (refused.value.status_code, refused.value.code) == (status, code)
        assert len(refused.value.request_id or "") == 32
        assert answers(gateway, status) == before + 1
    assert not Usage.objects.filter(key=poor.id).exists()


def test_a_rate_limit_is_waited_for_as_long_as_it_says(
    gateway: Gateway, sdk: Client, alice: Tenant, shelf: Callable[[str], str]
) -> None:
    model = shelf(f"status=429&retry_after=2&fail_first=1&tokens=2&prompt={100 + sdk.asynchronous}")
    before, started = answers(gateway, 429), time.monotonic()
    assert sdk.chat(alice.secret, model).usage.completion_tokens == 2
    assert time.monotonic() - started >= 2
    assert answers(gateway, 429) == before + 1


def test_a_limit_of_ours_is_a_rate_limit_error_with_its_end(
    gateway: Gateway, sdk: Client, alice: Tenant, shelf: Callable[[str], str]
) -> None:
    model = shelf("tokens=1")
    key, secret = make_key(alice.project, name="slow")
    Limit.objects.create(organization=alice.organization, project=alice.project, key=key, measure="requests", value=1)
    synchronize(gateway)

    def until_refused(client: Any) -> Any:
        return client.chat.completions.create(model=model, messages=HI)

    with pytest.raises(openai.RateLimitError) as refused:
        for _ in range(3):  # a minute may end between two of them
            sdk.run(secret, until_refused, max_retries=0)
    assert refused.value.code == "rate_limit_exceeded"
    assert 1 <= int(refused.value.response.headers["retry-after"]) <= 60
    assert refused.value.response.headers["x-ratelimit-remaining-requests"] == "0"


@pytest.mark.parametrize("fault", ["status=503", "fault=garbage", "fault=empty_choices"])
def test_a_provider_that_failed_once_is_asked_again(
    gateway: Gateway, sdk: Client, alice: Tenant, shelf: Callable[[str], str], fault: str
) -> None:
    model = shelf(f"{fault}&fail_first=1&tokens=2&prompt={200 + sdk.asynchronous}")
    assert sdk.chat(alice.secret, model).usage.completion_tokens == 2
    assert sorted(Usage.objects.filter(model=model).values_list("status", flat=True)) == ["completed", "failed"]


def test_a_provider_that_fails_for_good_is_the_servers_error(
    gateway: Gateway, sdk: Client, alice: Tenant, shelf: Callable[[str], str]
) -> None:
    model = shelf("fault=garbage")
    with pytest.raises(openai.InternalServerError) as failed:
        sdk.run(
            alice.secret,
            lambda client: client.chat.completions.create(model=model, messages=HI),
            max_retries=0,
        )
    assert (failed.value.status_code, failed.value.code) == (502, "upstream_invalid_response")


def test_a_stream_that_breaks_off_raises(sdk: Client, alice: Tenant, shelf: Callable[[str], str]) -> None:
    model = shelf("tokens=9&fault=reset_mid@4")
    with pytest.raises(openai.APIError) as failed:
        sdk.chat(alice.secret, model, stream=True)
    assert failed.value.code == "upstream_truncated"
    assert Usage.objects.get(model=model).status == "failed"
