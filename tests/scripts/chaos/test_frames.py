"""Framing of requests and replies, byte by byte."""

from __future__ import annotations

import asyncio

import pytest

from tools.chaos.rules import Api, Request, correlation_id_of, read_frame, request_of

END_TXN_1_OF_W = b"\x00\x00\x00\x0c" + b"\x00\x1a" + b"\x00\x01" + b"\x00\x00\x00\x07" + b"\x00\x01" + b"w" + b"!"


def test_header_names_request_client_and_correlation() -> None:
    """Size, api, version, correlation id and client id stand where the protocol guide says."""
    assert Request(Api.END_TXN, 1, 7, "w", 2) == request_of(END_TXN_1_OF_W, node=2)


def test_client_without_an_id_is_nobody() -> None:
    """A null client id has length -1."""
    frame = b"\x00\x00\x00\x0a" + b"\x00\x12" + b"\x00\x03" + b"\x00\x00\x00\x01" + b"\xff\xff"
    assert Request(Api.API_VERSIONS, 3, 1, "", 0) == request_of(frame, node=0)


def test_reply_says_which_request_it_answers() -> None:
    """The correlation id follows the size."""
    assert 258 == correlation_id_of(b"\x00\x00\x00\x04" + b"\x00\x00\x01\x02")


def test_frames_are_read_one_by_one_and_half_a_frame_is_none() -> None:
    """Of two frames and a third half two are read; then the stream has ended."""

    async def read() -> list[bytes]:
        reader = asyncio.StreamReader()
        reader.feed_data(END_TXN_1_OF_W * 2 + END_TXN_1_OF_W[:9])
        reader.feed_eof()
        frames = [await read_frame(reader), await read_frame(reader)]
        with pytest.raises(asyncio.IncompleteReadError):
            await read_frame(reader)
        return frames

    assert asyncio.run(read()) == [END_TXN_1_OF_W] * 2
