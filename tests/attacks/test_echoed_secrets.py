"""A provider that says the gateway's own secret wherever it can say something: nobody reads it."""

import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from billing.models import Attempt, Usage
from routing.models import Ejection, Model
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import make_model, make_provider

# No pattern knows it, and every encoder finds something to do.
SECRET = "Zq/canary+3f9~X=w7Kp2LmN8vTq5RsY"
INNER = SECRET[10:26]  # no form but one that was recognised may hold as much of it


def _escaped(text: str) -> str:
    return "".join(f"\\u{ord(char):04x}" for char in text)


FORMS: dict[str, Callable[[str], str]] = {
    "bare": str,
    "bearer": lambda secret: f"Bearer {secret}",
    "url": lambda secret: quote(secret, safe=""),
    "all of it as in URLs": lambda secret: "".join(f"%{ord(char):02X}" for char in secret),
    "base64": lambda secret: b64encode(secret.encode()).decode(),
    "base64 of the header": lambda secret: b64encode(f"Bearer {secret}".encode()).decode(),
    "base64 for URLs, amid more": lambda secret: urlsafe_b64encode(f"user:{secret}\nmore".encode()).decode(),
    "hex": lambda secret: secret.encode().hex(),
    "HEX": lambda secret: secret.encode().hex().upper(),
    "JSON in JSON": lambda secret: json.dumps({"authorization": secret}),
}
IN_ANSWERS = [form for form in FORMS if not form.startswith("all")]  # as encoders write it, whose texts these are


def _leaks(text: str) -> list[str]:
    """Which forms of the secret a text has; told from a middle part of each, which no masking of an end hides."""
    found = []
    for name, form in FORMS.items():
        said = form(SECRET)
        middle = said[len(said) // 2 - 8 : len(said) // 2 + 8]
        if middle in text or json.dumps(middle)[1:-1] in text:
            found.append(name)
    return [*found, *(["inner"] if INNER in text else []), *(["escaped"] if _escaped(INNER) in text else [])]


def _model(simulated: SimulatedProvider, name: str, body: bytes, **delivery: Any) -> Model:
    option = simulated.script(f"echo-{name}-{len(body)}", body, **delivery)
    provider = make_provider(simulated.base_url, SECRET, failure_threshold=1, cooldown=1.0)
    return make_model(provider, f"sim-small?{option}")


def _check(gateway: Gateway, model: Model, answer: Any, since: int) -> None:
    assert _leaks(answer.text) == []
    assert _leaks(str(answer.headers)) == []
    assert _leaks(gateway.log.read_text()[since:]) == []
    rows = [
        *Usage.objects.filter(model=model.slug).values(),
        *Attempt.objects.filter(model=model.slug).values(),
        *Ejection.objects.filter(offer__model=model).values(),
    ]
    assert len(rows) >= 2
    assert _leaks(str(rows)) == []


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 429, 500])
def test_an_error_that_echoes_it_in_every_field(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, status: int
) -> None:
    models = []
    for form in FORMS:
        said = FORMS[form](SECRET)
        error = dict.fromkeys(("message", "type", "code", "param", "status", "detail", said), said)
        body = json.dumps({"error": error, "message": said}).encode()
        models.append(_model(simulated, f"{status}-{form}", body, status=status, header=f"Retry-After: {quote(said)}"))
    synchronize(gateway)
    since = len(gateway.log.read_text())
    for model in models:
        for stream in (False, True):
            _check(gateway, model, gateway.chat(alice.secret, model.slug, stream=stream), since)


def _answers(said: str) -> dict[str, bytes]:
    """A streamed and a whole answer that say it in every field there is, by their Content-Type."""
    beside = {"id": said, "system_fingerprint": said, "x_debug": {said: [said]}, "object": said}
    delta = {"role": "assistant", "content": f"so: {said}", "reasoning": said, "refusal": said, "x": said}
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": said}]},
        {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4, "x": said}},
    ]
    stream = b"".join(b"data: " + json.dumps(beside | one).encode() + b"\n\n" for one in chunks) + b"data: [DONE]\n\n"
    whole = beside | {"choices": [{"index": 0, "message": delta, "finish_reason": said}]}
    return {"text/event-stream": stream, "application/json": json.dumps(whole).encode()}


@pytest.mark.parametrize("chunk", [0, 1, 7])
def test_an_answer_that_echoes_it_in_every_field(
    gateway: Gateway, alice: Tenant, charlie: Tenant, simulated: SimulatedProvider, chunk: int
) -> None:
    models = [
        (kind, _model(simulated, f"{form}{kind}{chunk}".replace("/", ""), body, content_type=kind, chunk=chunk))
        for form in IN_ANSWERS
        for kind, body in _answers(FORMS[form](SECRET)).items()
    ]
    synchronize(gateway)
    since = len(gateway.log.read_text())
    for kind, model in models:
        answer = gateway.chat(alice.secret, model.slug, stream=kind != "application/json")
        assert "so: " in answer.text
        assert "[key]" in answer.text
        _check(gateway, model, answer, since)
        # And what Charlie may look up of it, is told of his own generations or reads of the model is none of it.
        id = answer.headers["x-generation-id"]
        for tenant in (alice, charlie):
            headers = {"x-api-key": tenant.secret}
            for path in (f"/v1/generation?id={id}", "/v1/models", f"/v1/management/generation?id={id}"):
                assert _leaks(gateway.client.get(path, headers=headers).text) == []


@pytest.mark.parametrize("escaped", [False, True])
@pytest.mark.parametrize("amid", [False, True])
def test_an_error_event_that_echoes_it(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, amid: bool, escaped: bool
) -> None:
    said = _escaped(SECRET) if escaped else SECRET
    before = b'data: {"choices":[{"index":0,"delta":{"content":"one"}}]}\n\n' if amid else b""
    error = '{"message":"refused SAID","code":400,"type":"invalid_request_error","param":"SAID"}'
    event = f'{{"error":{error.replace("SAID", said)}}}'
    model = _model(simulated, f"event{amid}{escaped}", before + b"data: " + event.encode() + b"\n\n", chunk=5)
    synchronize(gateway)
    since = len(gateway.log.read_text())
    answer = gateway.chat(alice.secret, model.slug, stream=True)
    assert "refused [key]" in answer.text
    _check(gateway, model, answer, since)


NO_HTTP = [
    b"HTTP/1.1 200 %s\r\nX: 1\r\n\r\n",
    b"%s\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n%s\x00: 1\r\n\r\n",
    # Who quotes so many characters, or bytes as they came, shows a part of it that nobody knows for what it is.
    b"HTTP/1.1 200 OK\r\nX: " + b"x" * 450 + b"%s\x00\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%s\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: %s\r\n\r\n",
]


@pytest.mark.parametrize("body", NO_HTTP)
def test_what_is_no_http_at_all(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, body: bytes) -> None:
    model = _model(simulated, "raw", body.replace(b"%s", SECRET.encode()), transfer="raw", end="cut")
    synchronize(gateway)
    since = len(gateway.log.read_text())
    _check(gateway, model, gateway.chat(alice.secret, model.slug), since)
