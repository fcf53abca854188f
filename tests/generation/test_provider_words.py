"""What a provider says of a request that it does not take: where the request goes then, who learns of it, and in which
words.
"""

import json
from typing import Any

import httpx
import pytest

from billing.models import Attempt
from routing.models import Ejection, Policy
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import add_offer, make_model, make_provider


def tries(answer: httpx.Response) -> list[tuple[str, str]]:
    """Status and fault of each attempt."""
    attempts = Attempt.objects.filter(generation=answer.headers["x-generation-id"]).order_by("number")
    return [(attempt.status, attempt.fault) for attempt in attempts]


def refusing(simulated: SimulatedProvider, name: str, status: int, error: Any) -> str:
    """The upstream model of a provider that refuses so."""
    body = error if isinstance(error, bytes) else json.dumps({"error": error}).encode()
    return f"acme-internal-9?{simulated.script(name, body, status=status, content_type='application/json')}"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "error",
    [
        {"message": "request (4390 tokens) exceeds the available context size (4096 tokens), try increasing it",
         "code": 400, "type": "exceed_context_size_error"},
        {"message": "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]",
         "code": "invalid_parameter_error"},
    ],
)  # fmt: skip
def test_a_prompt_that_is_too_long_goes_to_the_model_that_was_named_for_it(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, error: Any, stream: bool
) -> None:
    small = make_model(make_provider(simulated.base_url), refusing(simulated, f"small{stream}", 400, error))
    add_offer(small, make_provider(simulated.base_url), "sim-small?text=never", priority=1)
    large = make_model(make_provider(simulated.base_url), "sim-large?text=room")
    synchronize(gateway)
    alone = gateway.chat(alice.secret, small.slug, stream=stream)
    assert (alone.status_code, alone.json()["error"]["code"]) == (400, "context_length_exceeded")
    answer = gateway.chat(alice.secret, small.slug, stream=stream, provider={"fallback": large.slug})
    assert "room" in answer.text
    assert tries(answer) == [("failed", "rejected"), ("completed", "")]


@pytest.mark.parametrize(
    "error",
    [
        {"message": "The model `acme-internal-9` does not exist.", "code": "model_not_found"},
        b'{"detail":"Not Found"}',
        b"404 page not found",
    ],
)
def test_a_404_of_the_providers_own_is_told_in_our_words_and_to_the_operator_where_it_was_dialled(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, error: Any
) -> None:
    provider = make_provider(f"{simulated.url}/somewhere", failure_threshold=1)
    model = make_model(make_provider(simulated.base_url), refusing(simulated, f"gone{len(str(error))}", 404, error))
    nowhere = make_model(provider, "acme-internal-9")
    synchronize(gateway)
    for slug, where in ((model.slug, simulated.base_url), (nowhere.slug, provider.base_url)):
        answer = gateway.chat(alice.secret, slug)
        told = answer.json()["error"]
        assert (answer.status_code, told["type"], told["code"]) == (502, "upstream_error", "upstream_not_found")
        assert told["message"] == "The provider does not know what the gateway asked it for."
        assert "acme-internal-9" not in answer.text
        id = answer.headers["x-generation-id"]
        (line,) = (row for row in gateway.log.read_text().splitlines() if id in row and "status 4" in row)
        assert f"failed at {where}: not_found, 'status 404: " in line
    add_offer(nowhere, make_provider(simulated.base_url), "sim-small?text=here", priority=1)
    Ejection.objects.filter(offer__model=nowhere).update(closed_at="2026-01-01T00:00Z", closed_by="operator")
    synchronize(gateway)
    answer = gateway.chat(alice.secret, nowhere.slug)
    assert tries(answer) == [("failed", "not_found"), ("completed", "")]


@pytest.mark.parametrize(("written", "dialled"), [("/v1", "/v1"), ("/v1/", "/v1"), ("", ""), ("/", "")])
def test_an_address_is_dialled_with_one_slash(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, written: str, dialled: str
) -> None:
    """As it is written: where that is no path of the provider's, its own log shows what was asked for."""
    provider = make_provider(f"{simulated.url}{written}")
    model = make_model(provider, f"slash-{provider.slug}")
    synchronize(gateway)
    assert gateway.chat(alice.secret, model.slug).status_code == (200 if dialled else 502)
    paths = [line["path"] for line in simulated.lines() if line.get("model") == f"slash-{provider.slug}"]
    assert set(paths) == {f"{dialled}/chat/completions"}


def test_every_rejected_dial_leaves_a_line_that_quotes_nobody(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    error = {"message": "Invalid value: 'my darkest secret'. Expected one of: " + "a, " * 500, "param": "tools"}
    model = make_model(make_provider(simulated.base_url), refusing(simulated, "quoting", 422, error))
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug)
    assert answer.status_code == 422
    id = answer.headers["x-generation-id"]
    (line,) = (row for row in gateway.log.read_text().splitlines() if id in row and "status 4" in row)
    assert Attempt.objects.get(generation=id).provider in line
    assert "rejected, 'status 422: Invalid value: . Expected one of: a, a" in line
    assert "darkest" not in line
    assert len(line) < 500


@pytest.mark.parametrize("kind", ["text/event-stream", "application/json"])
@pytest.mark.parametrize("word", ["error", "TIMEOUT", "failed", "insufficient_system_resource"])
def test_an_end_that_is_a_failure_leads_to_the_next_offer_before_anything_was_said(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, word: str, kind: str
) -> None:
    choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": word}
    whole = {"choices": [{"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": word}]}
    event = b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\ndata: [DONE]\n\n"
    stream = kind == "text/event-stream"
    body = event if stream else json.dumps(whole).encode()
    option = simulated.script(f"ends-{word}-{stream}", body, content_type=kind)
    model = make_model(make_provider(simulated.base_url), f"sim-small?{option}")
    add_offer(model, make_provider(simulated.base_url), "sim-small?text=well", priority=1)
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug, stream=stream)
    assert "well" in answer.text
    (failed, fault), answered = tries(answer)
    assert (failed, answered) == ("failed", ("completed", ""))
    assert fault in ("server_error", "timeout", "overloaded")


def test_and_after_it_ends_the_answer(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    chunks: list[dict[str, Any]] = [{"delta": {"content": "one"}}, {"delta": {}, "finish_reason": "TIMEOUT"}]
    events = [b"data: " + json.dumps({"choices": [{"index": 0} | chunk]}).encode() + b"\n\n" for chunk in chunks]
    option = simulated.script("ends-late", b"".join(events) + b"data: [DONE]\n\n")
    model = make_model(make_provider(simulated.base_url), f"sim-small?{option}")
    add_offer(model, make_provider(simulated.base_url), "sim-small?text=well", priority=1)
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug, stream=True)
    assert json.loads(answer.text.strip().rpartition("data: ")[2])["error"]["code"] == "upstream_timeout"
    assert "[DONE]" not in answer.text
    assert tries(answer) == [("failed", "timeout")]


def test_a_conversation_that_paid_for_a_long_cache_goes_back_where_it_was_answered(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    first, second = make_provider(simulated.base_url, failure_threshold=1), make_provider(simulated.base_url)
    model = make_model(first, "sim-small?text=first")
    add_offer(model, second, "sim-small?text=second", priority=1)
    policy = Policy.objects.create(level="project", project=alice.project, only_providers=[second.slug])
    synchronize(gateway)

    def says(word: str, **body: Any) -> str:
        messages = [{"role": "user", "content": f"about {word}"}]
        answer = gateway.chat(alice.secret, model.slug, messages=messages, **body)
        return str(answer.json()["choices"][0]["message"]["content"])

    paid = {"prompt_cache_retention": "24h"}
    assert [says("one", **paid), says("two")] == ["second", "second"]
    policy.delete()
    synchronize(gateway)
    assert [says("one", **paid), says("two"), says("three", **paid)] == ["second", "first", "first"]
    model.offers.filter(provider=second).update(forced="open")
    synchronize(gateway)
    assert says("one", **paid) == "first"


@pytest.mark.parametrize("status", [400, 413, 422])
@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_that_tells_what_to_change_names_the_model_as_the_client_knows_it(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, status: int, stream: bool
) -> None:
    name = f"acme-internal-9?script=named{status}{stream}"
    error = {"message": f"{name} takes no images.", "param": f"{name}.images", "code": "no_images"}
    upstream = refusing(simulated, f"named{status}{stream}", status, error)
    assert upstream == name
    model = make_model(make_provider(simulated.base_url), upstream)
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug, stream=stream)
    told = answer.json()["error"]
    assert (answer.status_code, told["code"]) == (status, "no_images")
    assert (told["message"], told["param"]) == (f"{model.slug} takes no images.", f"{model.slug}.images")
