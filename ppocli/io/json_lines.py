"""JSON Lines as records: one object per line, each line parsed by itself, every failure with its line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Any

from ppocli.core import shell
from ppocli.errors import InputError
from ppocli.io.places import place_of

LONGEST_LINE = 1 << 28
"""Bytes of a line at most: parsed, a line takes about seven times its size in memory."""

_BOM = b"\xef\xbb\xbf"


class JsonLines:
    """The objects of a file.

    Parameters
    ----------
    path : str
    recover : bool
        Leave out a last line that is cut.

    Attributes
    ----------
    left_out : int
        Bytes of the last line that were left out.
    """

    def __init__(self, path: str, *, recover: bool = False) -> None:
        self.path, self._recover, self.left_out = path, recover, 0

    def __iter__(self) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Yield (line number from 1, bytes of the line, object); blank lines are passed over.

        Raises
        ------
        InputError
            A line that is not one whole JSON object in UTF-8, names a key twice, nests too deep, holds a
            number that is too long, or is longer than `LONGEST_LINE`.
        """
        try:
            with place_of(self.path).open() as file:
                yield from self._lines(file)
        except OSError as failure:
            raise InputError(f"the file cannot be read: {failure.strerror}", where=self.path) from None

    def _lines(self, file: IO[bytes]) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Yield the objects of an open file."""
        number = 0
        while line := file.readline(LONGEST_LINE + 1):
            number += 1
            if len(line) > LONGEST_LINE:
                raise self._bad(number, f"longer than {LONGEST_LINE:,} bytes", _LONG)
            text = line.removeprefix(_BOM) if number == 1 else line
            if not text.strip():
                continue
            try:
                yield number, len(line), self._parsed(number, text)
            except InputError as problem:
                if line.endswith(b"\n"):
                    raise
                if self._recover and number > 1:
                    self.left_out = len(line)
                    return
                if number == 1:
                    raise
                how = f"ppocli convert --recover {shell.quote(self.path)} -o recovered.parquet"
                hint = f"write or copy the file again, or recover the lines before it: {how}"
                said = problem.message.removeprefix(f"line {number}: ")
                raise self._bad(number, f"the file ends inside it ({said})", hint) from None

    def _parsed(self, number: int, line: bytes) -> dict[str, Any]:
        """Return the object of a line."""
        try:
            found = json.loads(line.decode("utf-8"), object_pairs_hook=_once)
        except _TwiceError as twice:
            raise self._bad(number, f"the key '{twice}' stands there twice", "write each key once") from None
        except UnicodeDecodeError:
            raise self._bad(number, "not UTF-8", "write the file in UTF-8, uncompressed") from None
        except json.JSONDecodeError as failure:
            what = f"not a whole JSON object: {failure.msg.removesuffix(' at')} at column {failure.colno}"
            raise self._bad(number, what, _ONE_PER_LINE) from None
        except RecursionError:
            raise self._bad(
                number, "nested too deep", "a row has at most lists of lists of numbers"
            ) from None
        except ValueError:  # an integer of thousands of digits
            raise self._bad(number, "a number that is too long", "log-probs have about 20 digits") from None
        if not isinstance(found, dict):
            raise self._bad(number, f"{_KINDS.get(type(found), 'a value')}, not an object", _ONE_PER_LINE)
        return found

    def _bad(self, number: int, what: str, hint: str) -> InputError:
        """Build the error for a line."""
        return InputError(f"line {number}: {what}", where=f"{self.path}, line {number}", hint=hint)


class _TwiceError(Exception):
    """A key stands twice in an object."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of pairs, and refuse a key that comes again: nobody knows which of the two was meant."""
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        raise _TwiceError(next(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]
    return made


_KINDS = {list: "a list", str: "text", int: "a number", float: "a number", bool: "true or false"}
_ONE_PER_LINE = "JSON Lines have one object per line; jq -c . FILE writes them so"
_LONG = "write one sequence per line, or Parquet"
