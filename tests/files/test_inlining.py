"""Files put where a request names them: the forms, what stays, and what is refused."""

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.files.inlining import OpenFile, Reference, inlined, recounted, references
from gateway.protocols.openai_chat import ChatRequest, parse, upstream_body
from gateway.wire.errors import InvalidRequest

OPENED = {
    "file-1": OpenFile("report.pdf", "application/pdf", "UERG"),
    "file-2": OpenFile("dot.png", "image/png", "UE5H"),
    "file-3": OpenFile("drawing.svg", "image/svg+xml", "U1ZH"),
    "file-4": OpenFile("film.mp4", "video/mp4", "TVA0"),
}
TYPES = {id: file.media_type for id, file in OPENED.items()}
PDF, PNG, SVG, MP4 = (f"data:{file.media_type};base64,{file.content}" for file in OPENED.values())
TEXT = {"type": "text", "text": "What is this?"}


def naming(file_id: Any, part: Any = None, **file: Any) -> dict[str, Any]:
    """A part that names a file."""
    return {"type": "file", "file": {"file_id": file_id, **file}, **(part or {})}


def asking(*messages: Any) -> ChatRequest:
    """A request of these messages; a list is the content of the user's."""
    made = [{"role": "user", "content": content} if type(content) is list else content for content in messages]
    return parse({"model": "m", "messages": made, "temperature": 0.5}, 1000)


def sent(request: ChatRequest) -> Any:
    """The body that an upstream gets."""
    return json.loads(upstream_body(request, model="m", output_cap=None, cap_field="max_tokens", ask_usage=True))


@pytest.mark.row("B037", "B040")
def test_it_works() -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://pictures.example/1.png"}}
    request = asking(
        {"role": "system", "content": "Be brief."},
        [TEXT, naming("file-1"), naming("file-2"), naming("file-3")],
        {"role": "assistant", "content": "A report."},
        [naming("file-1"), picture],
    )
    before = deepcopy(request.body)
    assert references(request) == [
        Reference("messages[1].content[1].file.file_id", "file-1"),
        Reference("messages[1].content[2].file.file_id", "file-2"),
        Reference("messages[1].content[3].file.file_id", "file-3"),
        Reference("messages[3].content[0].file.file_id", "file-1"),
    ]
    made = inlined(request, OPENED)
    report = {"type": "file", "file": {"filename": "report.pdf", "file_data": PDF}}
    drawing = {"type": "file", "file": {"filename": "drawing.svg", "file_data": SVG}}
    dot = {"type": "image_url", "image_url": {"url": PNG}}
    assert sent(made) == {
        "model": "m",
        "temperature": 0.5,
        "messages": [
            before["messages"][0],
            {"role": "user", "content": [TEXT, report, dot, drawing]},
            before["messages"][2],
            {"role": "user", "content": [report, picture]},
        ],
    }
    assert request.body == made.body == before, "the client's body is left as it is"
    assert (request.images, request.files) == (1, 4)
    assert made.file_ids == ()
    counted = recounted(request, TYPES)
    assert (counted.images, counted.files, counted.text_bytes) == (2, 3, request.text_bytes)
    assert (counted.changes, counted.file_ids) == (request.changes, request.file_ids), "nothing is in it yet"
    assert references(asking(*sent(made)["messages"])) == []


def test_a_model_must_read_what_the_file_is() -> None:
    path = "messages[0].content[{}].file".format
    for ids, expected in (
        (["file-1"], {"file": path(0)}),
        (["file-2"], {"image": path(0)}),
        (["file-4"], {"video": path(0)}),
        (["file-2", "file-4", "file-2", "file-3"], {"image": path(0), "video": path(1), "file": path(3)}),
    ):
        request = asking([naming(id) for id in ids])
        assert request.modalities == {"file": path(0)}
        assert recounted(request, TYPES).modalities == expected
    film = {"type": "file", "file": {"file_data": MP4}}
    report = {"type": "file", "file": {"file_data": PDF}}
    assert recounted(asking([naming("file-2"), film]), TYPES).modalities == {"image": path(0), "video": path(1)}
    assert recounted(asking([naming("file-2"), report]), TYPES).modalities == {"image": path(0), "file": path(1)}


def test_messages_that_are_rewritten_besides_have_their_files() -> None:
    result = {"type": "tool_result", "tool_use_id": "call-1", "content": "12 degrees"}
    bare = {"type": "image_url", "image_url": "https://pictures.example/1.png"}
    call = {"id": "call-1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    request = asking(
        {"role": "assistant", "content": None, "tool_calls": [call]},
        [result, naming("file-1"), bare],
    )
    assert [reference.param for reference in references(request)] == ["messages[1].content[1].file.file_id"]
    assert sent(inlined(request, OPENED))["messages"][1:] == [
        {"role": "tool", "tool_call_id": "call-1", "content": "12 degrees"},
        {
            "role": "user",
            "content": [
                {"type": "file", "file": {"filename": "report.pdf", "file_data": PDF}},
                {"type": "image_url", "image_url": {"url": "https://pictures.example/1.png"}},
            ],
        },
    ]


def test_what_else_is_said_of_a_file_stays() -> None:
    cached = {"cache_control": {"type": "ephemeral"}}
    request = asking(
        [
            naming("file-1", cached, filename="mine.pdf", odd=1),
            naming("file-2", cached, filename="mine.png", detail="low"),
            naming("file-1", filename=None, file_data=None),
        ]
    )
    assert sent(inlined(request, OPENED))["messages"][0]["content"] == [
        {"type": "file", "file": {"odd": 1, "filename": "mine.pdf", "file_data": PDF}, **cached},
        {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}, **cached},
        {"type": "file", "file": {"filename": "report.pdf", "file_data": PDF}},
    ]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "file", "file": {"file_data": PDF, "filename": "a.pdf"}},
        {"type": "file", "file": {"file_data": PDF, "file_id": None}},
        {"type": "file", "file": {"file_data": PDF, "file_id": ""}},
        {"type": "video_url", "video_url": {"url": "https://films.example/1.mp4"}},
        {"type": "text", "text": "file_id: file-1"},
    ],
)
def test_a_part_without_an_id_names_nothing(part: dict[str, Any]) -> None:
    assert references(asking([part])) == []


def test_a_file_is_named_or_sent_not_both() -> None:
    with pytest.raises(InvalidRequest) as caught:
        references(asking([TEXT, naming("file-1", file_data=PDF)]))
    assert caught.value.param == "messages[0].content[1].file.file_id"


PARTS = st.lists(st.sampled_from([TEXT, *map(naming, OPENED)]), min_size=1, max_size=4)


@given(st.lists(PARTS, min_size=1, max_size=4))
def test_no_id_of_ours_is_left_and_nothing_is_lost(contents: list[list[dict[str, Any]]]) -> None:
    request = asking(*contents)
    made = inlined(request, OPENED)
    body = sent(made)
    assert "file_id" not in str(body)
    assert [len(message["content"]) for message in body["messages"]] == [len(content) for content in contents]
    named = [part for content in contents for part in content if part["type"] == "file"]
    counted = recounted(request, TYPES)
    assert counted.images + counted.files == request.files == len(named)
    assert counted.images == sum(part["file"]["file_id"] == "file-2" for part in named)
