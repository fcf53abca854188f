"""A request's headers by name: nothing of them is lost, and each keeps the order in which its lines came."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.header_fields import by_name

LINES = st.lists(st.tuples(st.sampled_from([b"accept", b"origin", b"x-title", b"x_title"]), st.binary(max_size=4)))


def test_lines_of_one_name_are_one_list() -> None:
    assert by_name([(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"a", b"")]) == {b"a": b"1,3,", b"b": b"2"}
    assert by_name([]) == {}


@given(LINES)
def test_every_line_is_there_under_its_own_name(lines: list[tuple[bytes, bytes]]) -> None:
    names = {name for name, _ in lines}
    expected = {name: b",".join(value for other, value in lines if other == name) for name in names}
    assert by_name(lines) == expected
