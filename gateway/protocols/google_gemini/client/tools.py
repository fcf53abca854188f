"""A client's `tools` and `toolConfig` as those of a chat."""

from typing import Any

from gateway.protocols import json_schema
from gateway.protocols.google_gemini.client.fields import listed, named, text, word
from gateway.protocols.google_gemini.names import Names
from gateway.protocols.openai_chat.request.checks import TYPE, missing, wrong

_MODES = {"AUTO": "auto", "ANY": "required", "NONE": "none", "VALIDATED": "auto", "MODE_UNSPECIFIED": "auto"}
_DECLARED = frozenset({"name", "description", "parameters", "parametersJsonSchema", "response", "responseJsonSchema"})


class Tools:
    """What a client offers the model to call.

    - `fields`: of the chat body
    - `only_native`: paths of the tools that run at the provider and of what else the chat form has no place for
    """

    def __init__(self, names: Names) -> None:
        self.fields: dict[str, Any] = {}
        self.only_native: list[str] = []
        self._names = names

    def read(self, tools: Any, config: Any) -> None:
        """`tools` and `toolConfig`; None: not there. Raises `InvalidRequest`."""
        declared: list[dict[str, Any]] = []
        for at, tool in enumerate(listed([] if tools is None else tools, "tools")):
            path = f"tools[{at}]"
            for name, inner in named(tool, path).items():
                if name == "functionDeclarations":
                    for number, one in enumerate(listed(inner, f"{path}.{name}")):
                        declared.append(self._declared(one, f"{path}.{name}[{number}]"))
                elif name == "googleSearch" and not inner:
                    self.fields["web_search_options"] = {}
                else:
                    self.only_native.append(f"{path}.{name}")
        if declared:
            self.fields["tools"] = declared
        if config is not None:
            self._configure(named(config, "toolConfig"), bool(declared))

    def _declared(self, declaration: Any, path: str) -> dict[str, Any]:
        fields = named(declaration, path)
        name = text(fields.get("name", ""), f"{path}.name")
        if not name:
            raise missing(f"{path}.name", "how the model calls it")
        self.only_native += [f"{path}.{field}" for field in fields if field not in _DECLARED]
        function: dict[str, Any] = {"name": self._names.there(name)}
        if "description" in fields:
            function["description"] = text(fields["description"], f"{path}.description")
        given = [field for field in ("parametersJsonSchema", "parameters") if field in fields]
        if len(given) > 1:
            raise wrong(f"Parameter {path} has parameters and parametersJsonSchema. Send one.", f"{path}.parameters")
        for field in given:
            function["parameters"] = schema(fields[field], f"{path}.{field}", field == "parameters")
        return {"type": "function", "function": function}

    def _configure(self, config: dict[str, Any], has_tools: bool) -> None:
        path = "toolConfig.functionCallingConfig"
        calling = named(config.pop("functionCallingConfig", {}), path)
        self.only_native += [f"toolConfig.{name}" for name, value in config.items() if value]
        if calling.pop("streamFunctionCallArguments", False):
            self.only_native.append(f"{path}.streamFunctionCallArguments")
        mode = word(calling.get("mode", "AUTO"), f"{path}.mode")
        choice = _MODES.get(mode)
        if choice is None:
            raise wrong(f"Parameter {path}.mode must be one of {', '.join(_MODES)}.", f"{path}.mode")
        allowed = calling.get("allowedFunctionNames", [])
        if type(allowed) is not list or not all(type(name) is str for name in allowed):
            param = f"{path}.allowedFunctionNames"
            raise wrong(f"Parameter {param} must be an array of names.", param, TYPE)
        if choice == "none" or not has_tools:
            if has_tools:
                self.fields["tool_choice"] = choice
        elif not allowed:
            if choice != "auto":
                self.fields["tool_choice"] = choice
        else:
            named_tools = [{"type": "function", "function": {"name": self._names.there(name)}} for name in allowed]
            self.fields["tool_choice"] = (
                named_tools[0]
                if choice == "required" and len(named_tools) == 1
                else {"type": "allowed_tools", "allowed_tools": {"mode": choice, "tools": named_tools}}
            )


def schema(value: Any, path: str, openapi: bool) -> dict[str, Any]:
    """A schema of the client's as a JSON Schema. Raises `InvalidRequest`."""
    if type(value) is not dict:
        raise wrong(f"Parameter {path} must be an object: a schema.", path, TYPE)
    if not openapi:
        return value
    try:
        made: dict[str, Any] = json_schema.from_openapi(value)
    except json_schema.BadSchema as error:
        raise wrong(f"Parameter {path} {error}.", path) from None
    return made
