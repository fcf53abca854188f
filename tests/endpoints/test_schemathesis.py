"""The OpenAPI document is true: requests made from it, at random, are answered by a running gateway as it says.

Of each operation in `make test` a fifth, and all in `make fuzz`. Schemathesis is imported where it is used: it takes a
second, which a process that only collects tests need not spend.
"""

import os
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest
import requests  # noqa: TID251 - what schemathesis sends with
from hypothesis import HealthCheck, Phase, settings

from gateway.openapi.document import document
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import make_key, make_tenant
from tests.stage.product import Gateway, synchronize, until
from tests.stage.shelf import make_model, make_provider, make_tariff

if TYPE_CHECKING:
    import schemathesis

PROVIDERS_FAULT = (502, 503, 504, 529)  # Documented: the gateway's word for a provider that failed.

# The key is the test's own: an invented one beside it would end every call with 401.
CONFIG = {"phases": {"coverage": {"unexpected-methods": []}}, "generation": {"with-security-parameters": False}}
# What lies under /api/v1 is the same list of routes as under /v1.
PATHS = {path: item for path, item in document()["paths"].items() if not path.startswith("/api/v1/")}
METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
OPERATIONS = [(path, method) for path, item in PATHS.items() for method in METHODS if method in item]

WHOLE = os.environ.get("DOCUMENTED") == "whole"
EACH = 1 if WHOLE else 5  # of the cases that cover one parameter

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


Known = tuple[str, str, str]


@pytest.fixture(scope="module")
def known(gateway: Gateway, simulated: SimulatedProvider) -> Known:
    """A key with every scope that the document names, a model that it may chat with, and one for vectors."""
    tariff = make_tariff(input="1", output="2", above={200_000: {"input": "2"}})  # a price with conditions
    provider = make_provider(simulated.base_url)
    model = make_model(provider, tariff=tariff, supported_parameters=["prompt", "suffix"])
    vectors = make_model(provider, "sim-vectors", tariff, output_modalities=["embeddings"])
    _, secret = make_key(make_tenant("alice").project, scopes=["inference", "files", "management"])
    synchronize(gateway)
    return secret, model.slug, vectors.slug


def checks() -> list[Any]:
    """What is compared of an answer with what the document says of it."""
    from schemathesis.specs.openapi import checks

    return [
        checks.content_type_conformance,
        checks.response_headers_conformance,
        checks.response_schema_conformance,
        checks.status_code_conformance,
    ]


def schema(path: str, method: str) -> Any:
    """What the document says of one operation."""
    import schemathesis
    from schemathesis.config import SchemathesisConfig

    item = {name: part for name, part in PATHS[path].items() if name == method or name not in METHODS}
    told = deepcopy({**document(), "paths": {path: item}})
    return schemathesis.openapi.from_dict(told, config=SchemathesisConfig.from_dict(CONFIG))


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    """Connections that are kept, and nothing looked up in the environment for each request."""
    with requests.Session() as session:
        session.trust_env = False
        yield session


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_the_gateway_answers_as_documented(
    path: str, method: str, gateway: Gateway, known: Known, session: requests.Session
) -> None:
    from schemathesis.generation.feedback import FeedbackSources
    from schemathesis.generation.meta import CoveragePhaseData
    from schemathesis.pytest._test_builder import build_operation_test

    secret, model, vectors = known
    covered = Counter[tuple[Any, ...]]()

    def taken(case: "schemathesis.Case[Any]") -> bool:
        """The first case of each parameter and kind is, and then each fifth."""
        if not (case.meta and isinstance(data := case.meta.phase.data, CoveragePhaseData)):
            return True
        covered[covers := (data.scenario, data.parameter_location, data.parameter)] += 1
        return covered[covers] % EACH == 1 % EACH

    @settings(
        max_examples=15 if WHOLE else 3,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def answers(case: "schemathesis.Case[Any]") -> None:
        if not taken(case):
            return
        if isinstance(case.body, dict) and isinstance(case.body.get("model"), str):
            # Else nothing would ever get as far as a provider.
            case.body["model"] = vectors if case.path.endswith("/embeddings") else model
        response = case.call(base_url=gateway.url, session=session, headers={"Authorization": f"Bearer {secret}"})
        assert response.status_code < 500 or response.status_code in PROVIDERS_FAULT
        case.validate_response(response, checks=checks())

    # What `schema.parametrize()` does, but here: there each process that collects tests makes thousands of requests.
    asked = schema(path, method)
    operation = asked[path][method]
    build_operation_test(
        config=asked.config, operation=operation, test_func=answers, given_kwargs={}, feedback=FeedbackSources()
    )()


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_there_is_told_as_documented(stream: bool, gateway: Gateway, known: Known) -> None:
    """Random names find nothing, so these are called with names of what is there."""
    secret, model, vectors = known
    bearer = {"Authorization": f"Bearer {secret}"}
    form: dict[str, Any] = {"file": ("a.txt", b"hi"), "purpose": (None, "user_data")}
    file = gateway.client.post("/v1/files", files=form, headers=bearer).json()["id"]

    def call(path: str, method: str = "GET", **parts: Any) -> Any:
        case = schema(path, method.lower())[path][method].Case(**parts)
        response = case.call(base_url=gateway.url, headers=bearer)
        case.validate_response(response, checks=checks())
        return response

    messages = [{"role": "user", "content": "hi"}]
    body = {"model": model, "messages": messages, "stream": stream, "tools": [TOOL], "metadata": {"a": "b"}}
    answer = call("/v1/chat/completions", "POST", body=body, media_type="application/json")
    assert answer.status_code == 200
    id = answer.headers["x-generation-id"][0]
    for path, asked in (
        ("completions", {"model": model, "prompt": ["a", "b"], "n": 2, "stream": stream}),
        ("embeddings", {"model": vectors, "input": ["a", "b"], "encoding_format": "base64" if stream else "float"}),
    ):
        assert call(f"/v1/{path}", "POST", body=asked, media_type="application/json").status_code == 200
    for path in ("/v1/generation", "/v1/management/generation"):
        until(lambda path=path: call(path, query={"id": id}).status_code == 200)
    assert call("/v1/management/usage", query={"group_by": "day,model"}).json()["data"]["entries"]
    for path in (path for path in document()["paths"] if path.endswith("models/{name}") and "api/v1" not in path):
        assert call(path, path_parameters={"name": model}).status_code == 200
    for path, method in (("", "GET"), ("/content", "GET"), ("", "DELETE")):
        assert call(f"/v1/files/{{name}}{path}", method, path_parameters={"name": file}).status_code == 200
