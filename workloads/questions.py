"""Questions with known answers: what is asked of a model to see how often it is right."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Gt, Le

from results.errors import InputError
from workloads import documents, recording
from workloads.chat import Chat
from workloads.prompt import Tokens, seed_of
from workloads.session import Key, Session, Turn

if TYPE_CHECKING:
    from workloads.exam import Exam

Share = Annotated[float, Ge(0), Le(1)]

WARMUP_OUTPUT = 8

SEEDS = 1 << 31
"""Seeds are sent below this, since servers read them as whole numbers of 32 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Shares of the answers beyond which a point must not be used."""

    failed: Share = 0.005
    truncated: Share = 0.05
    empty: Share = 0.01
    unparsed: Share = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """Every question of a task once for each of its epochs, graded by lm-eval.

    `task` is gsm8k, gpqa-diamond, paceline-arithmetic, the name of another generative task of
    lm-eval, or a YAML file of one; `data` is a file for the first two, which otherwise come from
    the Hugging Face hub. `limit` takes the first so many, `shots` shows as many examples.
    `max_tokens` bounds an answer with its reasoning. `thinking` is always sent, unless it is null.
    `seed` fixes the order of choices, and with a temperature what each question of each epoch is
    drawn with: the same under every arm and in every repeat. A request that fails is sent again up
    to `retries` times.
    """

    task: str
    max_tokens: Tokens
    kind: Literal["questions"] = "questions"
    data: str | None = None
    limit: Annotated[int, Ge(1), Le(1_000_000)] | None = None
    shots: Annotated[int, Ge(0), Le(64)] | None = None
    epochs: Annotated[int, Ge(1), Le(1000)] = 1
    seed: Annotated[int, Ge(0)] = 0
    thinking: bool | None = False
    effort: str | None = None
    temperature: Annotated[float, Ge(0), Le(2)] = 0.0
    top_p: Annotated[float, Gt(0), Le(1)] = 1.0
    retries: Annotated[int, Ge(0), Le(10)] = 2
    headline: str | None = None
    withheld: bool = False
    limits: Limits = field(default_factory=Limits)

    @property
    def label(self) -> str:
        """The kind and its size, for names and tables."""
        return f"questions {Path(self.task).stem}"

    @property
    def most(self) -> int | None:
        """How many answers it asks for at most, as far as is known before it is loaded."""
        known = documents.SIZES.get(self.task)
        if self.data:
            known = len(documents.rows(self.task, self.data))
        sizes = [size for size in (known, self.limit) if size is not None]
        return min(sizes) * self.epochs if sizes else None

    @property
    def at_hand(self) -> bool:
        """Whether nothing has to be fetched to ask them."""
        return self.data is not None or self.task == documents.ARITHMETIC

    def identity(self) -> dict[str, Any]:
        """Its settings, what its files hold, and the lm-eval that grades it."""
        content = asdict(self)
        for name, path in (("data", self.data), ("task", self._file)):
            if path:
                content[name] = recording.digest(recording.stamps(path))
        return content

    def check(self) -> None:
        """Raises InputError where its file cannot be read, or lm-eval is not there."""
        if find_spec("lm_eval") is None:
            raise InputError(
                "kind questions needs lm-eval, which is not installed: install 'paceline[accuracy]'"
            )
        if self.data and self.task not in documents.OWN:
            raise InputError(f"task {self.task} says itself where its data is: remove data")
        if self.data:
            documents.rows(self.task, self.data)
        elif self._file and not Path(self._file).is_file():
            raise InputError(f"there is no {Path(self._file).absolute()}")

    def exam(self) -> "Exam":
        """All that is asked, and how it is graded. Raises InputError where it cannot be had."""
        self.check()
        # Takes seconds, and only a run needs it.
        from workloads.exam import exam  # noqa: PLC0415

        made = exam(
            self.task,
            self.data,
            limit=self.limit,
            shots=self.shots,
            epochs=self.epochs,
            seed=self.seed,
            headline=self.headline,
        )
        return replace(made, withheld=made.withheld or self.withheld)

    def chats(self) -> Iterator[Chat]:
        """Every question in every epoch, in the words in which it is sent."""
        exam = self.exam()
        for asked in exam.questions:
            drawn = seed_of(self.seed, asked.id, asked.epoch) % SEEDS if self.temperature else None
            yield Chat(
                question=asked.id,
                epoch=asked.epoch,
                messages=asked.messages,
                target=asked.target,
                temperature=self.temperature,
                top_p=self.top_p,
                seed=drawn,
                thinking=self.thinking,
                effort=self.effort,
                retries=self.retries,
                withheld=exam.withheld,
            )

    def sessions(self, seed: int) -> Iterator[Session]:  # noqa: ARG002
        """A session for each question and epoch, whatever the seed of the point."""
        for chat in self.chats():
            yield _session(chat, self.max_tokens)

    def warmup(self, seed: int) -> Iterator[Session]:  # noqa: ARG002
        """The first question, with a short answer that is not graded."""
        yield _session(next(self.chats()), min(WARMUP_OUTPUT, self.max_tokens))

    @property
    def _file(self) -> str | None:
        return self.task if self.task.endswith((".yaml", ".yml")) else None


def _session(chat: Chat, output: int) -> Session:
    turn = Turn(
        key=Key(f"{chat.question}::{chat.epoch}", 0),
        prompt=chat.prompt,
        output=output,
        chat=chat,
    )
    return Session(trace=chat.question, turns=(turn,))
