"""Pictures and documents of the chat form, as a provider of the Messages protocol is sent them."""

from typing import Any

import pytest

from gateway.protocols.anthropic_messages.forms.takes import Takes
from tests.protocols.anthropic_messages.chats import HI, refused, turns


def picture(url: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}


@pytest.mark.parametrize(
    ("url", "kind", "data"),
    [
        ("data:image/jpg;base64,/9j/4AAQ", "image/jpeg", "/9j/4AAQ"),
        ("data:image/png;base64,/9j/4AAQSkZJRg==", "image/jpeg", "/9j/4AAQSkZJRg=="),
        ("data:IMAGE/PNG;charset=x;base64,iVBORw0KGgo=", "image/png", "iVBORw0KGgo="),
        ("data:image/png;base64,iVBOR\nw0KGgo", "image/png", "iVBORw0KGgo="),
        ("data:image/jpeg;base64,_9j_4AAQ", "image/jpeg", "/9j/4AAQ"),
        ("data:image/webp;base64,UklGRiQAAABXRUJQVlA4", "image/webp", "UklGRiQAAABXRUJQVlA4"),
    ],
)
def test_a_picture_is_what_its_bytes_say(url: str, kind: str, data: str) -> None:
    assert turns(picture(url))[0]["content"] == [
        {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}
    ]


@pytest.mark.parametrize("url", ["data:image/heic;base64,AAAAGGZ0eXBoZWlj", "data:image/png;base64,aGVsbG8gd29ybGQ="])
def test_what_is_no_picture_that_is_taken_is_refused_by_its_path(url: str) -> None:
    assert refused(HI, picture(url)) == "messages[1].content[0].image_url.url"


def test_pictures_by_their_address_where_they_are_taken() -> None:
    url = "https://pictures.example/1.png"
    assert turns(picture(url))[0]["content"][0]["source"] == {"type": "url", "url": url}
    assert refused(picture(url), takes=Takes(urls=False)) == "messages[0].content[0]"


def file(**inner: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "file", "file": inner}]}


def test_documents() -> None:
    pdf = file(filename="a.pdf", file_data="data:application/pdf;base64,JVBERi0=")
    assert turns(pdf)[0]["content"] == [
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
            "title": "a.pdf",
        }
    ]
    notes = file(filename="a.md", file_data="data:text/markdown;base64,YWJj")
    source = {"type": "text", "media_type": "text/plain", "data": "abc"}
    assert turns(notes)[0]["content"] == [{"type": "document", "source": source, "title": "a.md"}]
    sheet = file(filename="a.xlsx", file_data="data:application/vnd.ms-excel;base64,AAAA")
    assert refused(sheet) == "messages[0].content[0].file.file_data"
