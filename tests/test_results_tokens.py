"""Few messages are enough to see that a server counts other tokens for all of them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from results import ledger
from results.baseline import REQUESTS, baseline
from results.comparison import Comparison, compare
from results.pairing import Requests, requests
from results.run import Run
from results.side import side
from results.tokens import KEPT, Tokens, alike, drawn, packed, unpacked
from results.verdict import Margin, Rule
from tests.run_folders import run_folder, served
from tests.test_results_record import table

RULES = (Rule(metric="e2el", margin=Margin(relative=0.05)),)
COUNT = REQUESTS // 2 + 1


def sent(count: int, more: float = 0.0) -> Requests:
    """So many requests of ten, twenty and more tokens, always the same ones first."""
    records = served([0.1] * count)
    told = [replace(one, input_tokens=10 * n + more) for n, one in enumerate(records)]
    return requests(table(*told))


def run(path: Path, **changes: Any) -> Run:
    """Two runs of so many requests that a baseline does not keep them all."""
    return run_folder(
        path, {"a": lambda repeat: served([0.1] * COUNT, repeat, **changes)}, repeats=2
    )


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    path = folder / "baseline.json"
    ledger.write(path, baseline([run(folder)]))
    return path


def gated(file: Path, candidate: Run, *allow: str) -> Comparison:
    return compare(*ledger.sides([str(file)], [str(candidate.path)]), RULES, allow=allow)


def test_the_same_few_messages_are_drawn_from_every_run_of_the_same_requests() -> None:
    few, many = drawn(sent(3000), KEPT), drawn(sent(3000), 2048)
    assert alike(few, many).shared == KEPT
    assert alike(few, many).apart == 0
    assert alike(few, drawn(sent(3000, more=30), 2048)).apart == KEPT


def test_a_run_that_got_twice_as_far_still_has_them() -> None:
    assert alike(drawn(sent(1500), KEPT), drawn(sent(3000), 2048)).shared == KEPT


def test_what_no_server_told_is_not_drawn() -> None:
    silent = replace(sent(5), input=np.array([np.nan, 1.0, np.nan, 2.0, np.nan]))
    assert sorted(drawn(silent, KEPT).counts.tolist()) == [1, 2]


def test_they_are_packed_and_unpacked() -> None:
    few = drawn(sent(100), KEPT)
    again = unpacked(packed(few))
    assert (again.keys == few.keys).all()
    assert (again.counts == few.counts).all()
    for word in ("?", "AAAA"):
        with pytest.raises(ValueError, match=r"."):
            unpacked(word)


def test_other_tokens_are_refused_against_a_file_that_keeps_no_requests(
    file: Path, tmp_path: Path
) -> None:
    longer = run(tmp_path, input_tokens=1030)
    told = gated(file, longer)
    (refusal,) = told.refusals
    assert refusal.startswith("prompt_tokens: 1000 against 1030 input tokens")
    assert f"in {2 * KEPT} of {2 * KEPT} requests" in refusal
    assert not gated(file, longer, "prompt_tokens").refusals


def test_the_same_tokens_are_compared_against_a_file_that_keeps_no_requests(
    file: Path, tmp_path: Path
) -> None:
    told = gated(file, run(tmp_path))
    assert told.cells
    assert told.unjudged == ()


def test_where_no_message_can_be_compared_the_rules_are_not_judged_by_it(
    file: Path, tmp_path: Path
) -> None:
    other = run(tmp_path, content="another")
    (sentence,) = gated(file, other).unjudged
    assert "no message whose input tokens both sides tell" in sentence
    assert gated(file, other, "prompt_tokens").unjudged == ()


def test_nothing_is_shared_with_nothing() -> None:
    none = Tokens(keys=np.zeros(0, np.uint64), counts=np.zeros(0, np.uint32))
    assert alike(none, drawn(sent(10), KEPT)).shared == 0


def test_a_folder_is_never_asked_for_them(tmp_path: Path) -> None:
    folders = [run(tmp_path / "a"), run(tmp_path / "b", content="another")]
    base, other = (side([str(one.path)]) for one in folders)
    assert compare(base, other, RULES).unjudged == ()
