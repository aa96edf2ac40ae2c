"""A task of lm-eval: the messages of its questions, and the grades of answers to them.

lm-eval builds the prompts, and later reads the answers out of a model that only recites them, so
that in between every question is a request like any other.
"""

import hashlib
import io
import json
import logging
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import orjson
import yaml

from results.errors import EngineError, InputError
from workloads import documents, extraction
from workloads.chat import Messages
from workloads.documents import GPQA, GSM8K, OWN
from workloads.prompt import Role


@contextmanager
def _quietly() -> Iterator[None]:
    """Keeps lm-eval and its libraries from talking, and their warnings from being errors."""
    logger = logging.getLogger("lm_eval")
    before, propagates = logger.level, logger.propagate
    logger.setLevel(logging.CRITICAL)
    logger.propagate = False
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
        logger.propagate = propagates


with _quietly():
    import datasets
    from lm_eval.api.filter import Filter
    from lm_eval.api.instance import Instance
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_filter, register_model
    from lm_eval.api.task import ConfigurableTask
    from lm_eval.evaluator import evaluate
    from lm_eval.tasks import TaskManager
    from lm_eval.utils import env

TASKS = Path(str(resources.files("lm_eval") / "tasks"))

UNREADABLE = ("", "[invalid]")
"""What filters give where they find no answer."""

_ROLES: dict[str, Role] = {"system": "system", "user": "user", "assistant": "assistant"}


@register_filter("paceline")
class Extracted(Filter):  # type: ignore[misc]
    """The number, or the letter, that an answer comes to."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._find = {"number": extraction.number, "letter": extraction.letter}[kind]

    def apply(self, resps: Iterable[Sequence[str]], docs: Any) -> list[list[str]]:  # noqa: ARG002
        """The answers found in each list of texts."""
        return [[self._find(text) or UNREADABLE[-1] for text in texts] for texts in resps]


@register_model("paceline")
class Reciter(LM):  # type: ignore[misc]
    """A model that gives the answers which another one gave, by the place of their question."""

    tokenizer_name = "paceline"

    def __init__(self, answers: Mapping[int, str]) -> None:
        super().__init__()
        self._answers = answers

    def apply_chat_template(
        self,
        chat_history: list[dict[str, str]],
        add_generation_prompt: bool = True,  # noqa: ARG002
    ) -> str:
        """The messages as JSON."""
        return orjson.dumps(chat_history).decode()

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """The answers, in the order in which they are asked for."""
        return [self._answers[request.doc_id] for request in requests]

    def loglikelihood(self, requests: list[Instance]) -> Any:
        """Nothing: a recited answer has no probabilities."""
        raise NotImplementedError

    loglikelihood_rolling = loglikelihood


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question in one epoch: what is sent, and what is right."""

    id: str
    epoch: int
    group: str | None
    messages: Messages
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """What an answer scored, by metric and filter, and what was read out of it, if anything."""

    scores: Mapping[str, float]
    extracted: str | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exam:
    """All questions of all epochs. `tasks` are lm-eval's, one an epoch or one for all of them."""

    name: str
    version: str
    headline: str
    withheld: bool
    shots: int
    stop: tuple[str, ...]
    questions: tuple[Question, ...]
    tasks: tuple[Any, ...]

    def grades(self, answers: Mapping[tuple[str, int], str]) -> dict[tuple[str, int], Grade]:
        """The grade of every question and epoch; one without an answer is graded as empty."""
        epochs = max(question.epoch for question in self.questions) + 1
        found: dict[tuple[str, int], Grade] = {}
        for epoch in range(epochs):
            asked = [question for question in self.questions if question.epoch == epoch]
            texts = {
                place: answers.get((question.id, epoch), "") for place, question in enumerate(asked)
            }
            task = self.tasks[epoch % len(self.tasks)]
            for place, grade in _graded(task, texts, self.headline).items():
                found[asked[place].id, epoch] = grade
        return found


@lru_cache(maxsize=4)
def exam(
    task: str,
    data: str | None,
    *,
    limit: int | None,
    shots: int | None,
    epochs: int,
    seed: int,
    headline: str | None,
) -> Exam:
    """The exam that a task makes. Raises InputError where it makes none."""
    with _quietly():
        try:
            tasks = _tasks(task, data, limit=limit, shots=shots, epochs=epochs, seed=seed)
            return _exam(task, tasks, limit=limit, epochs=epochs, headline=headline)
        except InputError:
            raise
        except Exception as error:  # lm-eval and datasets raise whatever their parts raise
            raise InputError(
                f"task {task}: lm-eval {metadata.version('lm_eval')} makes no questions of it: "
                f"{type(error).__name__}: {error}"
            ) from error


def _tasks(
    task: str, data: str | None, *, limit: int | None, shots: int | None, epochs: int, seed: int
) -> list[Any]:
    """The task as lm-eval has it: one an epoch where epochs differ, else one for all of them."""
    if task not in OWN:
        return [_foreign(task, shots)]
    rows = documents.rows(task, data)[:limit]
    each = range(epochs if task == GPQA else 1)
    made = (documents.documents(task, rows, seed=seed, epoch=epoch) for epoch in each)
    return [_own(task, docs, shots) for docs in made]


def _exam(
    task: str, tasks: Sequence[Any], *, limit: int | None, epochs: int, headline: str | None
) -> Exam:
    first = tasks[0]
    told = first.config.metadata or {}
    return Exam(
        name=task,
        version=f"{told.get('version', 0)} {_source(first)[:12]}",
        headline=_headline(first, headline or told.get("headline")),
        withheld=bool(told.get("withheld")),
        shots=first.config.num_fewshot or 0,
        stop=_stops(first),
        questions=tuple(
            question
            for epoch in range(epochs)
            for question in _questions(tasks[epoch % len(tasks)], epoch, limit)
        ),
        tasks=tuple(tasks),
    )


def _own(task: str, docs: list[documents.Document], shots: int | None) -> Any:
    """The task of one of our files, whose documents never touch a disk."""
    file = resources.files("workloads") / "tasks" / f"{task if task == GPQA else GSM8K}.yaml"
    text = file.read_text()
    config = yaml.safe_load(text)
    offered = len(config.get("fewshot_config", {}).get("samples", ()))
    if shots is not None:
        if shots > offered:
            raise InputError(f"task {task}: has {offered} examples to show: write shots: {offered}")
        config["num_fewshot"] = shots
    made = datasets.Dataset.from_list(docs)
    # Compiled once: lm-eval compiles a template anew for every question.
    asking = env.from_string(config["doc_to_text"])
    config |= {
        "task": task,
        "doc_to_text": lambda doc: asking.render(**doc),
        "custom_dataset": lambda **_: {"test": made},
    }
    config["metadata"]["source"] = _hash(text + Path(extraction.__file__).read_text())
    return ConfigurableTask(config=config)


def _foreign(task: str, shots: int | None) -> Any:
    """A task of lm-eval's own, or of a user's file. Raises InputError where it cannot be asked."""
    is_file = task.endswith((".yaml", ".yml"))
    # To look through all of its tasks takes lm-eval a minute; most are called after their files.
    files = [Path(task)] if is_file else sorted(TASKS.glob(f"**/{task}.yaml"))
    by_file = len(files) == 1
    manager = TaskManager(include_defaults=not by_file)
    loaded = manager.load(str(files[0].absolute()) if by_file else task)
    if len(loaded["tasks"]) != 1:
        raise InputError(f"task {task}: stands for {len(loaded['tasks'])} tasks: name one of them")
    (made,) = loaded["tasks"].values()
    unfit = _unfit(made)
    if unfit:
        raise InputError(f"task {task}: {unfit}")
    if shots is not None:
        made.set_config(key="num_fewshot", value=shots)
    made.set_fewshot_seed(seed=1234)
    return made


def _unfit(task: Any) -> str | None:
    """Why a task cannot be asked as chats, if so."""
    config = task.config
    if task.OUTPUT_TYPE != "generate_until":
        return f"has output_type {task.OUTPUT_TYPE}, and only generate_until is text to be graded"
    if config.repeats != 1:
        return f"repeats each question {config.repeats} times: epochs do that here"
    if config.gen_prefix:
        return "begins the answer itself (gen_prefix), which no chat can"
    if "gpqa" in str(config.dataset_path).lower():
        return f"shuffles its choices anew each time: write {GPQA}, which fixes their order"
    if getattr(task, "MULTIMODAL", False) or getattr(task, "UNSAFE_CODE", False):
        return "needs pictures, sound or running code, and only text is asked here"
    return None


def _questions(task: Any, epoch: int, limit: int | None) -> Iterator[Question]:
    task.build_all_requests(
        limit=limit,
        apply_chat_template=True,
        fewshot_as_multiturn=True,
        chat_template=Reciter({}).apply_chat_template,
        tokenizer_name=Reciter.tokenizer_name,
    )
    names = [
        str(one.doc.get("id") or _hash(json.dumps(one.doc, sort_keys=True, default=str)))
        for one in task.instances
    ]
    counts, seen = Counter(names), Counter[str]()
    for name, instance in zip(names, task.instances, strict=True):
        doc, target = instance.doc, task.doc_to_target(instance.doc)
        seen[name] += 1
        # What is there several times says no more than once.
        group = doc.get("group", name if counts[name] > 1 else None)
        yield Question(
            id=name if seen[name] == 1 else f"{name}-{seen[name]}",
            epoch=epoch,
            group=None if group is None else str(group),
            messages=tuple(
                (_ROLES[message["role"]], message["content"])
                for message in orjson.loads(instance.args[0])
            ),
            target=str(target),
        )


def _graded(task: Any, texts: Mapping[int, str], headline: str) -> dict[int, Grade]:
    """The grades of a whole task, by the place of the question."""
    with _quietly():
        try:
            found = evaluate(
                Reciter(texts),
                {"tasks": {task.task_name: task}, "groups": {}, "group_map": {}},
                limit=len(texts),
                bootstrap_iters=0,
                log_samples=True,
                apply_chat_template=True,
                fewshot_as_multiturn=True,
            )
        except Exception as error:  # whatever a task's own functions raise
            raise EngineError(
                f"task {task.task_name} cannot grade the answers, which are kept as they came: "
                f"{type(error).__name__}: {error}"
            ) from error
    _, _, counted = headline.rpartition(",")
    grades: dict[int, tuple[dict[str, float], str | None]] = {}
    for sample in found["samples"][task.task_name]:
        scores, _ = grades.get(sample["doc_id"], ({}, None))
        read = sample["filtered_resps"][0] if sample["filter"] == counted else _
        grades[sample["doc_id"]] = (scores | _scores(sample), read)
    return {
        place: Grade(scores=scores, extracted=None if read in UNREADABLE else str(read))
        for place, (scores, read) in grades.items()
    }


def _scores(sample: Mapping[str, Any]) -> dict[str, float]:
    """The scores of a sample that are numbers; others only mean something over all questions."""
    return {
        f"{metric},{sample['filter']}": float(sample[metric])
        for metric in sample["metrics"]
        if isinstance(sample[metric], int | float)
    }


def _headline(task: Any, wanted: str | None) -> str:
    """The score that counts. Raises InputError where the task gives none, or none of that name."""
    target = str(task.doc_to_target(task.task_docs[0]))
    offered = list(_graded(task, {0: target}, "")[0].scores)
    if not offered:
        raise InputError(f"task {task.task_name}: scores no single question, so none can be paired")
    if wanted is not None and wanted not in offered:
        raise InputError(
            f"headline {wanted}: task {task.task_name} has the scores {'; '.join(offered)}"
        )
    return wanted or offered[0]


def _stops(task: Any) -> tuple[str, ...]:
    until = (task.config.generation_kwargs or {}).get("until") or []
    return tuple(filter(None, [until] if isinstance(until, str) else until))


def _source(task: Any) -> str:
    """A hash of all that makes the task's prompts and grades."""
    told = task.dump_config()
    own = told.get("metadata", {}).get("source")
    return str(own or _hash(json.dumps(told, sort_keys=True, default=str)))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
