"""Uploaded files for tests: keys and clients for them, and what a chat that names them says."""

from base64 import b64encode
from typing import Any

import openai

from gateway.files.store import parse_id
from gateway.models import StoredFile
from tests.stage.cast import Tenant, make_key
from tests.stage.product import Gateway

PDF = b"%PDF-1.7 \x00\xff\r\n--boundary\r\n" + bytes(range(256))
DAY = 24 * 3600
NO_FILE = {
    "message": "There is no such file.",
    "type": "invalid_request_error",
    "param": "file_id",
    "code": "file_not_found",
}


def files_key(tenant: Tenant, **fields: Any) -> str:
    """The secret of a key of the tenant for files and chats."""
    return make_key(tenant.project, **{"scopes": ["files", "inference"], **fields})[1]


def sdk(gateway: Gateway, secret: str) -> openai.OpenAI:
    """The official client; close it."""
    return openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=secret, max_retries=0)


def bearer(client: openai.OpenAI) -> dict[str, str]:
    """Headers with the client's key."""
    return {"Authorization": f"Bearer {client.api_key}"}


def upload(client: openai.OpenAI, content: bytes = PDF, name: str = "report.pdf", **fields: Any) -> Any:
    """A fresh file, as the client is told of it."""
    return client.files.create(file=(name, content), **{"purpose": "user_data", **fields})


def row(name: str) -> StoredFile:
    """The row behind a file's id."""
    id = parse_id(name)
    assert id is not None
    return StoredFile.objects.get(pk=id)


def naming(*ids: Any) -> list[dict[str, Any]]:
    """Messages that name files, after a text."""
    parts = [{"type": "file", "file": {"file_id": id}} for id in ids]
    return [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, *parts]}]


def data_url(media_type: str, content: bytes) -> str:
    """The content as a provider gets it."""
    return f"data:{media_type};base64,{b64encode(content).decode()}"
