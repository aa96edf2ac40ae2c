from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from harness.wire.stream import Reader, payloads


def read(*parts: bytes) -> list[bytes]:
    return [payload for _, payload in payloads((float(i), part) for i, part in enumerate(parts))]


def test_a_plain_stream_is_its_payloads():
    assert read(b'data: {"a":1}\n\ndata: [DONE]\n\n') == [b'{"a":1}', b"[DONE]"]


def test_no_blank_is_needed_after_data():  # F-06
    assert read(b'data:{"a":1}\n\ndata:  two\n\n') == [b'{"a":1}', b" two"]


def test_all_three_line_endings_are_read_also_split_between_reads():
    for end in (b"\n", b"\r", b"\r\n"):
        stream = b"data: a" + end + end + b": hello" + end + end + b"data: b" + end + end
        assert read(stream) == [b"a", b"b"]
        assert read(*(stream[i : i + 1] for i in range(len(stream)))) == [b"a", b"b"]


def test_a_frame_is_complete_at_the_carriage_return_that_ends_its_blank_line():
    reads = [(1.0, b"data: a\r\n\r"), (2.0, b"\ndata: b\r\n\r\n")]
    assert list(payloads(reads)) == [(1.0, b"a"), (2.0, b"b")]


def test_a_frame_has_the_stamp_of_the_read_that_completed_it():
    reads = [(1.0, b"data: a"), (2.0, b"\n"), (3.0, b"\ndata: b\n\ndata: c"), (4.0, b"\n\n")]
    assert list(payloads(reads)) == [(3.0, b"a"), (3.0, b"b"), (4.0, b"c")]


def test_other_fields_and_comments_carry_nothing():
    stream = (
        b": ping\n\nevent: x\nid: 3\nretry: 9\ndata: a\n: c\n\nevent: only\n\ndata\n\ndatum: 1\n\n"
    )
    assert read(stream) == [b"a"]


def test_an_event_named_error_is_an_error_object():
    assert read(b'event: error\ndata: {"code":5}\n\n') == [b'{"error":{"code":5}}']
    assert read(b'data: {"error":"x"}\nevent:error\n\n') == [b'{"error":"x"}']
    assert read(b"event: error\ndata: out of memory\n\n") == [b'{"error":"out of memory"}']
    assert read(b"event: error\nevent: token\ndata: {}\n\n") == [b"{}"]


def test_lines_of_data_are_joined():
    assert read(b'data: {"a":\ndata:1}\n\n') == [b'{"a":\n1}']


def test_an_empty_event_is_no_payload_even_among_plain_ones():
    assert read(b"data: a\n\ndata: \n\ndata: b\n\n\n\n") == [b"a", b"b"]


def test_a_byte_order_mark_is_skipped_wherever_it_is_cut():
    stream = b"\xef\xbb\xbfdata: a\n\n"
    for cut in range(5):
        assert read(stream[:cut], stream[cut:]) == [b"a"]


def test_the_last_event_may_lack_its_blank_line():
    assert read(b"data: a\n\ndata: [DONE]") == [b"a", b"[DONE]"]


LINES = st.sampled_from([b"data: x", b"data:y", b"data", b": c", b"event: e", b"", b"data: ", b"z"])


@given(
    st.lists(LINES, max_size=30),
    st.sampled_from([b"\n", b"\r", b"\r\n"]),
    st.lists(st.integers(0, 200), max_size=20),
    st.booleans(),
)
def test_cuts_and_line_endings_change_nothing(lines, end, cuts, mark):
    plain = b"".join(line + b"\n" for line in lines)
    other = (b"\xef\xbb\xbf" if mark else b"") + b"".join(line + end for line in lines)
    edges = [0, *sorted(min(cut, len(other)) for cut in cuts), len(other)]
    parts = [other[a:b] for a, b in pairwise(edges)]
    assert read(*parts) == read(plain)


def test_a_long_frame_in_many_small_reads_costs_no_more_than_its_length():
    # Joining at every read would copy 5 GB here.
    reader = Reader()
    for _ in range(100_000):
        assert reader.feed(b"x") == []
    assert reader.feed(b"\n\n") == []
