"""Parts of a user's message: text, images, sound, files and films, in every way they may be sent."""

from typing import Any

import pytest

from gateway.protocols.openai_chat import parse
from gateway.wire import strict_json
from tests.protocols.openai_chat.requests import PIXEL, fault, refused, saying, sent, take

PDF = "JVBERi0xLjQK"


def upstream_part(part: dict[str, Any]) -> Any:
    """What an upstream gets of a part."""
    return sent(take(saying(part)))["messages"][0]["content"][0]


def image(url: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url} | fields}


def file(**fields: Any) -> dict[str, Any]:
    return {"type": "file", "file": fields}


@pytest.mark.row("B033", "B034", "B035", "B036", "B037", "B041")
@pytest.mark.parametrize(
    "part",
    [
        {"type": "text", "text": "x"},
        image("https://example.org/a.png"),
        image("http://example.org/a.png", detail="low"),
        image(PIXEL, detail="high"),
        image("data:IMAGE/JPEG;charset=x;base64,/9j/4AAQ", detail="auto"),
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "input_audio", "input_audio": {"data": "UklG\nRg==", "format": "mp3"}},
        file(file_id="file-1"),
        file(file_data=f"data:application/pdf;base64,{PDF}"),
        file(file_data="https://example.org/a.pdf", filename="a.pdf"),
        file(file_data="data:video/mp4;base64,AAAA"),
        {"type": "video_url", "video_url": {"url": "https://example.org/a.mp4"}},
    ],
)
def test_a_part_goes_on_as_it_came(part: dict[str, Any]) -> None:
    assert upstream_part(part) == part


@pytest.mark.row("B034", "B041")
@pytest.mark.parametrize("kind", ["image_url", "video_url"])
def test_an_address_may_stand_without_its_object(kind: str) -> None:
    """Some clients send the string itself; the upstream gets the object, and the client's body is not touched."""
    part = {"type": kind, kind: "https://example.org/a"}
    body = saying(part)
    assert sent(take(body))["messages"][0]["content"] == [{"type": kind, kind: {"url": "https://example.org/a"}}]
    assert body["messages"][0]["content"] == [{"type": kind, kind: "https://example.org/a"}]


@pytest.mark.row("B039")
def test_bare_base64_of_a_file_is_named_by_its_filename() -> None:
    part = upstream_part(file(file_data=PDF, filename="Report.PDF"))
    assert part == file(file_data=f"data:application/pdf;base64,{PDF}", filename="Report.PDF")
    nameless = fault(saying(file(file_data=PDF)))
    assert nameless == ("messages[0].content[0].file.filename", "missing_required_parameter")
    assert fault(saying(file(file_data=PDF, filename="report")))[0] == "messages[0].content[0].file.filename"


@pytest.mark.row("B038")
@pytest.mark.parametrize("fields", [{}, {"filename": "a.pdf"}, {"file_id": None, "file_data": ""}])
def test_a_file_needs_a_source(fields: dict[str, Any]) -> None:
    assert fault(saying(file(**fields))) == ("messages[0].content[0].file", "missing_required_parameter")


@pytest.mark.row("B040")
def test_it_says_which_files_of_the_project_are_named() -> None:
    """An id beside data is refused: which of them is meant must not be the provider's choice."""
    assert take(saying(file(file_id="file-1"), file(file_id="file-2"))).file_ids == ("file-1", "file-2")
    both = file(file_id="file-1", file_data=f"data:application/pdf;base64,{PDF}")
    assert fault(saying(both)) == ("messages[0].content[0].file.file_id", "invalid_value")
    assert take(saying(both | {"file": both["file"] | {"file_id": ""}})).file_ids == ()


@pytest.mark.row("B042")
@pytest.mark.parametrize(
    ("part", "modality", "path"),
    [
        (image(PIXEL), "image", ".image_url.url"),
        ({"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}, "audio", ".input_audio"),
        (file(file_id="file-1"), "file", ".file"),
        (file(file_data="https://example.org/a.pdf"), "file", ".file"),
        (file(file_data="https://example.org/a.MP4?x=1#y"), "video", ".file"),
        (file(file_data="AAAA", filename="a.mov"), "video", ".file"),
        (file(file_data="data:Video/mp4;base64,AAAA", filename="a.pdf"), "video", ".file"),
        ({"type": "video_url", "video_url": {"url": "https://example.org/a"}}, "video", ".video_url.url"),
    ],
)
def test_it_says_what_a_model_must_be_able_to_read(part: dict[str, Any], modality: str, path: str) -> None:
    text = {"type": "text", "text": "x"}
    assert take(saying(text, part, part)).modalities == {modality: f"messages[0].content[1]{path}"}


@pytest.mark.row("B033", "B034", "B035", "B036", "B037", "B039", "B041")
@pytest.mark.parametrize(
    ("part", "path", "code"),
    [
        ("x", "", "invalid_type"),
        (None, "", "invalid_type"),
        ({}, ".type", "missing_required_parameter"),
        ({"type": 7}, ".type", "invalid_type"),
        ({"type": "text"}, ".text", "missing_required_parameter"),
        ({"type": "text", "text": 1}, ".text", "invalid_type"),
        ({"type": "image_url"}, ".image_url", "missing_required_parameter"),
        ({"type": "image_url", "image_url": 7}, ".image_url", "invalid_type"),
        ({"type": "image_url", "image_url": {}}, ".image_url.url", "missing_required_parameter"),
        (image(7), ".image_url.url", "invalid_type"),
        (image(""), ".image_url.url", "invalid_value"),
        (image("file:///etc/passwd"), ".image_url.url", "invalid_value"),
        (image("data:image/png,iVBO"), ".image_url.url", "invalid_value"),
        (image("data:image/png;base64,"), ".image_url.url", "invalid_value"),
        (image("data:image/png;base64,%89PNG"), ".image_url.url", "invalid_value"),
        (image("data:image/png;base64,é"), ".image_url.url", "invalid_value"),
        (image("data:image/svg+xml;base64,PHN2Zz4="), ".image_url.url", "invalid_value"),
        (image("data:application/pdf;base64,JVBE"), ".image_url.url", "invalid_value"),
        (image("data:" + "a" * 300 + ";base64,AAAA"), ".image_url.url", "invalid_value"),
        (image(PIXEL, detail="huge"), ".image_url.detail", "invalid_value"),
        ({"type": "input_audio"}, ".input_audio", "missing_required_parameter"),
        ({"type": "input_audio", "input_audio": {"format": "wav"}}, ".input_audio.data", "missing_required_parameter"),
        ({"type": "input_audio", "input_audio": {"data": 1, "format": "wav"}}, ".input_audio.data", "invalid_type"),
        ({"type": "input_audio", "input_audio": {"data": "AA=="}}, ".input_audio.format", "missing_required_parameter"),
        (
            {"type": "input_audio", "input_audio": {"data": "AA==", "format": ""}},
            ".input_audio.format",
            "invalid_value",
        ),
        ({"type": "input_audio", "input_audio": {"data": "AA==", "format": 1}}, ".input_audio.format", "invalid_type"),
        (
            {"type": "input_audio", "input_audio": {"data": "https://example.org/a.wav", "format": "wav"}},
            ".input_audio.data",
            "invalid_value",
        ),
        ({"type": "file"}, ".file", "missing_required_parameter"),
        ({"type": "file", "file": "x"}, ".file", "invalid_type"),
        (file(file_id=7), ".file.file_id", "invalid_type"),
        (file(file_data=["x"]), ".file.file_data", "invalid_type"),
        (file(file_data="gs://bucket/a.pdf"), ".file.file_data", "invalid_value"),
        (file(file_data="not base64!", filename="a.pdf"), ".file.file_data", "invalid_value"),
        (file(file_id="f", filename=7), ".file.filename", "invalid_type"),
        ({"type": "video_url", "video_url": {"url": PIXEL}}, ".video_url.url", "invalid_value"),
        ({"type": "video_url"}, ".video_url", "missing_required_parameter"),
    ],
)
def test_a_wrong_part_is_refused(part: Any, path: str, code: str) -> None:
    body = saying({"type": "text", "text": "x"}, part)
    assert fault(body) == (f"messages[0].content[1]{path}", code)


@pytest.mark.row("B043")
def test_a_part_of_unknown_type_is_refused_with_those_there_are() -> None:
    """Never replaced by words of ours, never passed on unread."""
    error = refused(saying({"type": "hologram", "value": [1]}))
    assert (error.param, error.code) == ("messages[0].content[0].type", "invalid_value")
    assert "hologram" in error.message
    assert "text, image_url, input_audio, file, video_url" in error.message


def test_an_image_of_a_kind_no_model_reads_is_refused_by_name() -> None:
    assert "image/tiff" in refused(saying(image("data:image/tiff;base64,SUkqAA=="))).message


@pytest.mark.row("B028", "B364")
def test_a_cache_breakpoint_is_taken_on_any_text() -> None:
    for cache in ({"type": "ephemeral"}, {"type": "ephemeral", "ttl": "5m"}, {"type": "ephemeral", "ttl": "1h"}):
        for role in ("system", "developer", "user", "assistant"):
            body = saying({"type": "text", "text": "x", "cache_control": cache}, role=role)
            request = take(body)
            assert request.cache_control
            assert sent(request)["messages"] == body["messages"]
    wrong: list[tuple[Any, str]] = [
        ("ephemeral", ""),
        ({}, ".type"),
        ({"type": "eternal"}, ".type"),
        ({"type": "ephemeral", "ttl": "2h"}, ".ttl"),
    ]
    for value, path in wrong:
        body = saying({"type": "text", "text": "x", "cache_control": value})
        assert fault(body)[0] == f"messages[0].content[0].cache_control{path}"


def test_media_are_counted_and_their_base64_is_no_text() -> None:
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": "look"},
        image("data:image/png;base64," + "iVBO" * 1000, detail="low"),
        image("https://example.org/a.png"),
        {"type": "input_audio", "input_audio": {"data": "UklG" * 500, "format": "wav"}},
        file(file_data="data:application/pdf;base64," + "JVBE" * 300),
        file(file_data="JVBE" * 200, filename="a.pdf"),
        file(file_id="file-1"),
        {"type": "video_url", "video_url": {"url": "DATA:video/mp4;BASE64," + "AAAA" * 100}},
    ]
    request = take(saying(*parts))
    assert (request.images, request.audios, request.files) == (2, 1, 4)
    whole = len(strict_json.dumps(request.body))
    assert request.text_bytes == whole - 4000 - 2000 - 1200 - 800 - 400
    assert parse(request.body, 100).text_bytes == 0


def test_an_address_counts_as_text() -> None:
    assert parse(saying(image("https://x/;base64," + "A" * 999)), 1000).text_bytes == 1000
