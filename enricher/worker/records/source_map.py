"""The positions of a text's characters in the source that the text was read from, such as HTML."""

from __future__ import annotations

from array import array
from bisect import bisect_right

_NUMBER = "I"  # four bytes; no value of a record has 2^32 characters


class SourceMap:
    """Maps ranges of a text to ranges of its source, and back. Ranges are half-open and count Unicode code points.

    The text consists of segments, in the order of the source. A run has its characters one by one in the source; any other
    segment, such as a character reference or the border of two paragraphs, is mapped as a whole. A segment takes 12 bytes,
    and is looked up by bisection, which is only done for findings.
    """

    __slots__ = ("_continues", "_source_chars", "_source_starts", "_text_starts", "length_chars", "source_end")

    def __init__(self) -> None:
        self._text_starts, self._source_starts, self._source_chars = array(_NUMBER), array(_NUMBER), array(_NUMBER)
        self.length_chars = 0
        """Characters of the text."""
        self.source_end = 0
        """The end of the last segment in the source."""
        self._continues = False  # whether the last segment is a run

    @property
    def size_bytes(self) -> int:
        """Memory of the segments."""
        return 3 * self._text_starts.itemsize * len(self._text_starts)

    def add(self, text_chars: int, source_start: int, source_chars: int) -> None:
        """Add a segment to the end; one that continues the run before it becomes part of that."""
        is_run = text_chars == source_chars
        if is_run and self._continues and source_start == self.source_end:
            self._source_chars[-1] += source_chars
        else:
            self._text_starts.append(self.length_chars)
            self._source_starts.append(source_start)
            self._source_chars.append(source_chars)
        self._continues = is_run
        self.length_chars += text_chars
        self.source_end = source_start + source_chars

    def source_range(self, start: int, end: int) -> tuple[int, int]:
        """The range in the source from the first to the last character of a range of the text, which is not empty."""
        first, last = bisect_right(self._text_starts, start) - 1, bisect_right(self._text_starts, end - 1) - 1
        source_start, source_end = self._source_starts[first], self._source_starts[last] + self._source_chars[last]
        if self._is_run(first, self._text_end(first)):
            source_start += start - self._text_starts[first]
        if self._is_run(last, self._text_end(last)):
            source_end -= self._text_end(last) - end
        return source_start, source_end

    def text_range(self, start: int, end: int) -> tuple[int, int]:
        """The range of the text that is in a range of the source, from the first to the last character that it has there."""
        if not self.length_chars:
            return 0, 0
        first = max(0, bisect_right(self._source_starts, start) - 1)
        last = max(0, bisect_right(self._source_starts, end - 1) - 1)
        text_start, text_end = self._text_starts[first], self._text_end(last)
        if self._is_run(first, self._text_end(first)):
            text_start += start - self._source_starts[first]
        if self._is_run(last, text_end):
            text_end -= self._source_starts[last] + self._source_chars[last] - end
        return text_start, text_end

    def _text_end(self, segment: int) -> int:
        following = segment + 1
        return self._text_starts[following] if following < len(self._text_starts) else self.length_chars

    def _is_run(self, segment: int, text_end: int) -> bool:
        return self._source_chars[segment] == text_end - self._text_starts[segment]
