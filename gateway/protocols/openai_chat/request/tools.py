"""What a client offers the model to call, and how the model is to choose: tools, functions, and the choice."""

from typing import Any

from gateway.protocols.openai_chat.request.checks import TYPE, check_cache_control, is_name, missing, wrong
from gateway.wire.errors import InvalidRequest

MAX_TOOLS = 128

_CHOICES = "none, auto, required, or an object"
_NAME_RULE = "1 to 64 letters, digits, underscores and dashes"


# A tool's further fields. A schema is the model's to read; its inside is not looked at.
_FIELDS: dict[str, tuple[type, str]] = {
    "description": (str, "a string"),
    "parameters": (dict, "an object: a JSON Schema"),
    "strict": (bool, "true or false"),
    "format": (dict, "an object"),
}


def tools(value: Any) -> tuple[set[str], bool]:
    """Check the tools; gives the names of functions and custom tools, and whether one has a cache breakpoint.

    Raises `InvalidRequest`.
    """
    if type(value) is not list:
        raise wrong("Parameter tools must be an array of objects.", "tools", TYPE)
    if len(value) > MAX_TOOLS:
        raise wrong(f"Parameter tools takes at most {MAX_TOOLS} tools. Send fewer.", "tools")
    names, cached = set(), False
    for at, tool in enumerate(value):
        kind = tool.get("type") if type(tool) is dict else None
        if kind != "function" and kind != "custom":
            raise _bad_tool(tool, f"tools[{at}]")
        body = tool.get(kind)
        name = body.get("name") if type(body) is dict else None
        if type(name) is not str or not is_name(name):
            raise _bad_name(body, name, f"tools[{at}].{kind}")
        names.add(name)
        for field, inner in body.items():
            known = _FIELDS.get(field)
            if known is not None and inner is not None and type(inner) is not known[0]:
                param = f"tools[{at}].{kind}.{field}"
                raise wrong(f"Parameter {param} must be {known[1]}.", param, TYPE)
        if len(tool) > 2 and tool.get("cache_control") is not None:
            check_cache_control(tool["cache_control"], f"tools[{at}].cache_control")
            cached = True
    return names, cached


def tool_choice(value: Any, names: set[str]) -> Any:
    """Check the choice among tools of these names. Gives it as the protocol has it: `allowed_tools` in its own object.

    Raises `InvalidRequest`, also for a tool that is not among them.
    """
    if type(value) is str:
        if value not in ("none", "auto", "required"):
            raise wrong(f"Parameter tool_choice must be {_CHOICES}.", "tool_choice")
        if value == "required" and not names:
            raise wrong("Parameter tool_choice can not be required without tools. Send tools too.", "tool_choice")
        return value
    if type(value) is not dict:
        raise wrong(f"Parameter tool_choice must be {_CHOICES}.", "tool_choice", TYPE)
    kind = value.get("type")
    if kind == "allowed_tools":
        return _allowed(value, names)
    if kind != "function" and kind != "custom":
        raise wrong("Parameter tool_choice.type must be function, custom or allowed_tools.", "tool_choice.type")
    _named(value, kind, names, "tool_choice")
    return value


def functions(value: Any) -> set[str]:
    """Check the older form of tools; gives their names. Raises `InvalidRequest`."""
    if type(value) is not list:
        raise wrong("Parameter functions must be an array of objects. Better: send tools.", "functions", TYPE)
    if len(value) > MAX_TOOLS:
        raise wrong(f"Parameter functions takes at most {MAX_TOOLS} functions. Send fewer.", "functions")
    names = set()
    for at, function in enumerate(value):
        name = function.get("name") if type(function) is dict else None
        if type(name) is not str or not is_name(name):
            raise _bad_name(function, name, f"functions[{at}]")
        names.add(name)
    return names


def function_call(value: Any, names: set[str]) -> None:
    """Check the older form of the choice: none, auto, or an object with a known name. Raises `InvalidRequest`."""
    if type(value) is str:
        if value not in ("none", "auto"):
            raise wrong("Parameter function_call must be none, auto, or an object with a name.", "function_call")
    elif type(value) is not dict:
        raise wrong("Parameter function_call must be none, auto, or an object with a name.", "function_call", TYPE)
    else:
        _known(value.get("name"), names, "function_call.name", "functions")


def _allowed(value: dict[str, Any], names: set[str]) -> dict[str, Any]:
    """Both forms: everything in an object of its own, as OpenAI has it, or beside `type`."""
    own = value.get("allowed_tools")
    path = "tool_choice" if own is None else "tool_choice.allowed_tools"
    allowed = value if own is None else own
    if type(allowed) is not dict:
        raise wrong(f"Parameter {path} must be an object with mode and tools.", path, TYPE)
    if allowed.get("mode") not in ("auto", "required"):
        raise wrong(f"Parameter {path}.mode must be auto or required.", f"{path}.mode")
    listed = allowed.get("tools")
    if type(listed) is not list or not listed:
        raise wrong(f"Parameter {path}.tools must be a non-empty array of tools.", f"{path}.tools")
    for at, tool in enumerate(listed):
        param = f"{path}.tools[{at}]"
        kind = tool.get("type") if type(tool) is dict else None
        if kind != "function" and kind != "custom":
            raise wrong(f"Parameter {param} must be an object of type function or custom.", param)
        _named(tool, kind, names, param)
    if own is not None:
        return value
    return {"type": "allowed_tools", "allowed_tools": {"mode": allowed["mode"], "tools": listed}}


def _named(value: dict[str, Any], kind: str, names: set[str], path: str) -> None:
    body = value.get(kind)
    name = body.get("name") if type(body) is dict else None
    _known(name, names, f"{path}.{kind}.name", "tools")


def _known(name: Any, names: set[str], param: str, where: str) -> None:
    if type(name) is not str:
        raise missing(param, f"the name of one of {where}")
    if name not in names:
        raise wrong(f"Parameter {param} names none of {where}. Send that tool too, or name another.", param)


def _bad_tool(tool: Any, path: str) -> InvalidRequest:
    if type(tool) is not dict:
        return wrong(f"Parameter {path} must be an object.", path, TYPE)
    if tool.get("type") is None:
        return missing(f"{path}.type", "function or custom")
    return wrong(f"Parameter {path}.type must be function or custom.", f"{path}.type")


def _bad_name(body: Any, name: Any, path: str) -> InvalidRequest:
    if body is None:
        return missing(path, "an object with a name")
    if type(body) is not dict:
        return wrong(f"Parameter {path} must be an object.", path, TYPE)
    if name is None:
        return missing(f"{path}.name", _NAME_RULE)
    return wrong(f"Parameter {path}.name must be {_NAME_RULE}.", f"{path}.name")
