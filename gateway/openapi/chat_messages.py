"""The messages of a chat request as types; see `request_schema`, which says what they are for."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from gateway.protocols.openai_chat.request.parts import AUDIO_FORMATS, DETAILS


def words(words: Iterable[str]) -> Meta:
    """One of these strings."""
    return Meta(extra_json_schema={"enum": list(words)})


class CacheControl(Struct):
    """A cache breakpoint."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


class TextPart(Struct, tag_field="type", tag="text"):
    """A text."""

    text: str
    cache_control: CacheControl | None = None


class ImageUrl(Struct):
    """Where an image is."""

    url: Annotated[str, Meta(description="An http(s) URL or a data URL in base64.")]
    detail: Annotated[str, words(DETAILS)] | None = None


class ImagePart(Struct, tag_field="type", tag="image_url"):
    """An image: the object, or its URL alone."""

    image_url: ImageUrl | str


class VideoUrl(Struct):
    """Where a video is."""

    url: Annotated[str, Meta(description="An http(s) URL or a data URL in base64.")]


class VideoPart(Struct, tag_field="type", tag="video_url"):
    """A video: the object, or its URL alone."""

    video_url: VideoUrl | str


class Sound(Struct):
    """Sound in base64."""

    data: Annotated[str, Meta(min_length=1)]
    format: Annotated[str, words(AUDIO_FORMATS)]


class AudioPart(Struct, tag_field="type", tag="input_audio"):
    """A piece of sound."""

    input_audio: Sound


class FileContent(Struct):
    """An uploaded file by its id, or the data of one; not both."""

    file_id: str | None = None
    file_data: Annotated[str, Meta(description="Base64, a data URL, or an http(s) URL.")] | None = None
    filename: str | None = None


class FilePart(Struct, tag_field="type", tag="file"):
    """A document, or another file."""

    file: FileContent


class ToolResultPart(Struct, tag_field="type", tag="tool_result"):
    """The result of a tool, as Anthropic's clients write it."""

    tool_use_id: str
    content: str | list[TextPart] | None = None
    cache_control: CacheControl | None = None


class RefusalPart(Struct, tag_field="type", tag="refusal"):
    """A refusal by the assistant."""

    refusal: str


class ToolUsePart(Struct, tag_field="type", tag="tool_use"):
    """A call of a tool, as Anthropic's clients write it."""

    id: str
    name: str
    input: dict[str, Any]


class ThinkingPart(Struct, tag_field="type", tag="thinking"):
    """A thought, as Anthropic's clients write it."""

    thinking: str
    signature: str


class RedactedThinkingPart(Struct, tag_field="type", tag="redacted_thinking"):
    """A sealed thought, as Anthropic's clients write it."""

    data: str


Texts = str | Annotated[list[TextPart], Meta(min_length=1)]
UserParts = list[TextPart | ImagePart | AudioPart | FilePart | VideoPart | ToolResultPart]
AssistantParts = list[TextPart | RefusalPart | ToolUsePart | ThinkingPart | RedactedThinkingPart]


class DeveloperMessage(Struct, tag_field="role", tag="developer"):
    """Instructions of the application."""

    content: Texts
    name: str | None = None


class SystemMessage(Struct, tag_field="role", tag="system"):
    """Instructions of the application."""

    content: Texts
    name: str | None = None


class UserMessage(Struct, tag_field="role", tag="user"):
    """What the user says and sends."""

    content: str | Annotated[UserParts, Meta(min_length=1)]
    name: str | None = None


class CalledFunction(Struct):
    """A function and its arguments, as the model wrote them."""

    name: str
    arguments: str


class CalledTool(Struct):
    """A custom tool and its input."""

    name: str
    input: str


class AskedFunctionCall(Struct, tag_field="type", tag="function"):
    """An earlier call of a function."""

    id: Annotated[str, Meta(min_length=1)]
    function: CalledFunction


class AskedCustomCall(Struct, tag_field="type", tag="custom"):
    """An earlier call of a custom tool."""

    id: Annotated[str, Meta(min_length=1)]
    custom: CalledTool


class AudioReference(Struct):
    """An earlier spoken answer."""

    id: str


class AssistantMessage(Struct, tag_field="role", tag="assistant"):
    """An earlier answer. Without content it has tool calls, a refusal or audio."""

    content: str | AssistantParts | None = None
    name: str | None = None
    tool_calls: list[AskedFunctionCall | AskedCustomCall] | None = None
    function_call: Annotated[CalledFunction | None, Meta(extra_json_schema={"deprecated": True})] = None
    refusal: str | None = None
    audio: AudioReference | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    reasoning_details: (
        Annotated[list[dict[str, Any]], Meta(description="As they came with the answer, unchanged to the byte.")] | None
    ) = None


class ToolMessage(Struct, tag_field="role", tag="tool"):
    """The result of a tool's call."""

    content: Texts
    tool_call_id: Annotated[str, Meta(min_length=1)]
    name: str | None = None


class FunctionMessage(Struct, tag_field="role", tag="function"):
    """The answer to an assistant's `function_call`. Deprecated: send `tool`."""

    content: Texts
    name: str


Message = (
    DeveloperMessage | SystemMessage | UserMessage | AssistantMessage | ToolMessage | FunctionMessage
)  # in the order of ROLES
