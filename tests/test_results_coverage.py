"""What rules are about is judged, or said not to be: an experiment's new name hides nothing."""

from pathlib import Path

from results.comparison import Comparison, compare
from results.run import Run
from results.side import side
from results.verdict import Margin, Rule
from tests.run_folders import run_folder
from tests.test_results_comparison import noisy

MARGIN = Margin(relative=0.05)


def folder(path: Path, experiment: str, factor: float = 1.0, noise: int = 1) -> Run:
    return run_folder(path, {"a": noisy(noise, factor=factor)}, experiment=experiment)


def renamed(path: Path, *rules: Rule, factor: float = 1.0) -> Comparison:
    """A candidate that calls `new` what base calls `old`."""
    base = folder(path / "base", "old")
    other = folder(path / "other", "new", factor, noise=2)
    return compare(side([str(base.path)]), side([str(other.path)]), rules)


def test_a_rule_of_a_renamed_experiment_is_judged_by_the_candidate_s_name(tmp_path: Path) -> None:
    told = renamed(tmp_path, Rule(metric="ttft", margin=MARGIN, experiment="new"), factor=1.3)
    (cell,) = told.cells
    assert cell.experiment == "new"
    assert [one.gate for one in cell.judgements if one.gated] == ["fail"]
    assert told.unjudged == ()


def test_a_rule_that_no_judgement_is_of_is_said_not_to_be_judged(tmp_path: Path) -> None:
    told = renamed(
        tmp_path,
        Rule(metric="ttft", margin=MARGIN),
        Rule(metric="tpot", margin=MARGIN, experiment="old"),
    )
    (sentence,) = told.unjudged
    assert sentence.startswith("the rule for tpot of old was held against nothing")


def test_a_cell_that_only_base_has_is_missed_under_either_name(tmp_path: Path) -> None:
    base = [
        folder(tmp_path / "one", "old").path,
        run_folder(
            tmp_path / "two",
            {"a": noisy(1)},
            experiment="old",
            cell="c" * 12,
            pairing="f" * 12,
            load={"kind": "closed", "concurrency": 16},
        ).path,
    ]
    other = folder(tmp_path / "other", "new", noise=2).path
    rules = [Rule(metric="ttft", margin=MARGIN, experiment="new")]
    told = compare(side([str(path) for path in base]), side([str(other)]), rules)
    assert len(told.missing) == 1
    assert told.missing[0].endswith("run it too")
