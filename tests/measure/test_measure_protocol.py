"""Frames survive any chunking, and what is no frame is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import MeasureError
from autotune.measure.failure import FAILURE_KINDS, Failure
from autotune.measure.protocol import Decoder, Message, encode

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
messages = st.builds(
    Message, st.dictionaries(st.text(), json_values, max_size=3), st.lists(st.binary(), max_size=3).map(tuple)
)


@settings(max_examples=50, deadline=None)
@given(st.lists(messages, max_size=4), st.integers(1, 40))
def test_any_chunking_gives_the_same_messages(sent: list[Message], step: int) -> None:
    stream = b"".join(encode(message) for message in sent)
    decoder = Decoder()
    received = [
        message for start in range(0, len(stream), step) for message in decoder.feed(stream[start : start + step])
    ]
    assert received == sent


def test_garbage_is_refused() -> None:
    with pytest.raises(MeasureError, match="no message"):
        list(Decoder().feed(b"Traceback (most recent call last):"))


def test_damaged_header_is_refused() -> None:
    frame = encode(Message({"a": 1})).replace(b"{", b"[")
    with pytest.raises(MeasureError, match="damaged"):
        list(Decoder().feed(frame))


def test_failure_round_trip_and_bounds() -> None:
    for kind in FAILURE_KINDS:
        failure = Failure(kind, "what, where")  # type: ignore[arg-type]
        assert Failure.from_json(failure.to_json()) == failure
    assert len(Failure("crash", "x" * 10**6).message) < 5000
    with pytest.raises(MeasureError, match="unknown failure kind 'boom'"):
        Failure("boom", "")  # type: ignore[arg-type]
    with pytest.raises(MeasureError, match="no failure"):
        Failure.from_json({"kind": "crash"})
