"""The form of an upload: what it must have, that a wrong one stores nothing, and that any bytes are read quickly."""

import os
import time
from collections.abc import Callable
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.files.uploads import PURPOSES, Upload, read_upload
from gateway.models import StoredFile
from gateway.wire.errors import GatewayError, InvalidRequest
from tests.files.cabinet import DAY, PDF, files_key, sdk, upload
from tests.stage.cast import Tenant
from tests.stage.product import Gateway

MiB = 1024 * 1024
FORM = "multipart/form-data; boundary=B"
END = b"--B--\r\n"


def part(name: str, content: bytes = b"x", filename: str | None = None, *headers: str) -> bytes:
    """A part of a form whose boundary is B."""
    file = f'; filename="{filename}"' if filename else ""
    lines = "".join(f"{line}\r\n" for line in headers)
    head = f'--B\r\nContent-Disposition: form-data; name="{name}"{file}\r\n{lines}\r\n'
    return head.encode() + content + b"\r\n"


FILE, PURPOSE = part("file", PDF[:9], "a.pdf"), part("purpose", b"user_data")
WHOLE = FILE + PURPOSE + END
READ = Upload("a.pdf", "application/pdf", "user_data", None, PDF[:9])


def read(body: bytes, content_type: str = FORM, most_bytes: int = 64 * MiB) -> Upload:
    """What a form says."""
    return read_upload(content_type, body, most_bytes)


def test_it_works() -> None:
    assert read(WHOLE) == READ
    assert read(PURPOSE + FILE + b"--B--") == READ
    assert read(WHOLE, 'Multipart/Form-Data; charset=utf-8; boundary="B"') == READ
    lifetime = part("expires_after[anchor]", b"created_at") + part("expires_after[seconds]", b"3600")
    assert read(lifetime + WHOLE).lifetime == 3600


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (FILE + END, "missing_required_parameter", "purpose"),
        (PURPOSE + END, "missing_required_parameter", "file"),
        (part("file") + PURPOSE + END, "missing_required_parameter", "file"),
        (part("file", b"x", "..") + PURPOSE + END, "missing_required_parameter", "file"),
        (FILE + WHOLE, "invalid_value", "file"),
        (PURPOSE + WHOLE, "invalid_value", "purpose"),
        (FILE + part("purpose", b"theft") + END, "invalid_value", "purpose"),
        (part("file", b"", "a.pdf") + PURPOSE + END, "invalid_value", "file"),
        (part("file", b"x", "n" * 256) + PURPOSE + END, "invalid_value", "file"),
        (part("image", b"x", "a.png") + WHOLE, "unknown_parameter", "image"),
        (part("colour") + WHOLE, "unknown_parameter", "colour"),
        (b"--B\r\n\r\nunnamed\r\n" + WHOLE, "invalid_multipart", None),
        (b"--B\r\nContent-Disposition: form-data\r\n\r\nunnamed\r\n" + WHOLE, "invalid_multipart", None),
        (b"a preamble\r\n" + WHOLE, "invalid_multipart", None),
        (WHOLE + b"an epilogue", "invalid_multipart", None),
        (b"", "invalid_multipart", None),
        (b"--B--\r\n", "missing_required_parameter", "file"),
        (part("file", b"a--Bb", "a.pdf") + PURPOSE + END, "invalid_multipart", None),
        (part("file", b"a\r\n--Bb", "a.pdf") + PURPOSE + END, "invalid_multipart", None),
        (part("n" * 2000) + WHOLE, "invalid_multipart", None),
        (part("purpose", b"x" * 3 * MiB) + FILE + END, "invalid_multipart", None),
        (part("a") * 17 + WHOLE, "invalid_multipart", None),
        (part("file", b"QUJD!", "a", "Content-Transfer-Encoding: base64") + PURPOSE + END, "invalid_multipart", None),
        (b"--B\r\nContent-Disposition: form-data; name*=no-such'en'file\r\n\r\n" + WHOLE, "invalid_multipart", None),
    ],
)
def test_a_wrong_form_is_refused_by_name(body: bytes, code: str, param: str | None) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(body)
    assert (caught.value.code, caught.value.param) == (code, param)


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("multipart/form-data", 400),
        ("multipart/form-data; boundary=", 400),
        ("multipart/form-data; boundary=\u00e9", 400),
        ("multipart/form-data; boundary=C", 400),
        (FORM + "; a=" + "b" * 600, 400),
        ("multipart/mixed; boundary=B", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/json", 415),
        ("", 415),
    ],
)
def test_another_content_type_is_refused(content_type: str, status: int) -> None:
    with pytest.raises(GatewayError) as caught:
        read(WHOLE, content_type)
    assert caught.value.status == status


def test_the_type_is_the_clients_word_or_the_names() -> None:
    for name, header, expected in (
        ("a.pdf", "Content-Type: text/plain", "text/plain"),
        ("a.pdf", "Content-Type: application/octet-stream", "application/pdf"),
        ("a.webp", "X: y", "image/webp"),
        ("a.PDF", "Content-Type: text/plain, image/png", "application/pdf"),
        ("a.pdf.gz", "Content-Type: a b", "application/octet-stream"),
        ("data:text/html,x", "Content-Type: ;", "application/octet-stream"),
        ("a", "Content-Type: Image/PNG; x=y", "image/png"),
    ):
        assert read(part("file", b"x", name, header) + PURPOSE + END).media_type == expected, name


CONTENT = st.one_of(
    st.binary(min_size=1, max_size=300),
    st.lists(st.sampled_from([b"\r\n", b"--", b"B", b"\r", b"\n", b"--A", b"\r\n--", b"x"]), min_size=1).map(b"".join),
).filter(lambda content: b"--B" not in content)


@given(CONTENT, st.sampled_from(PURPOSES), st.integers(0, 66_000))
def test_content_comes_through_to_the_byte(content: bytes, purpose: str, padding: int) -> None:
    content = b"." * padding + content  # so that an end falls on any place of the parser's chunks
    form = part("file", content, "a.bin") + part("purpose", purpose.encode()) + END
    assert read(form) == Upload("a.bin", "application/octet-stream", purpose, None, content)


@given(st.text(st.characters(exclude_characters='"\\&', exclude_categories=["C", "Z"]), min_size=1, max_size=255))
def test_a_name_comes_through_without_its_path(name: str) -> None:
    bare = name.rsplit("/")[-1]
    if bare in ("", ".", ".."):
        with pytest.raises(InvalidRequest):
            read(part("file", b"x", name) + PURPOSE + END)
    else:
        assert read(part("file", b"x", name) + PURPOSE + END).filename == bare


def test_a_form_that_was_cut_off_is_refused_at_every_place() -> None:
    for length in range(len(WHOLE) - 2):  # without the line's end at the end it is whole
        with pytest.raises(InvalidRequest) as caught:
            read(WHOLE[:length])
        assert caught.value.code == "invalid_multipart", length


def read_or_refuse(body: bytes, content_type: str = FORM) -> None:
    """Raises anything but what clients are told."""
    try:
        found = read(body, content_type, 500)
    except GatewayError as error:
        assert error.status in (400, 413, 415)
    else:
        assert 0 < len(found.content) <= 500 and found.purpose in PURPOSES
        assert found.filename.isprintable() and 0 < len(found.filename) <= 255


SPOILERS = (b"--B", b"\r\n", b"\r\n--B\r\n", b"*=utf-16'en'%00", b"filename*=idna''\xff", b'="', b";")


@given(st.data())
def test_a_spoilt_form_is_read_or_refused(data: st.DataObject) -> None:
    form = part("expires_after[seconds]", b"3600") + part("expires_after[anchor]", b"created_at") + WHOLE
    for _ in range(data.draw(st.integers(1, 4))):
        at, until = sorted(data.draw(st.tuples(st.integers(0, len(form)), st.integers(0, len(form)))))
        with_what = data.draw(
            st.one_of(
                st.binary(max_size=20),
                st.sampled_from(
                    [b"--B", b"\r\n", b"\r\n--B\r\n", b"*=utf-16'en'%00", b"filename*=idna''\xff", b'="', b";"]
                ),
                st.just(form[at:until]),
            )
        )
        form = form[:at] + with_what + form[data.draw(st.sampled_from([at, until])) :]
    read_or_refuse(form)


@given(st.binary(max_size=200), st.text(max_size=60))
def test_any_bytes_are_read_or_refused(body: bytes, parameters: str) -> None:
    read_or_refuse(body)
    read_or_refuse(body, f"multipart/form-data;{parameters}")
    read_or_refuse(WHOLE, f"multipart/form-data; boundary=B;{parameters}")


LONG = 16 * MiB
# Made when they are read: together they are large.
ATTACKS: dict[str, Callable[[], bytes]] = {
    "line ends": lambda: part("file", b"\r\n" * (LONG // 2), "a"),
    "half boundaries": lambda: part("file", b"\r\n--" * (LONG // 4), "a"),
    "dashes": lambda: part("file", b"-" * LONG, "a"),
    "base64 of blanks": lambda: part("file", b" " * LONG, "a", "Content-Transfer-Encoding: base64"),
    "base64 that drips": lambda: part(
        "file", (b"A" + b" " * 65535) * (LONG >> 16), "a", "Content-Transfer-Encoding: base64"
    ),
    "parts of nothing": lambda: b"--B\r\n\r\n\r\n" * (LONG // 11),
    "boundaries": lambda: b"--B" * (LONG // 3),
    "one endless header": lambda: b"--B\r\n" + b"a" * LONG + b"\r\n",
    "parameters": lambda: (b"--B\r\nContent-Disposition: form-data; " + b"a;" * 480 + b"\r\n\r\n\r\n") * (LONG >> 10),
    "fields": lambda: part("a", b"") * (LONG // 50),
    "a preamble": lambda: b"x" * LONG + b"\r\n",
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_costs_less_than_two_seconds(attack: str) -> None:
    body = ATTACKS[attack]() + PURPOSE + END
    started = time.process_time()
    try:
        read(body)
    except GatewayError as error:
        assert error.status == 400
    assert time.process_time() - started < 2


# --- through the gateway --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content_type", "coding", "body", "status"),
    [
        (FORM, "identity", FILE + END, 400),
        (FORM, "identity", FILE + WHOLE, 400),
        (FORM, "identity", WHOLE[:-8], 400),
        (FORM, "identity", b"", 400),
        (FORM, "gzip", WHOLE, 415),
        ("application/json", "identity", b"{}", 415),
    ],
)
def test_a_wrong_form_stores_nothing(
    gateway: Gateway, alice: Tenant, content_type: str, coding: str, body: bytes, status: int
) -> None:
    headers = {"Authorization": f"Bearer {files_key(alice)}"}
    headers |= {"Content-Type": content_type, "Content-Encoding": coding}
    assert gateway.client.post("/v1/files", content=body, headers=headers).status_code == status
    assert not StoredFile.objects.filter(project=alice.project).exists()
    headers |= {"Content-Type": FORM, "Content-Encoding": "identity"}
    assert gateway.client.post("/v1/files", content=WHOLE, headers=headers).status_code == 200
    assert StoredFile.objects.get(project=alice.project).filename == "a.pdf"


def test_a_form_past_the_cap_of_all_bodies_is_refused(gateway: Gateway, alice: Tenant) -> None:
    headers = {"Authorization": f"Bearer {files_key(alice)}", "Content-Type": FORM}
    body = part("file", os.urandom(MiB) * 32, "a.bin") + PURPOSE + END
    answer = gateway.client.post("/v1/files", content=body, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")
    assert not StoredFile.objects.filter(project=alice.project).exists()


def test_other_paths_take_no_form(gateway: Gateway, alice: Tenant) -> None:
    headers = {"Authorization": f"Bearer {alice.secret}", "Content-Type": FORM}
    assert gateway.client.post("/v1/chat/completions", content=WHOLE, headers=headers).status_code == 415


@pytest.mark.parametrize(
    ("after", "param"),
    [
        ({"anchor": "created_at", "seconds": 3599}, "expires_after[seconds]"),
        ({"anchor": "created_at", "seconds": 30 * DAY + 1}, "expires_after[seconds]"),
        ({"anchor": "created_at"}, "expires_after[seconds]"),
        ({"anchor": "last_active_at", "seconds": 3600}, "expires_after[anchor]"),
        ({"seconds": 3600}, "expires_after[anchor]"),
    ],
)
def test_an_end_that_cannot_be_had_is_refused(
    gateway: Gateway, alice: Tenant, after: dict[str, Any], param: str
) -> None:
    with sdk(gateway, files_key(alice)) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            upload(client, expires_after=after)
        assert caught.value.param == param
        assert client.files.list().data == []
