"""Embeddings of upstreams of the Gemini protocol: `batchEmbedContents`, whatever one or many clients ask for.

Many of its models count no tokens; then who bills them estimates.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from gateway.protocols.google_gemini import sides
from gateway.protocols.openai_chat.request.checks import UNSUPPORTED, wrong
from gateway.protocols.openai_chat.request.request import ChatRequest
from gateway.protocols.sides import Asking, Sent, Vectors

VECTORS = Vectors("embeddings", "values")


class Upstream(sides.Upstream):
    """Upstreams of generateContent, asked for embeddings. `encoding_format` is the gateway's to do."""

    def sent(self, asked: ChatRequest, asking: Asking) -> Sent:
        """A batch of the texts. Raises `InvalidRequest` for tokens."""
        assert asked.spoken is not None
        body, model = asked.spoken.body, asking.model.removeprefix("models/")
        path = f"/models/{quote(model, safe='@.')}:batchEmbedContents"
        ignored = tuple(name for name in asked.unknown if name not in asking.fit.withheld)
        return Sent(path, (), asked.encoded(batch(body, model)), ignored=ignored, vectors=VECTORS)


def batch(asked: Mapping[str, Any], model: str) -> dict[str, Any]:
    """What a provider is sent for a body of OpenAI's form. Raises `InvalidRequest` for tokens instead of texts."""
    texts = asked["input"] if type(asked["input"]) is list else [asked["input"]]
    if type(texts[0]) is not str:
        raise wrong("Parameter input must be a string or an array of strings for this model.", "input", UNSUPPORTED)
    more = {"outputDimensionality": asked["dimensions"]} if "dimensions" in asked else {}
    requests = [{"model": f"models/{model}", "content": {"parts": [{"text": text}]}, **more} for text in texts]
    return {"requests": requests}
