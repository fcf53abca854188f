"""Services that sell others' protocols, each called and proved to as it wants it: Bedrock, Vertex, Azure."""

import json
import secrets
from collections.abc import Callable
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from billing.models import Attempt, Usage
from gateway.wire.sse import EventReader
from routing.models import Model, Provider
from tests.simulated.process import SimulatedProvider
from tests.stage.accounts import AWS_ID, AWS_SECRET, AWS_TOKEN, RSA, document
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.protocols import RECORDINGS, generate, message
from tests.stage.shelf import make_model, make_provider
from tests.wire.frames import frame, framed, text

SAID = "Hello, wörld 🌍."
OSLO = "Øslo is\u2028 cold."
FRAMES = "application/vnd.amazon.eventstream"
HI = [{"role": "user", "content": "hi"}]


class Service:
    """One model at a service, which says what it is told to; and what it was sent."""

    def __init__(self, simulated: SimulatedProvider, base: str, secret: str, **provider: Any) -> None:
        self.simulated = simulated
        self.name = f"service-{secrets.token_hex(6)}"
        self.provider: Provider = make_provider(f"{simulated.url}{base}", secret, **provider)
        self.model: Model = make_model(self.provider, self.name)

    def says(self, data: bytes, **delivery: Any) -> None:
        """From now on."""
        self.simulated.behave(self.name, self.simulated.script(self.name, data, **delivery))

    @property
    def asked(self) -> dict[str, Any]:
        """The request that it was last sent."""
        return self.simulated.asked(self.name)

    @property
    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(self.asked["body"])
        return body

    @property
    def dials(self) -> int:
        """How often it was asked."""
        return sum(line["model"] == self.name for line in self.simulated.bill())


class Bedrock(Service):
    def __init__(self, simulated: SimulatedProvider, secret: str = f"{AWS_ID}:{AWS_SECRET}", **provider: Any) -> None:
        fields = {"auth_style": "sigv4", "region": "eu-west-1", **provider}
        super().__init__(simulated, "", secret, protocol="anthropic_messages", variant="invoke", **fields)

    def plays(self, recording: str, stream: bool) -> None:
        if stream:
            data = (RECORDINGS / "anthropic_messages" / f"{recording}.sse").read_bytes()
            self.says(b"".join(framed(data)), content_type=FRAMES, chunk=100)
        else:
            data = (RECORDINGS / "anthropic_messages" / f"{recording}.json").read_bytes()
            self.says(data, content_type="application/json")


class TokenEndpoint:
    """Gives tokens for the service account's key `key`."""

    def __init__(self, simulated: SimulatedProvider) -> None:
        self.simulated = simulated
        self.name = f"token-{secrets.token_hex(6)}"
        self.address = f"{simulated.url}/models/{self.name}:token"
        self.key = document(token_uri=self.address)
        self.gives("ya29.first-0123456789")

    def gives(self, token: str, more: str = "") -> None:
        """From now on."""
        answer = json.dumps({"access_token": token, "expires_in": 3599, "token_type": "Bearer"}).encode()
        option = self.simulated.script(self.name, answer, content_type="application/json")
        self.simulated.behave(self.name, option + more)

    @property
    def asked(self) -> int:
        """How often."""
        return sum(line["model"] == self.name for line in self.simulated.bill())


def checked_signature(service: Bedrock, token: str = "") -> None:
    """Raises AssertionError unless the signature that arrived is the one that AWS's own library makes."""
    auth: Any = pytest.importorskip("botocore.auth")
    awsrequest: Any = pytest.importorskip("botocore.awsrequest")
    asked = service.asked
    sent: dict[str, str] = asked["headers"]
    proof = sent["authorization"]
    signed = proof.partition("SignedHeaders=")[2].partition(",")[0].split(";")
    assert {"host", "content-type", "x-amz-date", *(["x-amz-security-token"] if token else [])} <= {*signed}
    own = {"host", "x-amz-date", "x-amz-security-token"}
    request = awsrequest.AWSRequest(
        method="POST",
        url=service.simulated.url + asked["target"],
        data=asked["body"].encode(),
        headers={name: sent[name] for name in signed if name not in own},
    )
    key = SimpleNamespace(access_key=AWS_ID, secret_key=AWS_SECRET, token=token or None)
    with pytest.MonkeyPatch.context() as patch:  # botocore takes the time from a function of its own
        now = auth.get_current_datetime().strptime(sent["x-amz-date"], "%Y%m%dT%H%M%SZ")
        patch.setattr(auth, "get_current_datetime", lambda *_, **__: now)
        auth.SigV4Auth(key, "bedrock", "eu-west-1").add_auth(request)
    assert proof == request.headers["Authorization"]
    assert sent.get("x-amz-security-token", "") == token


def said(answer: httpx.Response) -> str:
    """The text of an answer, streamed or not, of chats or messages."""
    assert answer.status_code == 200, answer.text
    if answer.headers["content-type"] == "application/json":
        whole = answer.json()
        return str(whole["choices"][0]["message"]["content"] if "choices" in whole else whole["content"][0]["text"])
    made = ""
    for event in EventReader().feed(answer.content):
        if event.data != b"[DONE]":
            one = json.loads(event.data)
            made += one.get("delta", {}).get("text", "") if "type" in one else _delta(one)
    return made


def _delta(chunk: dict[str, Any]) -> str:
    return "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])


Client = Callable[..., httpx.Response]


def by_chat(gateway: Gateway, tenant: Tenant, model: Model, **fields: Any) -> httpx.Response:
    return gateway.chat(tenant.secret, model.slug, **fields)


CLIENTS = pytest.mark.parametrize("client", [by_chat, message], ids=["a chat", "a message"])
STREAMED = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
SECRETS = pytest.mark.parametrize("token", ["", AWS_TOKEN], ids=["a key", "a temporary key"])


def billed(model: Model) -> tuple[int, int, str]:
    row = Usage.objects.get(model=model.slug)
    return row.prompt_tokens, row.completion_tokens, row.basis


# --- Bedrock


@SECRETS
@CLIENTS
@STREAMED
def test_bedrock(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, stream: bool, client: Client, token: str
) -> None:
    service = Bedrock(simulated, f"{AWS_ID}:{AWS_SECRET}" + (f":{token}" if token else ""))
    service.plays("text", stream)
    synchronize(gateway)
    answer = client(gateway, alice, service.model, stream=stream)
    assert said(answer) == SAID
    assert billed(service.model) == (11, 9, "reported")
    checked_signature(service, token)
    verb = "invoke-with-response-stream" if stream else "invoke"
    assert service.asked["path"] == f"/model/{service.name}/{verb}"
    assert service.asked["headers"]["accept"] == (FRAMES if stream else "application/json")
    body = service.body
    assert body["anthropic_version"] == "bedrock-2023-05-31"
    assert not {"model", "stream"} & body.keys() and "anthropic-version" not in service.asked["headers"]


def test_a_name_of_bedrock_s_with_every_odd_sign(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    service = Bedrock(simulated)
    service.plays("text", stream=False)
    odd = f"arn:aws:bedrock:eu-west-1:1:profile/eu.a-{secrets.token_hex(4)}+@~=v1:0 (é)"
    model = make_model(service.provider, f"{odd}?script={service.name}")
    synchronize(gateway)
    assert said(by_chat(gateway, alice, model)) == SAID
    checked_signature(service)
    encoded = odd.replace("/", "%2F").replace(" ", "%20").replace("(é)", "%28%C3%A9%29")
    assert service.asked["target"] == f"/model/{encoded}%3Fscript={service.name}/invoke"


def test_what_is_too_large_to_sign_at_once(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    service = Bedrock(simulated)
    service.plays("text", stream=False)
    synchronize(gateway)
    words = "wörld " * 250_000
    answer = by_chat(gateway, alice, service.model, messages=[{"role": "user", "content": words}])
    assert said(answer) == SAID
    checked_signature(service)
    assert len(service.asked["body"]) > 1 << 20


def test_bedrock_with_a_key_of_its_own(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    service = Bedrock(simulated, "bedrock-api-key-0123456789", auth_style="bearer", region="")
    service.plays("text", stream=True)
    synchronize(gateway)
    assert said(by_chat(gateway, alice, service.model, stream=True)) == SAID
    assert service.asked["headers"]["authorization"] == "Bearer bedrock-api-key-0123456789"
    assert "x-amz-date" not in service.asked["headers"]


def test_tools_thoughts_and_cached_counts_come_through_frames(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    service = Bedrock(simulated)
    service.plays("thinking_tool", stream=True)
    synchronize(gateway)
    answer = message(gateway, alice, service.model, stream=True)
    want = EventReader().feed((RECORDINGS / "anthropic_messages" / "thinking_tool.sse").read_bytes())
    blocks = [json.loads(event.data) for event in want if b"content_block_" in event.data]
    got = [json.loads(event.data) for event in EventReader().feed(answer.content)]
    assert [event for event in got if event["type"].startswith("content_block_")] == blocks
    usage = Usage.objects.get(model=service.model.slug)
    told = next(event["usage"] for event in got if event["type"] == "message_delta")
    assert (usage.completion_tokens, usage.basis) == (told["output_tokens"], "reported")


@pytest.mark.parametrize("after", [0, 5], ids=["at once", "after output"])
def test_a_frame_whose_sum_is_wrong_is_refused(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, after: int
) -> None:
    service = Bedrock(simulated)
    frames = framed((RECORDINGS / "anthropic_messages" / "text.sse").read_bytes())
    broken = bytearray(frames[after])
    broken[-6] ^= 1
    service.says(b"".join([*frames[:after], bytes(broken), *frames[after + 1 :]]), content_type=FRAMES)
    synchronize(gateway)
    answer = by_chat(gateway, alice, service.model, stream=True)
    row = Usage.objects.get(model=service.model.slug)
    attempt = Attempt.objects.get(model=service.model.slug)
    assert attempt.fault == "invalid_response"
    if after:
        assert '"content":"Hel"' in answer.text and '"content":"lo, "' in answer.text and "wörld" not in answer.text
        assert '"code":"upstream_invalid_response"' in answer.text and "[DONE]" not in answer.text
        assert (row.basis, row.completion_tokens > 0) == ("estimated", True)
    else:
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_invalid_response")
        assert (row.basis, row.charge) == ("unknown", Decimal(0))


@pytest.mark.parametrize("cut", [40, -20], ids=["before output", "at the end"])
def test_a_stream_that_ends_inside_a_frame_broke_off(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, cut: int
) -> None:
    service = Bedrock(simulated)
    frames = b"".join(framed((RECORDINGS / "anthropic_messages" / "text.sse").read_bytes()))
    service.says(frames[:cut], content_type=FRAMES)
    synchronize(gateway)
    answer = by_chat(gateway, alice, service.model, stream=True)
    assert '"code":"upstream_truncated"' in answer.text
    assert Attempt.objects.get(model=service.model.slug).fault == "truncated"


def test_an_exception_amid_frames(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    service = Bedrock(simulated)
    headers = (text(":message-type", "exception"), text(":exception-type", "throttlingException"))
    service.says(frame(b'{"message":"Too many requests"}', headers), content_type=FRAMES)
    synchronize(gateway)
    answer = by_chat(gateway, alice, service.model, stream=True)
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "upstream_rate_limited")


@pytest.mark.parametrize("form", [str, lambda s: json.dumps(s).replace("/", "\\/")[1:-1]], ids=["bare", "escaped"])
@pytest.mark.parametrize("where", ["events", "error"])
def test_what_bedrock_says_of_the_key_nobody_reads(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, where: str, form: Callable[[str], str]
) -> None:
    service = Bedrock(simulated, f"{AWS_ID}:{AWS_SECRET}:{AWS_TOKEN}")
    told = f"{form(AWS_SECRET)} {form(AWS_TOKEN)}"
    if where == "events":
        recorded = (RECORDINGS / "anthropic_messages" / "text.sse").read_bytes()
        service.says(b"".join(framed(recorded.replace(b"lo, ", told.encode()))), content_type=FRAMES)
    else:
        error = '{"message":"max_tokens: TOLD"}'.replace("TOLD", told)
        service.says(error.encode(), status=400, header="x-amzn-ErrorType: ValidationException")
    synchronize(gateway)
    since = len(gateway.log.read_text())
    answer = by_chat(gateway, alice, service.model, stream=True)
    assert answer.status_code == (200 if where == "events" else 400)
    assert "[key]" in answer.text
    mine = {"model": service.model.slug}
    rows: list[Any] = [*Usage.objects.filter(**mine).values(), *Attempt.objects.filter(**mine).values()]
    for heard in (answer.text.replace("\\/", "/"), gateway.log.read_text()[since:], str(rows)):
        assert AWS_SECRET[10:30] not in heard and AWS_TOKEN[-40:] not in heard


# --- Vertex


def vertex(simulated: SimulatedProvider, endpoint: TokenEndpoint, publisher: str) -> Service:
    base = "/v1/projects/p-1/locations/us-east5"
    if publisher == "anthropic":
        fields = {"protocol": "anthropic_messages", "variant": "raw_predict"}
    else:
        base, fields = f"{base}/publishers/google", {"protocol": "google_gemini"}
    return Service(simulated, base, endpoint.key, auth_style="service-account", **fields)


def play(service: Service, stream: bool) -> None:
    suffix = "sse" if stream else "json"
    data = (RECORDINGS / service.provider.protocol / f"text.{suffix}").read_bytes()
    service.says(data, content_type="text/event-stream" if stream else "application/json")


@CLIENTS
@STREAMED
def test_anthropic_on_vertex(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, stream: bool, client: Client
) -> None:
    endpoint = TokenEndpoint(simulated)
    service = vertex(simulated, endpoint, "anthropic")
    play(service, stream)
    synchronize(gateway)
    assert said(client(gateway, alice, service.model, stream=stream)) == SAID
    assert billed(service.model) == (11, 9, "reported")
    verb = "streamRawPredict" if stream else "rawPredict"
    at = "/v1/projects/p-1/locations/us-east5/publishers/anthropic/models"
    assert service.asked["path"] == f"{at}/{service.name}:{verb}"
    assert service.asked["headers"]["authorization"] == "Bearer ya29.first-0123456789"
    assert service.body["anthropic_version"] == "vertex-2023-10-16" and "model" not in service.body


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_gemini_on_vertex(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, stream: bool) -> None:
    endpoint = TokenEndpoint(simulated)
    service = vertex(simulated, endpoint, "google")
    play(service, stream)
    synchronize(gateway)
    assert said(by_chat(gateway, alice, service.model, stream=stream)) == OSLO
    assert billed(service.model) == (7, 6, "reported")
    verb = "streamGenerateContent" if stream else "generateContent"
    at = "/v1/projects/p-1/locations/us-east5/publishers/google/models"
    assert service.asked["target"] == f"{at}/{service.name}:{verb}{'?alt=sse' if stream else ''}"
    assert service.asked["headers"]["authorization"] == "Bearer ya29.first-0123456789"
    play(service, stream=False)
    answer = generate(gateway, alice, service.model)
    assert answer.json()["candidates"][0]["content"]["parts"][0]["text"] == OSLO
    assert endpoint.asked == 1


def test_google_s_own_library_verifies_what_the_token_endpoint_was_sent(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    jwt: Any = pytest.importorskip("google.auth.jwt")
    endpoint = TokenEndpoint(simulated)
    service = vertex(simulated, endpoint, "google")
    play(service, stream=False)
    synchronize(gateway)
    assert by_chat(gateway, alice, service.model).status_code == 200
    asked = simulated.asked(endpoint.name)
    assert asked["headers"]["content-type"] == "application/x-www-form-urlencoded"
    form = parse_qs(asked["body"], strict_parsing=True)
    assert form["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
    public = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    claims = jwt.decode(form["assertion"][0], certs={"k1": public}, audience=endpoint.address)
    assert (claims["iss"], claims["scope"]) == (
        "meter@project.iam.gserviceaccount.com",
        "https://www.googleapis.com/auth/cloud-platform",
    )


def test_a_token_that_vertex_refuses_is_not_used_again(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    endpoint = TokenEndpoint(simulated)
    service = vertex(simulated, endpoint, "google")
    play(service, stream=False)
    synchronize(gateway)
    assert by_chat(gateway, alice, service.model).status_code == 200
    endpoint.gives("ya29.second-0123456789")
    error = {"error": {"code": 401, "message": "Refused: ya29.first-0123456789", "status": "UNAUTHENTICATED"}}
    service.says(json.dumps(error).encode(), status=401, content_type="application/json")
    since = len(gateway.log.read_text())
    answer = by_chat(gateway, alice, service.model)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_auth")
    assert "Refused: [key]" in gateway.log.read_text()[since:]
    assert "ya29.first" not in gateway.log.read_text()[since:]
    other = vertex(simulated, endpoint, "google")  # with the same key, and nothing of it rests
    play(other, stream=False)
    synchronize(gateway)
    assert said(by_chat(gateway, alice, other.model)) == OSLO
    assert endpoint.asked == 2
    assert other.asked["headers"]["authorization"] == "Bearer ya29.second-0123456789"


def test_without_a_token_nothing_is_dialled_and_the_operator_is_told(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    endpoint = TokenEndpoint(simulated)
    service = vertex(simulated, endpoint, "google")
    play(service, stream=False)
    refusal = {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
    option = simulated.script(endpoint.name, json.dumps(refusal).encode(), status=400, content_type="application/json")
    simulated.behave(endpoint.name, option)
    synchronize(gateway)
    since = len(gateway.log.read_text())
    answer = by_chat(gateway, alice, service.model)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_auth")
    assert service.dials == 0
    row = Usage.objects.get(model=service.model.slug)
    assert (row.basis, row.charge, row.provider_cost) == ("nothing", Decimal(0), Decimal(0))
    told = gateway.log.read_text()[since:]
    assert f"no token for meter@project.iam.gserviceaccount.com (key k1) from {endpoint.address}: status 400" in told
    assert "invalid_grant: Invalid JWT Signature." in told and "PRIVATE" not in told


def test_a_token_endpoint_that_may_not_be_dialled(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    endpoint = TokenEndpoint(simulated)
    endpoint.key = document(token_uri="http://169.254.169.254/token")
    service = vertex(simulated, endpoint, "google")
    play(service, stream=False)
    synchronize(gateway)
    answer = by_chat(gateway, alice, service.model)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_unreachable")
    assert Attempt.objects.get(model=service.model.slug).fault == "forbidden_address"
    assert service.dials == 0


# --- Azure


@STREAMED
def test_azure_s_deployments(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, stream: bool) -> None:
    service = Service(
        simulated,
        "/openai",
        "azure-key-0123456789",
        variant="deployments",
        auth_style="api-key",
        api_version="2024-10-21",
    )
    usage = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    choice = {"index": 0, "finish_reason": "stop"}
    if stream:
        filtered = {"choices": [], "prompt_filter_results": [{"prompt_index": 0}]}
        chunk = {"choices": [{**choice, "delta": {"content": "Hello"}}]}
        events = (json.dumps(one) for one in (filtered, chunk, {"choices": [], "usage": usage}))
        service.says("".join(f"data: {event}\n\n" for event in (*events, "[DONE]")).encode())
    else:
        whole = {"choices": [{**choice, "message": {"role": "assistant", "content": "Hello"}}], "usage": usage}
        service.says(json.dumps(whole).encode(), content_type="application/json")
    synchronize(gateway)
    assert said(by_chat(gateway, alice, service.model, stream=stream)) == "Hello"
    assert billed(service.model) == (7, 2, "reported")
    path = f"/openai/deployments/{service.name}/chat/completions"
    assert service.asked["target"] == f"{path}?api-version=2024-10-21"
    assert service.asked["headers"]["api-key"] == "azure-key-0123456789"
    assert "authorization" not in service.asked["headers"]
