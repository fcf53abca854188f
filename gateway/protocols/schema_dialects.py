"""Which JSON Schema each side takes, a row each: from its vendor's page on structured output or function calling."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SchemaDialect:
    """What one side takes.

    - `keywords`: those it knows; others are put otherwise or told
    - `formats`: values of `format` that it knows; None: any
    - `types`: its word for a type, where that is another one
    - `nullable`: null is told by `nullable` and never by a type
    - `refs`: what refers to itself may stay a reference into `$defs`
    - `closed`: each object must say that it has no further properties
    - `requires_all`: each property must be required; one that was not may be null instead
    - `text_enums`: an enumeration holds strings alone
    - `needs_items`: a list must say what is in it
    """

    keywords: frozenset[str]
    formats: frozenset[str] | None = None
    types: Mapping[str, str] = field(default_factory=dict)
    nullable: bool = False
    refs: bool = True
    closed: bool = False
    requires_all: bool = False
    text_enums: bool = False
    needs_items: bool = False


_CORE = frozenset({"type", "description", "enum", "properties", "required", "items", "anyOf"})
_BOUNDS = frozenset({"minimum", "maximum", "minItems", "maxItems"})
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"})
_CAPITALS = {name: name.upper() for name in ("string", "number", "integer", "boolean", "array", "object")}

# Google's `parametersJsonSchema` and `responseJsonSchema`.
GEMINI = SchemaDialect(
    _CORE | _BOUNDS | {"title", "format", "prefixItems", "additionalProperties", "propertyOrdering"},
)
# Google's `parameters` and `responseSchema`: a piece of OpenAPI 3.0, for models and servers that know no other.
GEMINI_OPENAPI = SchemaDialect(
    _CORE
    | _BOUNDS
    | {"title", "format", "nullable", "minLength", "maxLength", "minProperties", "maxProperties", "pattern"}
    | {"default", "propertyOrdering"},
    formats=frozenset({"float", "double", "int32", "int64", "date-time", "enum"}),
    types=_CAPITALS,
    nullable=True,
    refs=False,
    text_enums=True,
    needs_items=True,
)
# OpenAI's, where `strict` is true.
OPENAI_STRICT = SchemaDialect(
    _CORE
    | _BOUNDS
    | {"title", "const", "format", "pattern", "multipleOf", "exclusiveMinimum", "exclusiveMaximum"}
    | {"additionalProperties"},
    formats=_FORMATS - {"uri"},
    closed=True,
    requires_all=True,
    needs_items=True,
)
# Anthropic's output formats and strict tools; other tools of its take any JSON Schema of an object.
ANTHROPIC_STRICT = SchemaDialect(
    _CORE | {"title", "const", "format", "default", "additionalProperties"},
    formats=_FORMATS,
    refs=False,
    closed=True,
)
