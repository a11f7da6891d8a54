"""Words for a shell, read back by Bash."""

from __future__ import annotations

import subprocess

import pytest

from ppocli.core import shell

WORDS = ["plain.parquet", "with space", "it's", "a\nb", "it's\n\\n $HOME `x` \"", "\n", "", "ü\n*"]


@pytest.mark.parametrize("word", WORDS)
def test_bash_reads_the_word_back(word: str) -> None:
    quoted = shell.quote(word)
    assert "\n" not in quoted
    done = subprocess.run(["bash", "-c", f"printf %s {quoted}"], capture_output=True, check=True)
    assert done.stdout.decode() == word


def test_a_command_line() -> None:
    assert shell.join(["ppocli", "eval", "a b", "x\ny"]) == r"ppocli eval 'a b' $'x\ny'"
