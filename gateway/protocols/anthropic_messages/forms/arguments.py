"""What a tool is given: JSON in text in the chat form, an object in this protocol.

A model's words need be no JSON, and nobody mends them: text that is no object goes as the one member `RAW` of an
object, and comes back as the text that it was.
"""

from typing import Any

from gateway.wire import strict_json

RAW = "_raw"


def to_input(arguments: str) -> dict[str, Any]:
    """Arguments as an object; none are an empty one."""
    if not arguments.strip():
        return {}
    try:
        given = strict_json.loads(arguments.encode("utf-8", "replace"))
    except strict_json.BadJson:
        given = None
    return given if type(given) is dict else {RAW: arguments}


def to_arguments(given: dict[str, Any]) -> str:
    """An object as arguments."""
    raw = given.get(RAW) if len(given) == 1 else None
    return raw if type(raw) is str else strict_json.dumps(given).decode()
