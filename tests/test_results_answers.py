"""Answers on disk, what they come to, and two sides of them compared."""

from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from results import answers, ledger, rows
from results.accuracy import of_gap
from results.baseline import baseline
from results.comparison import Comparison, compare
from results.errors import FolderError, InputError
from results.gap import gap
from results.history import history
from results.metrics import pool, summarise
from results.run import Run, read
from results.scores import figures, items, problems
from results.side import Side, side, within
from results.verdict import Judgement, Margin, Rule
from tests.answer_folders import asked, asked_folder, graded, row
from tests.test_results_record import cell, evidence

ACCURACY = Rule(metric="accuracy", margin=Margin(absolute=0.01))
QUESTIONS = {"kind": "questions"}


def right(questions: int, *wrong: int) -> list[float | None]:
    """Scores of so many questions, of which these are wrong."""
    return [float(number not in wrong) for number in range(questions)]


def told(table: Any, **changes: Any) -> Any:
    return replace(evidence(), accuracy=asked(table, **changes))


def compared(run: Run, *rules: Rule, **options: Any) -> Comparison:
    ((base, other), *_) = within(run)
    return compare(base, other, rules, **options)


def judged(run: Run, *rules: Rule) -> Judgement:
    (found,) = compared(run, *rules).cells
    assert not found.problems
    return found.judgements[0]


def test_answers_are_read_as_they_were_written(tmp_path: Path) -> None:
    table = graded(row(0, 1.0, group="passage"), row(1, None), row(2, 0.5, text=None, target=None))
    answers.write(tmp_path / answers.NAME, table)
    assert answers.read(tmp_path).equals(table)
    assert answers.read(tmp_path / "nowhere") is None


def test_answers_with_other_columns_are_refused(tmp_path: Path) -> None:
    rows.write(tmp_path / answers.NAME, graded(row(0, 1.0)).drop_columns(["retries"]))
    with pytest.raises(FolderError, match="other columns"):
        answers.read(tmp_path)
    (tmp_path / answers.NAME).write_bytes(b"PAR1")
    with pytest.raises(FolderError, match="cannot be read"):
        answers.read(tmp_path)


def test_hashes_tell_sets_of_questions_prompts_and_keys_apart() -> None:
    one, two = row(0, 1.0), row(1, 0.0)
    table = graded(one, two)
    # Neither order, nor scores, nor epochs of the same prompt make another set.
    alike = graded(two, one | {"score": 0.0, "text": "other"}, one | {"epoch": 1})
    assert answers.questions_hash(alike) == answers.questions_hash(table)
    assert answers.key_hash(alike) == answers.key_hash(table)
    for other in (graded(one), graded(one, two | {"prompt_hash": "0" * 16})):
        assert answers.questions_hash(other) != answers.questions_hash(table)
    other = graded(one, two | {"target_hash": "0" * 16})
    assert answers.key_hash(other) != answers.key_hash(table)
    assert answers.questions_hash(other) == answers.questions_hash(table)


def test_compact_answers_hold_no_text_and_come_back_from_one_word() -> None:
    table = graded(row(0, 1.0, group="g"), row(1, None), row(2, 0.25))
    small = answers.compact(table)
    assert small.column_names == ["task", "question", "epoch", "group", "score", "scores"]
    assert small["question"].to_pylist() == ["q0", "q2"]
    assert answers.unpacked(answers.packed(small)).equals(small)
    for word in ("", "x", "AAAA", answers.packed(small)[:-9]):
        with pytest.raises(ValueError, match="cannot be read"):
            answers.unpacked(word)


def test_accuracy_is_the_mean_over_questions_with_wilsons_interval() -> None:
    found = figures(graded(*(row(number, float(number < 8)) for number in range(10))), None)
    one = found["accuracy"]
    assert (one.value, one.n) == (0.8, 10)
    # Wilson, 8 of 10: (0.8 + 0.19207) / 1.38415 -+ 0.22671.
    assert (one.low, one.high) == (pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4))
    assert found["accuracy.exact_match,strict-match"].value == 0.8
    assert found["answers"].value == 10


def test_epochs_are_averaged_for_each_question_first() -> None:
    # One question answered once counts as much as one answered three times.
    table = graded(row(0, 1.0), *(row(1, 0.0, epoch=epoch) for epoch in range(3)))
    assert figures(table, None)["accuracy"].value == 0.5
    # Four epochs of which half are right are surer than half of as many questions.
    many = graded(
        *(row(n, float((n + e) % 2), epoch=e) for n in range(40) for e in range(3)),
    )
    alone = graded(*(row(n, float(n % 2)) for n in range(40)))
    wide, narrow = (figures(each, None)["accuracy"] for each in (alone, many))
    assert wide.value == narrow.value == 0.5
    assert narrow.high - narrow.low < wide.high - wide.low


def test_a_question_that_failed_is_in_no_accuracy_and_is_counted() -> None:
    found = figures(graded(row(0, 1.0), row(1, None), row(2, 0.0)), None)
    assert (found["accuracy"].value, found["accuracy"].n) == (0.5, 2)
    assert found["unanswered"].value == 1
    assert figures(graded(row(0, None)), None)["accuracy"].value is None


def test_each_score_is_a_metric_beside_the_headline_and_the_headline_is_told_once() -> None:
    scores = [{"name": "exact_match,flexible-extract", "value": 1.0}, {"name": "f1", "value": 0.25}]
    table = graded(row(0, 1.0, scores=scores), row(1, None))
    assert items(table, "accuracy.f1")["value"].to_pylist() == [0.25]
    assert [name for name in figures(table, told(table)) if "." in name] == ["accuracy.f1"]


@pytest.mark.parametrize(
    ("changes", "share", "said"),
    [
        ({"truncated": True}, 0.05, "truncated"),
        ({"empty": True}, 0.01, "empty"),
        ({"parsed": False}, 0.05, "unparsed"),
        (None, 0.005, "unanswered"),
    ],
)
def test_more_that_came_to_nothing_than_allowed_is_a_problem(
    changes: dict[str, Any] | None, share: float, said: str
) -> None:
    def made(count: int) -> Any:
        spoiled = (
            row(number, None) if changes is None else row(number, 1.0, **changes)
            for number in range(count)
        )
        return graded(*spoiled, *(row(number, 1.0) for number in range(count, 400)))

    within_limit = int(share * 400)
    for count, wrong in ((within_limit, 0), (within_limit + 1, 1)):
        table = made(count)
        found = list(problems(table, cell(workload=QUESTIONS), told(table)))
        assert len(found) == wrong
        assert all(said in one and "allowed" in one for one in found)
    # The workload may state another limit.
    key = "failed" if changes is None else said
    stated = cell(workload=QUESTIONS | {"limits": {key: share + 0.1}})
    table = made(within_limit + 1)
    assert not list(problems(table, stated, told(table)))


def test_answers_that_are_not_those_told_of_are_a_problem() -> None:
    table = graded(row(0, 1.0), row(1, 0.0))
    point = cell(workload=QUESTIONS)
    assert not list(problems(table, point, told(table)))
    cases = {
        "there are no answers": (None, told(table)),
        "nothing tells which": (table, evidence()),
        "other questions or prompts": (table, told(table, questions_hash="0")),
        "another key": (table, told(table, key_hash="0")),
        "made up": (table, told(table, synthetic_acceptance=True)),
        "3 questions in 1 epochs": (table, told(table, questions=3)),
        "2 of 2 answers are unanswered": (graded(row(0, nan), row(1, nan)), told(table)),
        "has one": (graded(row(0, 1.0), row(0, 0.0), row(1, 0.0)), told(table)),
    }
    for words, (answered, known) in cases.items():
        assert any(words in one for one in problems(answered, point, known)), words


def test_two_arms_are_compared_question_by_question(tmp_path: Path) -> None:
    run = asked_folder(
        tmp_path,
        {"off": lambda _: right(600, 1, 2, 3), "on": lambda _: right(600, 3, *range(10, 40))},
    )
    one = judged(run, ACCURACY)
    found = one.effect.gap
    assert (found.questions, found.gained, found.lost) == (600, 2, 30)
    assert (found.asked, found.answered, found.alike) == (600, 600, (568, 600))
    assert (one.effect.base, one.effect.other) == (597 / 600, 569 / 600)
    assert one.effect.ratio == pytest.approx(1 - 28 / 600)
    assert (one.verdict, one.gate, one.margin) == ("worse", "fail", 0.01)


def test_only_scores_are_compared_where_questions_were_asked(tmp_path: Path) -> None:
    run = asked_folder(tmp_path, {"off": lambda _: right(50), "on": lambda _: right(50, 7)})
    latency = Rule(metric="ttft", margin=Margin(relative=0.05))
    found = compared(run, ACCURACY, latency)
    (whole,) = found.cells
    names = [one.effect.metric for one in whole.judgements]
    assert names == ["accuracy", "accuracy.exact_match,strict-match"]
    assert [one.gated for one in whole.judgements] == [True, False]
    # The rule for a latency is about no cell here, and the gate says so.
    assert any("rule for ttft was held against nothing" in one for one in found.unjudged)


def test_what_is_no_share_of_right_answers_is_not_held_against_points(tmp_path: Path) -> None:
    def scored(one: dict[str, Any]) -> dict[str, Any]:
        return one | {"scores": [{"name": "bleu", "value": 31.5}]}

    run = asked_folder(
        tmp_path, {"off": lambda _: right(50), "on": lambda _: right(50)}, changed=scored
    )
    (whole,) = compared(run).cells
    bleu = whole.judgements[1]
    assert (bleu.effect.metric, bleu.verdict) == ("accuracy.bleu", "inconclusive")
    assert "no share" in bleu.reason


def test_repeats_are_averaged_for_each_question_and_flips_are_told(tmp_path: Path) -> None:
    # Every repeat of off has three other questions wrong, and none of on has any.
    run = asked_folder(
        tmp_path,
        {
            "off": lambda repeat: right(300, *range(3 * repeat, 3 * repeat + 3)),
            "on": lambda _: right(300),
        },
        repeats=4,
    )
    found = judged(run).effect.gap
    assert (found.test, found.questions, found.gained) == ("paired t", 300, 12)
    assert found.change == pytest.approx(0.01)
    assert found.flips == (pytest.approx(6 / 300), 0.0)
    # Twelve changes of a quarter: (12 / 16 - 300 * 0.01^2) / 299 is their variance.
    assert found.error == pytest.approx(((12 / 16 - 0.03) / 299 / 300) ** 0.5)


def test_only_epochs_that_both_sides_answered_count(tmp_path: Path) -> None:
    def epochs(arm: str) -> Any:
        def scores(_repeat: int) -> list[float | None]:
            # Of question 0 other answers epoch 1 alone, which base got wrong too.
            told: list[float | None] = [1.0, 0.0, *[1.0] * 198]
            return [None, 0.0, *told[2:]] if arm == "on" else told

        return scores

    def spread(one: dict[str, Any]) -> dict[str, Any]:
        number = int(one["question"][1:])
        return one | {"question": f"q{number // 2}", "epoch": number % 2, "prompt_hash": "p"}

    run = asked_folder(
        tmp_path,
        {"off": epochs("off"), "on": epochs("on")},
        changed=spread,
    )
    found = judged(run).effect.gap
    assert (found.asked, found.answered, found.questions) == (200, 199, 100)
    assert found.change == 0.0


def test_questions_that_share_a_passage_are_clusters(tmp_path: Path) -> None:
    def grouped(one: dict[str, Any]) -> dict[str, Any]:
        number = int(one["question"][1:])
        # The last two share theirs with no other.
        return one | {"group": f"passage {number // 4}" if number < 78 else None}

    run = asked_folder(
        tmp_path,
        {"off": lambda _: right(80), "on": lambda _: right(80, *range(8))},
        changed=grouped,
    )
    found = judged(run).effect.gap
    assert (found.test, found.groups) == ("clustered t", 22)
    alone = gap(np.ones(80), np.array([0.0] * 8 + [1.0] * 72))
    # Whole passages went wrong together: the error is nearly twice as large.
    assert found.error > 1.8 * alone.error


def test_one_lucky_run_is_not_better_than_ten(tmp_path: Path) -> None:
    # Each run gets 2 of 100 wrong by chance, and other's only one none: it happens in 13 of 100.
    runs = [
        asked_folder(tmp_path / str(n), {"off": lambda _, n=n: right(100, n, n + 50)}, salt=n)
        for n in range(10)
    ]
    lucky = asked_folder(tmp_path / "lucky", {"off": lambda _: right(100)}, salt=99)
    base, other = side([str(run.path) for run in runs]), side([str(lucky.path)])
    (found,) = compare(base, other, [ACCURACY]).cells
    (one, *_) = found.judgements
    assert (one.effect.runs, one.effect.gap.gained) == ((10, 1), 20)
    assert one.verdict == "inconclusive"


def test_sides_that_have_nothing_right_are_not_the_same(tmp_path: Path) -> None:
    wrong = asked_folder(tmp_path, {"off": lambda _: [0.0] * 1319, "on": lambda _: [0.0] * 1319})
    found = judged(wrong, ACCURACY)
    assert (found.verdict, found.gate) == ("inconclusive", "inconclusive")
    assert "nothing could be lost" in found.reason


def test_too_many_answers_on_one_side_only_are_invalid(tmp_path: Path) -> None:
    lenient = {"workload": QUESTIONS | {"limits": {"failed": 1.0}}}
    for missing, problem in ((5, 0), (6, 1)):
        run = asked_folder(
            tmp_path / str(missing),
            {"off": lambda _: right(100), "on": lambda _, n=missing: [None] * n + right(100)[n:]},
            **lenient,
        )
        (found,) = compared(run, ACCURACY).cells
        assert len(found.problems) == problem
        if problem:
            assert "6 of 100 answers are on one side only" in found.problems[0]
            assert {one.gate for one in found.judgements} == {"invalid"}


def test_a_side_that_leaves_more_unanswered_is_neither_same_nor_better(tmp_path: Path) -> None:
    lenient = {"workload": QUESTIONS | {"limits": {"failed": 1.0}}}
    run = asked_folder(
        tmp_path,
        {"off": lambda _: right(2000), "on": lambda _: [None] * 20 + right(2000)[20:]},
        **lenient,
    )
    one = judged(run, ACCURACY)
    assert (one.verdict, one.gate) == ("inconclusive", "inconclusive")
    assert "0 of 2,000 answers failed in base and 20 of 2,000 in other" in one.reason


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("questions_hash", None),
        ("key_hash", None),
        ("shots", (0, 5)),
        ("version", ("1 aa", "1 bb")),
        ("lm_eval", ("0.4.13", "0.4.12")),
        ("thinking", (False, True)),
        ("effort", (None, "high")),
        ("sampling.max_tokens", (512, 256)),
        ("synthetic_acceptance", (False, True)),
    ],
)
def test_sides_that_were_asked_otherwise_refuse_with_key_and_values(
    tmp_path: Path, key: str, values: tuple[Any, Any] | None
) -> None:
    runs = []
    for number in (0, 1):
        known: dict[str, Any] = {}
        if values and key.startswith("sampling."):
            known = {"sampling": {"temperature": 0.0, "max_tokens": values[number]}}
        elif values:
            known = {key: values[number]}
        hashed = {"questions_hash": "prompt_hash", "key_hash": "target_hash"}.get(key)

        def other(one: dict[str, Any], name: str | None = hashed, side: int = number) -> Any:
            return one | {name: f"{side}{one['question']}"} if name else one

        runs.append(
            asked_folder(
                tmp_path / str(number), {"off": lambda _: right(30)}, changed=other, told=known
            )
        )
    base, candidate = (Side(name=run.path.name, runs=(run,), points=run.points) for run in runs)
    found = compare(base, candidate, (ACCURACY,))
    assert not found.cells
    (refusal,) = found.refusals
    assert refusal.startswith(f"evidence.accuracy.{key}: ")
    assert f"--allow evidence.accuracy.{key}" in refusal
    if values:
        first, second = (
            "not told" if one is None else str(one).lower() if isinstance(one, bool) else str(one)
            for one in values
        )
        assert f"{first} against {second}" in refusal
    allowed = compare(base, candidate, (ACCURACY,), allow=[f"evidence.accuracy.{key}"])
    assert allowed.cells


def test_a_candidate_is_paired_with_a_baseline_file(tmp_path: Path) -> None:
    runs = [
        asked_folder(tmp_path / str(n), {"off": lambda _, n=n: right(1319, n, 50)}, salt=n)
        for n in range(3)
    ]
    runs = [
        replace(run, path=run.path.rename(run.path.with_name(f"suite-2026010{n}T000000Z")))
        for n, run in enumerate(runs, start=1)
    ]
    path = tmp_path / "baseline.json"
    ledger.write(path, baseline([read(run.path) for run in runs[:2]]))
    assert path.stat().st_size < 60_000
    assert "The answer is" not in path.read_text()
    candidate = asked_folder(tmp_path / "new", {"on": lambda _: right(1319, *range(100, 160))})
    base, other = ledger.sides([str(path)], [str(candidate.path)])
    (found,) = compare(base, other, (ACCURACY,), allow=["prompt_tokens"]).cells
    assert not found.problems
    one = found.judgements[0]
    assert (one.verdict, one.gate) == ("worse", "fail")
    assert (one.effect.gap.questions, one.effect.gap.lost) == (1319, 60)
    assert one.effect.gap.alike is None
    assert one.effect.gap.amiss[0] == ("unanswered", 0, 0)


def test_a_baseline_whose_answers_say_something_else_is_refused(tmp_path: Path) -> None:
    run = asked_folder(tmp_path, {"off": lambda _: right(20, 1)})
    path = tmp_path / "baseline.json"
    ledger.write(path, baseline([run]))
    good = answers.packed(answers.compact(run.points[0].answers()))
    bad = answers.packed(answers.compact(graded(*(row(n, 1.0) for n in range(20)))))
    assert good in path.read_text()
    path.write_text(path.read_text().replace(good, bad))
    with pytest.raises(InputError, match=r"answers come to 1\.0, and it says 0\.95"):
        ledger.read(path)


def test_runs_with_as_many_right_answers_are_no_copies(tmp_path: Path) -> None:
    runs = [
        asked_folder(tmp_path / str(n), {"off": lambda _, n=n: right(100, n)}) for n in range(2)
    ]
    other = asked_folder(tmp_path / "other", {"on": lambda _: right(100, 3)})
    base = Side(name="base", runs=tuple(runs), points=tuple(p for run in runs for p in run.points))
    found = compare(base, Side(name="other", runs=(other,), points=other.points))
    assert found.cells[0].runs == (2, 1)


def test_repeats_of_the_same_questions_do_not_narrow_their_interval(tmp_path: Path) -> None:
    run = asked_folder(tmp_path, {"off": lambda repeat: right(100, repeat, 7)}, repeats=3)
    (pooled,) = pool([summarise(point) for point in run.points])
    alone = summarise(run.points[0]).figures["accuracy"]
    whole = pooled.figures["accuracy"]
    assert (whole.value, whole.n, whole.runs) == (pytest.approx(0.98), 100, 3)
    assert whole.high - whole.low == pytest.approx(alone.high - alone.low)
    assert pooled.figures["answers"].value == 300
    assert pooled.valid


def test_accuracy_has_a_history_in_which_equal_runs_are_no_copies(tmp_path: Path) -> None:
    runs = []
    for number in range(1, 5):
        made = asked_folder(tmp_path / str(number), {"off": lambda _: right(200, 3)})
        path = made.path.rename(made.path.with_name(f"suite-2026010{number}T000000Z"))
        runs.append(read(path))
    (course,) = history(runs)
    assert course.metric == "accuracy"
    assert [moment.value for moment in course.moments] == [0.995] * 4


def test_margins_of_accuracy_are_in_points_whatever_the_base(tmp_path: Path) -> None:
    run = asked_folder(
        tmp_path,
        {"off": lambda _: right(400, *range(200)), "on": lambda _: right(400, *range(240))},
    )
    half = judged(run, Rule(metric="accuracy", margin=Margin(absolute=0.12)))
    assert (half.margin, half.effect.worsening[0]) == (0.12, pytest.approx(0.1))
    # A tenth of the questions, which is a fifth of what base had right.
    assert half.verdict == "worse"
    assert half.gate == "inconclusive"
    assert of_gap("accuracy", half.effect.gap).scale == 1.0
