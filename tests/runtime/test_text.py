from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from attnc.runtime.stops import StopMatcher
from attnc.runtime.text import BROKEN, TextStream, Transcript


@pytest.fixture(autouse=True)
def configured() -> None:
    """These tests need no kernel store and no launcher."""


class Bytes:
    """A token is the bytes of an entry; what is broken reads as U+FFFD. Counts the tokens it was given."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces
        self.longest = 0

    def decode(self, ids: Sequence[int]) -> str:
        self.longest = max(self.longest, len(ids))
        return b"".join(self.pieces[token] for token in ids).decode(errors="replace")


class Words:
    """As SentencePiece reads: ▁ is a blank, the first one is dropped; a run of byte tokens is text or all broken.

    Token 0 is a control token, which is left out.
    """

    PIECES = ("", "▁the", "▁cat", "s", "▁", ".", *range(256))

    def decode(self, ids: Sequence[int]) -> str:
        text, run = "", b""
        for piece in [*(self.PIECES[token] for token in ids if token), ""]:
            if isinstance(piece, int):
                run += bytes([piece])
                continue
            text += self._read(run) + piece.replace("▁", " ")
            run = b""
        return text.removeprefix(" ")

    @staticmethod
    def _read(run: bytes) -> str:
        try:
            return run.decode()
        except UnicodeDecodeError:
            return BROKEN * len(run)

    @classmethod
    def of_bytes(cls, text: str) -> list[int]:
        return [cls.PIECES.index(byte) for byte in text.encode()]


def cut_at_stop(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    """Text before the stop string that is complete first, the longest of those, and whether there is one."""
    for end in range(len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            return text[: end - max(map(len, found))], True
    return text, False


def open_end(text: str, stops: Sequence[str]) -> int:
    return max((n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)


def test_stop_strings_in_any_pieces() -> None:
    draw = random.Random(0)
    for _ in range(1000):
        text = "".join(draw.choices("aab€", k=draw.randrange(14)))
        stops = ["".join(draw.choices("ab€", k=draw.randint(1, 4))) for _ in range(draw.randrange(4))]
        matcher, out, read, stopped = StopMatcher(stops), "", 0, False
        while read < len(text) and not stopped:
            size = draw.randint(1, 4)
            piece, stopped = matcher.push(text[read : read + size])
            out, read = out + piece, min(read + size, len(text))
            if not stopped:
                assert len(out) == read - open_end(text[:read], stops), "held back too much or too little"
        out += "" if stopped else matcher.close()
        assert (out, stopped) == cut_at_stop(text, stops), (text, stops)


def test_what_could_become_a_stop_string_is_held_back() -> None:
    matcher = StopMatcher(["</end>", "<|"])
    assert matcher.push("a <") == ("a ", False)
    assert matcher.push("/en") == ("", False)
    assert matcher.push("t> <") == ("</ent> ", False)
    assert matcher.push("|") == ("", True)


def test_text_comes_out_as_soon_as_it_is_settled() -> None:
    """Also where the bytes are no text at all."""
    pieces = (
        b"a",
        b" b",
        b"\xe2",
        b"\x82",
        b"\xac",
        b"\xe2\x82",
        b"\xf0\x9f\x98",
        b"\x80c",
        b"\xff",
        "é".encode(),
        b"",
    )
    draw = random.Random(1)
    for _ in range(300):
        text = Bytes(*pieces)
        prompt = [*draw.choices(range(len(pieces)), k=draw.randrange(9)), 1]
        before, stream, out, ids = text.decode(prompt), TextStream(text, prompt), "", list(prompt)
        for token in draw.choices(range(len(pieces)), k=draw.randrange(25)):
            out, ids = out + stream.push(token), [*ids, token]
            assert before + out == text.decode(ids).rstrip(BROKEN)
        assert before + out + stream.close() == text.decode(ids)
        assert stream.close() == ""


def test_a_character_begun_in_the_prompt() -> None:
    stream = TextStream(Bytes(b"x\xe2\x82", b"\xac", b"y"), [0])
    assert [stream.push(1), stream.push(2), stream.close()] == ["€", "y", ""]


def test_blanks_and_byte_tokens_of_sentencepiece() -> None:
    draw, words = random.Random(2), Words()
    parts = [[1], [2], [3], [4], [5], [0], *map(words.of_bytes, "é€😀ß")]
    for _ in range(300):
        prompt = [0, 1, *(token for part in draw.choices(parts, k=draw.randrange(5)) for token in part), 2]
        ids = [token for part in draw.choices(parts, k=draw.randrange(20)) for token in part]
        stream = TextStream(words, prompt)
        out = "".join(map(stream.push, ids)) + stream.close()
        assert words.decode(prompt) + out == words.decode(prompt + ids)


def test_the_first_token_continues_the_prompt() -> None:
    assert TextStream(Words(), [1]).push(2) == " cat"
    assert TextStream(Words(), []).push(2) == "cat", "nothing to continue"


def test_control_tokens_do_not_make_the_next_word_a_first_one() -> None:
    stream = TextStream(Words(), [1])
    assert [stream.push(token) for token in (2, 0, 0, 0, 1)] == [" cat", "", "", "", " the"]


def test_few_tokens_are_decoded_again() -> None:
    text = Bytes(b"a", b"\xe2", b"\x82", b"\xac")
    stream = TextStream(text, [0] * 500)
    for token in [0, 1, 2, 3] * 200:
        stream.push(token)
    assert text.longest <= 10


def test_a_decoder_that_raises_changes_nothing() -> None:
    class Fragile(Bytes):
        broken = False

        def decode(self, ids: Sequence[int]) -> str:
            if self.broken:
                raise LookupError("no such token")
            return super().decode(ids)

    text = Fragile(b"a", b"\xc3", b"\xa9")
    transcript = Transcript(text, [0], ("xyz",))
    assert transcript.push(1) == ("", False)
    text.broken = True
    for _ in range(2):
        with pytest.raises(LookupError):
            transcript.push(2)
    text.broken = False
    assert transcript.push(2) == ("é", False)


def test_a_transcript_ends_at_a_stop_string_across_tokens() -> None:
    text = Bytes(b"ab", b"c\xe2\x82", b"\xacd", b"e")
    transcript = Transcript(text, [3], ("c€d",))
    assert [transcript.push(token) for token in (0, 1, 2)] == [("ab", False), ("", False), ("", True)]


def test_a_transcript_gives_out_at_its_end_what_was_held_back() -> None:
    text = Bytes(b"ab", b"c\xe2\x82")
    transcript = Transcript(text, [0], ("c€", "bc"))
    assert [transcript.push(token)[0] for token in (0, 0)] == ["a", "ba"]
    assert transcript.close() == "b"
    transcript = Transcript(text, [0], ("c€",))
    assert transcript.push(1) == ("", False)
    assert transcript.close() == "c" + BROKEN
    assert Transcript(None, [0], ()).push(1) == ("", False)
    assert Transcript(None, [0], ()).close() == ""
