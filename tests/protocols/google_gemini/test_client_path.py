"""Paths as Google's SDKs make them."""

import pytest

from gateway.protocols.google_gemini.client_path import read_path


@pytest.mark.parametrize(("path", "method", "models"), [
    ("/v1beta/models/g-1:generateContent", "generateContent", ("g-1",)),
    ("v1/models/acme/m-1:streamGenerateContent", "streamGenerateContent", ("acme/m-1",)),
    ("/v1beta/models/acme%2Fm-1:countTokens", "countTokens", ("acme/m-1",)),
    ("/v1beta/models/acme/m-1:provider:generateContent", "generateContent", ("acme/m-1:provider",)),
    ("/v1beta1/publishers/google/models/g-1:generateContent", "generateContent", ("google/g-1", "g-1")),
    ("/v1/publishers/acme/models/m-1:batchEmbedContents", "batchEmbedContents", ("acme/m-1", "m-1")),
    ("/v1/projects/p/locations/l/publishers/acme/models/m:embedContent", "embedContent", ("acme/m", "m")),
])  # fmt: skip
def test_what_is_called(path: str, method: str, models: tuple[str, ...]) -> None:
    assert read_path(path) == (method, models)


@pytest.mark.parametrize("path", [
    "/v1beta/models/g-1", "/v1beta/models/:generateContent", "/v1beta/models/g-1:predict", "/v1beta/files",
    "/v1beta/cachedContents/x:generateContent", "/v1/chat/completions", "",
])  # fmt: skip
def test_what_is_not_ours(path: str) -> None:
    assert read_path(path) is None
