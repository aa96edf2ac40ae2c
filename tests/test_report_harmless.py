"""Names are anyone's: none of them moves a cursor, begins a line, or passes for another verdict."""

import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from cli import Exit
from reports.comparison import comparison_text
from reports.gate import gate_text
from reports.junit import junit
from reports.markdown import comparison_markdown
from reports.notation import harmless, harmless_lines
from reports.tables import Column, Sheet, drawn
from tests.gate_runs import made, paceline
from tests.hand_built import SLOW, cell, gated, told

HOSTILE = "a\x1b[2J\nGate PASSED\r\x9b31m\u202e b"
CONTROLS = ("\x1b", "\r", "\x9b", "\u202e")


def shown(text: str) -> None:
    """Raises where the text does something, or has a line that the name made."""
    assert not [one for one in CONTROLS if one in text]
    assert not [line for line in text.splitlines() if line.strip().startswith("Gate PASSED")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("plain é µs 日本", "plain é µs 日本"),
        ("a\nb\tc", r"a\nb\tc"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\x9b\u202e\u2028", r"\x9b\u202e\u2028"),
        ("\udcff", r"\udcff"),
    ],
)
def test_control_characters_are_shown_as_they_are_written_in_code(words: str, said: str) -> None:
    assert harmless(words) == said
    assert harmless(said) == said


def test_lines_of_ours_stay_lines() -> None:
    assert harmless_lines("one\ntwo\x07") == "one\ntwo\\x07"


def test_no_report_does_what_a_name_says() -> None:
    one = cell(HOSTILE, gated("ttft", SLOW), notes=(f"{HOSTILE} was alone",))
    account = told(one, base=HOSTILE, other=f"{HOSTILE} 2", unmatched=(HOSTILE,))
    for text in (
        gate_text(account),
        comparison_text(account),
        comparison_markdown(account),
        junit(account),
    ):
        shown(text)
    ElementTree.fromstring(junit(account))


def test_no_table_does_what_a_name_says() -> None:
    sheet = Sheet(
        title=HOSTILE,
        columns=(Column(name="arm", number=False), Column(name="n", number=True)),
        rows=((HOSTILE, "1"),),
        notes=(HOSTILE,),
    )
    for width in (40, 120):
        text = drawn(sheet, width)
        assert not [one for one in CONTROLS if one in text]


def test_a_folder_with_a_hostile_name_is_told_in_one_line(tmp_path: Path) -> None:
    run = made(tmp_path, "repeats=1")
    folder = shutil.move(run, tmp_path / HOSTILE)
    result: Any = paceline("compare", folder)
    assert result.exit_code == Exit.BAD_INPUT
    assert not [one for one in CONTROLS if one in result.stderr]
    assert all(line.startswith(("Error: ", "    ")) for line in result.stderr.splitlines())
    result = paceline("gate", run.parent / "gone", "--baseline", folder)
    assert not [one for one in CONTROLS if one in result.stderr]
