"""JSON Schemas put into what one side takes: each side refuses keywords that another one sends.

Tools and structured output carry a schema of the client's. A provider that does not know a keyword of it refuses the
whole request, so a keyword is put in another way that it knows, or else told in words: its name and value go to the
end of the description, where the model reads them. What is referred to is put in place of the reference, since few
take one beside other keywords; what refers to itself keeps it where references are known, and ends in an open object
where not.

What a side takes is a row of `schema_dialects`.
"""

import re
from collections.abc import Mapping
from math import floor
from typing import Any

from gateway.protocols.schema_dialects import SchemaDialect
from gateway.wire import strict_json

# What the schemas of one request may come to, since references to references multiply. 10,000 take 170 ms.
MAX_SCHEMAS = 10_000
MAX_BYTES = 4 << 20
MAX_LEVELS = 200

Schema = dict[str, Any]
NO_ARGUMENTS: Schema = {"type": "object", "properties": {}}

_UNIONS = ("anyOf", "oneOf", "allOf")
_VALUES = frozenset({"enum", "const", "default", "examples", "required"})  # what they hold is no schema


class BadSchema(ValueError):
    """A schema that cannot be put into words of another side. The message may be shown; it begins in lower case."""


_odd = re.compile(r"[^\w.-]").sub
_NOTES = frozenset({"$schema", "$id", "$anchor", "$comment", "$vocabulary", "$dynamicAnchor"})
_NOTES |= frozenset({"$defs", "definitions", "nullable", "discriminator", "xml", "externalDocs"})


class Budget:
    """What is left for the schemas of one request: of `MAX_SCHEMAS`, and of `MAX_BYTES` for what is referred to."""

    __slots__ = ("_bytes", "_schemas")

    def __init__(self) -> None:
        self._schemas, self._bytes = MAX_SCHEMAS, MAX_BYTES

    def spend(self, schemas: int = 0, size: int = 0) -> None:
        """Raises `BadSchema` when there is not so much left."""
        self._schemas -= schemas
        self._bytes -= size
        if self._schemas < 0:
            raise BadSchema(f"comes to more than {MAX_SCHEMAS} schemas with its references. Send a smaller one")
        if self._bytes < 0:
            raise BadSchema(f"comes to more than {MAX_BYTES} bytes with its references. Send a smaller one")


def adapt(schema: Mapping[str, Any], dialect: SchemaDialect, budget: Budget | None = None) -> Schema:
    """The schema as `dialect` takes it; the client's own is not changed. Raises `BadSchema`.

    Refused are references that lead nowhere or elsewhere, and what comes to more than `MAX_SCHEMAS`, `MAX_BYTES` or
    `MAX_LEVELS` with what is referred to. `budget` is what the request has left, if it has more schemas than one.
    """
    return _Adapter(schema, dialect, budget or Budget()).whole()


def object_schema(schema: Any) -> Schema:
    """A tool's parameters where the schema of an object is demanded, without a union at its top; none, or an empty one,
    is that of no arguments. One that is such a schema is the same object.

    A union becomes one object that allows what its parts allow; how they belong together is told in words.
    """
    if not schema:
        return NO_ARGUMENTS
    if schema.get("type") == "object" and not any(union in schema for union in _UNIONS):
        return schema if "properties" in schema else {**schema, "properties": {}}
    return _merged(schema)


def with_items(schema: Any) -> Any:
    """The schema, with every list in it saying what it holds, if that is anything: OpenAI refuses one that does not.
    Where all do it is the same object.
    """
    left = [schema]
    while left:
        node = left.pop()
        if type(node) is dict:
            if _lacks_items(node):
                return _with_items(schema)
            left += [value for value in node.values() if type(value) is dict or type(value) is list]
        else:
            left += node if type(node) is list else ()
    return schema


def _lacks_items(node: Schema) -> bool:
    kind = node.get("type")
    return (kind == "array" or (type(kind) is list and "array" in kind)) and "items" not in node


def _with_items(schema: Any) -> Any:
    if type(schema) is list:
        return [*map(_with_items, schema)]
    if type(schema) is not dict:
        return schema
    made: Schema = {}
    for name, value in schema.items():
        if name in _MAPS and type(value) is dict:
            made[name] = {key: _with_items(inner) for key, inner in value.items()}
        else:
            made[name] = value if name in _VALUES else _with_items(value)
    return made | {"items": {}} if _lacks_items(schema) else made


def _merged(schema: Schema) -> Schema:
    unions = {name: schema[name] for name in _UNIONS if type(schema.get(name)) is list}
    made: Schema = {name: value for name, value in schema.items() if name not in _UNIONS}
    properties, needed = members(made), required_names(made)
    for name, parts in unions.items():
        for part in parts:
            properties = {**members(part), **properties}
        needs = [required_names(part) for part in parts]
        needed |= (set.union if name == "allOf" else set.intersection)(*needs) if needs else set()
    made |= {"type": "object", "properties": properties}
    if needed:
        made["required"] = sorted(needed)
    if unions:
        words = f"It must also match this JSON Schema: {strict_json.dumps(unions).decode()}"
        said = made.get("description")
        made["description"] = f"{said}\n\n{words}" if said and type(said) is str else words
    return made


def members(schema: Any) -> Schema:
    """The properties of an object."""
    members = schema.get("properties") if type(schema) is dict else None
    return members if type(members) is dict else {}


def required_names(schema: Any) -> set[str]:
    """The names of those that it must have."""
    names = schema.get("required") if type(schema) is dict else None
    return {name for name in names if type(name) is str} if type(names) is list else set()


def takes_nothing(schema: Mapping[str, Any] | None) -> bool:
    """Whether a tool's parameters are none: one side refuses an object without properties."""
    if not schema:
        return True
    says_more = schema.keys() & {"anyOf", "oneOf", "allOf", "$ref", "patternProperties"}
    return not says_more and not schema.get("properties") and not schema.get("additionalProperties")


# --- from OpenAPI ---

_KEYWORDS = (
    *("anyOf", "oneOf", "allOf", "prefixItems", "minItems", "maxItems", "minLength", "maxLength", "minProperties"),
    *("maxProperties", "additionalProperties", "propertyOrdering"),
)
_CAMEL = {re.sub("[A-Z]", lambda match: f"_{match[0].lower()}", name): name for name in _KEYWORDS}
_CAMEL |= {"defs": "$defs", "ref": "$ref"}
_COUNTS = frozenset({"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"})
_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_MAPS = frozenset({"properties", "$defs", "definitions", "patternProperties"})
_ONES = frozenset({"items", "additionalProperties", "not"})


def from_openapi(schema: Any, level: int = 0) -> Any:
    """A schema of Google's OpenAPI kind as a JSON Schema: types in small letters, null as a type, counts as numbers.

    What is JSON Schema already stays as it is. Raises `BadSchema` past `MAX_LEVELS`.
    """
    if type(schema) is not dict:
        return schema
    if level > MAX_LEVELS:
        raise BadSchema(f"nests deeper than {MAX_LEVELS} levels")
    made: Schema = {}
    for name, value in schema.items():
        name = _CAMEL.get(name, name)
        if name in _LISTS and type(value) is list:
            value = [from_openapi(inner, level + 1) for inner in value]
        elif name in _MAPS and type(value) is dict:
            value = {key: from_openapi(inner, level + 1) for key, inner in value.items()}
        elif name in _ONES:
            value = from_openapi(value, level + 1)
        elif name in _COUNTS and type(value) is str and value.isascii() and value.isdigit() and len(value) < 19:
            value = int(value)  # protobuf writes 64 bits as text
        made[name] = value
    if type(kind := made.get("type")) is str:
        made["type"] = kind.lower()
        if kind == "TYPE_UNSPECIFIED":
            del made["type"]
    if made.get("format") == "enum":
        del made["format"]
    if made.pop("nullable", None) is True:
        _allow_null(made)
    if "example" in made:
        made["examples"] = [made.pop("example")]
    order = made.pop("propertyOrdering", None)
    if type(order) is list and type(properties := made.get("properties")) is dict:
        first = {name: properties[name] for name in order if type(name) is str and name in properties}
        made["properties"] = first | properties
    return made


def _allow_null(made: Schema) -> None:
    """Let a schema's value be null too."""
    kind = made.get("type")
    if type(kind) is str and kind != "null":
        made["type"] = [kind, "null"]
    elif type(kind) is list and "null" not in kind:
        made["type"] = [*kind, "null"]
    elif kind is None and type(made.get("anyOf")) is list:
        if {"type": "null"} not in made["anyOf"]:
            made["anyOf"] = [*made["anyOf"], {"type": "null"}]
    elif "$ref" in made:
        ref = dict(made)
        made.clear()
        made["anyOf"] = [ref, {"type": "null"}]
    if type(made.get("enum")) is list and None not in made["enum"]:
        made["enum"] = [*made["enum"], None]


# --- to a dialect ---


class _Adapter:
    """Adapts one schema. `_used` are the references that stay, by their place, with the names that they have then."""

    def __init__(self, root: Mapping[str, Any], dialect: SchemaDialect, budget: Budget) -> None:
        self._root = root
        self._dialect = dialect
        self._budget = budget
        self._level = 0
        self._sizes: dict[str, int] = {}  # Of what is referred to, by its place.
        self._used: dict[str, str] = {}

    def whole(self) -> Schema:
        made = self._schema(self._root, ())
        defs: Schema = {}
        while todo := [place for place, name in self._used.items() if name not in defs]:
            for place in todo:
                defs[self._used[place]] = self._schema(self._at(place), (place,))
        return made | {"$defs": defs} if defs else made

    def _schema(self, node: Any, inside: tuple[str, ...]) -> Schema:
        """`inside` are the references that led here."""
        self._budget.spend(1)
        if type(node) is not dict:
            return {}  # true: anything
        if self._level > MAX_LEVELS:
            raise BadSchema(f"nests deeper than {MAX_LEVELS} levels with its references")
        self._level += 1
        try:
            if type(place := node.get("$ref")) is str:
                rest = {name: value for name, value in node.items() if name != "$ref"}
                if place in inside:
                    return self._recursive(place, rest)
                return self._schema(_all([self._at(place), rest]), (*inside, place))
            if type(members := node.get("allOf")) is list:
                self._budget.spend(len(members))
                rest = {name: value for name, value in node.items() if name != "allOf"}
                merged, inside = self._resolved(members, inside)
                return self._schema(_all([*merged, rest]), inside)
            return self._plain(node, inside)
        finally:
            self._level -= 1

    def _resolved(self, members: list[Any], inside: tuple[str, ...]) -> tuple[list[Schema], tuple[str, ...]]:
        """The members of an `allOf`, themselves instead of references; what leads back to itself says nothing new."""
        made = []
        for node in members:
            while type(node) is dict and type(place := node.get("$ref")) is str:
                rest = {name: value for name, value in node.items() if name != "$ref"}
                node = rest if place in inside else _all([self._at(place), rest])
                inside = (*inside, place)
            if type(node) is dict:
                made.append(node)
        return made, inside

    def _at(self, place: str) -> Schema:
        """What a reference points to, in the same schema."""
        node: Any = self._root
        path = place.removeprefix("#").removeprefix("/")
        if not place.startswith("#"):
            raise BadSchema(f"refers to {place[:64]!r}, which is not inside it. Put it into $defs")
        for step in path.split("/") if path else ():
            node = node.get(step.replace("~1", "/").replace("~0", "~")) if type(node) is dict else None
        if type(node) is not dict:
            raise BadSchema(f"refers to {place[:64]!r}, which is not there")
        if place not in self._sizes:
            self._sizes[place] = len(strict_json.dumps(node))
        self._budget.spend(size=self._sizes[place])
        return node

    def _recursive(self, place: str, rest: Schema) -> Schema:
        name = _odd("_", place.rpartition("/")[2]).strip("_") or "root"
        if not self._dialect.refs:
            return {"type": self._type("object"), "description": f"Another {name}, of the same form."}
        if place not in self._used:
            while name in self._used.values():
                name += "_"
            self._used[place] = name
        ref: Schema = {"$ref": f"#/$defs/{self._used[place]}"}
        told = rest.get("description")
        return {"anyOf": [ref], "description": told} if told else ref

    def _plain(self, node: Schema, inside: tuple[str, ...]) -> Schema:
        knows = self._dialect.keywords
        told: Schema = {}
        node = self._renamed(node)
        made: Schema = {}
        for name, value in node.items():
            if name == "properties" and type(value) is dict:
                made[name] = {key: self._schema(inner, inside) for key, inner in value.items()}
            elif name in ("anyOf", "prefixItems") and name in knows and type(value) is list:
                made[name] = [self._schema(inner, inside) for inner in value]
            elif name == "items" and type(value) is dict:
                made[name] = self._schema(value, inside)
            elif name == "additionalProperties" and name in knows:
                made[name] = self._schema(value, inside) if type(value) is dict else value
            elif name == "format" and name in knows and self._dialect.formats is not None:
                (made if value in self._dialect.formats else told)[name] = value
            elif name in knows:
                made[name] = value
            elif name not in _NOTES and not (name == "additionalProperties" and type(value) is bool):
                told[name] = value
        self._typed(made, told)
        self._shaped(made)
        if told:
            words = "; ".join(f"{name}: {strict_json.dumps(value).decode()}" for name, value in told.items())
            said = made.get("description")
            made["description"] = f"{said} ({words})" if type(said) is str and said else words
        return made

    def _renamed(self, node: Schema) -> Schema:
        """The same in other keywords, where the dialect has them."""
        knows, made = self._dialect.keywords, dict(node)
        if "oneOf" in made and "oneOf" not in knows:
            made["anyOf"] = [*(made.get("anyOf") or ()), *(_list(made.pop("oneOf")))]
        if self._dialect.nullable and type(options := made.get("anyOf")) is list:
            made["anyOf"] = [option for option in options if option != {"type": "null"}]
            if len(made["anyOf"]) < len(options):
                made["nullable"] = True
        elif not self._dialect.nullable and made.pop("nullable", None) is True:
            _allow_null(made)
        if "const" in made and "const" not in knows:
            made["enum"] = [made.pop("const")]
        if type(made.get("items")) is list:  # a tuple, as before draft 2020-12
            made["prefixItems"] = made.pop("items")
        for name, bound, step in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
            limit: Any = made.get(name)
            if name in knows or type(limit) not in (int, float) or bound not in knows or bound in made:
                continue
            if made.get("type") == "integer":
                del made[name]
                made[bound] = floor(limit) + 1 if step > 0 else -(floor(-limit) + 1)
            else:
                made[bound] = limit  # the word itself is told
        return made

    def _typed(self, made: Schema, told: Schema) -> None:
        """Types, null and enumerations as the dialect has them."""
        kind, dialect = made.get("type"), self._dialect
        null = False
        if dialect.nullable:
            if type(kind) is list:
                null = "null" in kind
                kinds = [inner for inner in kind if inner != "null"]
                made["type"] = kind = kinds[0] if kinds else "string"
                if len(kinds) > 1 and "anyOf" not in made:
                    del made["type"]
                    made["anyOf"] = [{"type": self._type(inner)} for inner in kinds]
                    kind = None
            elif kind == "null":
                null, made["type"], kind = True, "string", "string"
            if type(options := made.get("anyOf")) is list and len(options) < 2:
                del made["anyOf"]
                for option in options:
                    made |= {name: value for name, value in option.items() if name not in made}
                    kind = None  # it is in the dialect's words already
        if type(enum := made.get("enum")) is list and dialect.text_enums:
            null = null or None in enum
            made["enum"] = enum = [value for value in enum if value is not None]
            if all(type(value) is str for value in enum):
                made.setdefault("type", self._type("string"))
            else:
                told["enum"] = made.pop("enum")
        if type(kind) is str and "type" in made:
            made["type"] = self._type(kind)
        if null:
            made["nullable"] = True

    def _shaped(self, made: Schema) -> None:
        """What the dialect demands of objects and lists."""
        dialect = self._dialect
        if dialect.needs_items and made.get("type") == self._type("array") and "items" not in made:
            made["items"] = {"type": self._type("string")} if dialect.nullable else {}
        kind, properties = made.get("type"), made.get("properties")
        if dialect.closed and (kind == "object" or (type(kind) is list and "object" in kind)):
            made["additionalProperties"] = False
            made.setdefault("properties", {})
        if dialect.requires_all and type(properties) is dict:
            required = {name for name in _list(made.get("required")) if type(name) is str}
            for name, inner in properties.items():
                if name not in required:
                    _allow_null(inner)
            made["required"] = list(properties)

    def _type(self, name: str) -> str:
        return self._dialect.types.get(name, name)


def _all(schemas: list[Schema]) -> Schema:
    """What all of them say: the properties and required of each, else the last one's word."""
    made: Schema = {}
    for schema in schemas:
        made.update(schema)
    for name in ("properties", "$defs"):
        given = [schema[name] for schema in schemas if type(schema.get(name)) is dict]
        if len(given) > 1:
            made[name] = {key: value for one in given for key, value in one.items()}
    for name in ("required", "allOf"):
        lists = [schema[name] for schema in schemas if type(schema.get(name)) is list]
        if len(lists) > 1:
            made[name] = [value for one in lists for value in one]
    if type(required := made.get("required")) is list:
        made["required"] = list(dict.fromkeys(name for name in required if type(name) is str))
    return made


def _list(value: Any) -> list[Any]:
    return value if type(value) is list else []
