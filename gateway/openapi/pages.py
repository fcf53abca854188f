"""The API's description: /openapi.json for machines, /docs for people.

The page is made of the document, loads nothing from elsewhere and runs no script. The gateway serves it itself, its
stylesheet too, since the console with its static files may run somewhere else.
"""

from functools import cache
from pathlib import Path
from typing import Any

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString

from gateway.door.answers import JSON, Answer
from gateway.door.view import ApiView
from gateway.openapi.document import document
from gateway.wire import strict_json

STYLESHEET = Path(__file__).parents[1] / "static" / "docs" / "docs.css"
HEADERS = {"Cache-Control": "public, max-age=300", "X-Content-Type-Options": "nosniff"}
CONTENT_SECURITY_POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


class Document(ApiView):
    """GET /openapi.json."""

    public = True

    async def get(self, request: HttpRequest) -> Answer:
        """The API's description, as OpenAPI 3.1."""
        return Answer(_document(), JSON, headers=HEADERS)


class Page(ApiView):
    """GET /docs."""

    public = True
    for_pages = False

    async def get(self, request: HttpRequest) -> Answer:
        """The same description, as a page for people."""
        headers = {**HEADERS, "Content-Security-Policy": CONTENT_SECURITY_POLICY}
        return Answer(_page(), b"text/html; charset=utf-8", headers=headers)


class Stylesheet(ApiView):
    """GET /docs/docs.css."""

    public = True
    for_pages = False

    async def get(self, request: HttpRequest) -> Answer:
        """The page's stylesheet."""
        return Answer(_stylesheet(), b"text/css; charset=utf-8", headers=HEADERS)


@cache
def _document() -> bytes:
    return strict_json.dumps(document())


@cache
def _stylesheet() -> bytes:
    return STYLESHEET.read_bytes()


@cache
def _page() -> bytes:
    """The page: operations by tag, those of one view that differ in nothing but the path together."""
    spec = document()
    sections: dict[str, dict[str, Any]] = {
        tag["name"]: {"name": tag["name"], "about": tag["description"], "operations": {}} for tag in spec["tags"]
    }
    for path, methods in spec["paths"].items():
        for method, operation in methods.items():
            known = sections[operation["tags"][0]]["operations"]
            same = (method, operation["summary"], str(operation["responses"]["200"]), operation.get("deprecated"))
            if same in known:
                known[same]["also"].append(path)
            else:
                known[same] = _shown(path, method, operation)
    for section in sections.values():
        section["operations"] = list(section["operations"].values())
    return render_to_string("docs.html", {"info": spec["info"], "sections": list(sections.values())}).encode()


def _shown(path: str, method: str, operation: dict[str, Any]) -> dict[str, Any]:
    fields: list[dict[str, Any]] = []
    for media in operation.get("requestBody", {}).get("content", {}).values():
        fields = _fields(media["schema"])
    answers = operation["responses"]["200"]["content"]
    return {
        "id": operation["operationId"],
        "method": method.upper(),
        "path": path,
        "also": [],
        "summary": operation["summary"],
        "description": [_prose(text) for text in operation["description"].split("\n\n")],
        "deprecated": operation.get("deprecated", False),
        "parameters": [
            {
                **parameter,
                "type": _kind(parameter["schema"]),
                "place": parameter["in"],
                "description": _prose(parameter["description"]),
            }
            for parameter in operation["parameters"]
        ],
        "fields": fields,
        "media": list(answers),
        "answer": [
            {"name": _name(one), "fields": _fields(one)}
            for schema in [answers[next(iter(answers))]["schema"]]
            for one in schema.get("anyOf", [schema])
            if "$ref" in one
        ],
        "errors": [
            {"status": status, "text": _prose(response["description"])}
            for status, response in operation["responses"].items()
            if status != "200"
        ],
        "sample": operation["x-codeSamples"][0]["source"],
    }


def _prose(text: str) -> SafeString:
    """A text as HTML; what stands between backticks is code."""
    shown = SafeString()
    for at, piece in enumerate(text.split("`")):
        shown += format_html("<code>{}</code>" if at % 2 else "{}", piece)
    return shown


def _name(schema: dict[str, Any]) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def _fields(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The fields of an object by reference, the required ones first."""
    if "$ref" not in schema:
        return []
    target = document()["components"]["schemas"][_name(schema)]
    required = target.get("required", [])
    rows = [
        {
            "name": name,
            "type": _kind(inner),
            "required": name in required,
            "deprecated": inner.get("deprecated", False),
            "text": _prose(inner.get("description", "")),
            "inner": _inner(inner),
        }
        for name, inner in target["properties"].items()
    ]
    return sorted(rows, key=lambda row: not row["required"])


def _inner(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The fields of an object within, when it is just one."""
    found = [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]
    if len(found) != 1 or "$ref" not in found[0]:
        return []
    return [{**row, "inner": []} for row in _fields(found[0])]


def _kind(schema: dict[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        return _name(schema)
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(one) for one in schema["anyOf"] if one.get("type") != "null"))
    if "enum" in schema:
        return " · ".join(str(word) for word in schema["enum"])
    kind = str(schema.get("type", "any"))
    if kind == "array":
        inner = _kind(schema.get("items", {}))
        return f"array of {inner}"
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and most is not None:
        return f"{kind}, {least} to {most}"
    if (longest := schema.get("maxLength")) is not None:
        return f"{kind}, at most {longest} characters"
    return kind
