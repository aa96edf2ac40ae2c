"""Change points in simulated histories: false ones in <= 5 % of those without a change.

Independent normal runs, 10, 20 and 40 of them, show a change in no more than 5 % of 2,000 histories
each, and twice the error of that share. A step of three standard deviations in the middle of 20
runs is found in >= 90 % of 2,000, within one run of where it is, and lies in its blame range in >=
90 %. 20 metrics over 200 runs, half of them with a step, take <= 30 s. Prints its figure last, and
exits 0 only when all of it is reached.
"""

import sys
import time
from math import sqrt

import numpy as np

from results.changes import LEVEL, changes

HISTORIES, LENGTHS = 2000, (10, 20, 40)
STEP, RUNS, FOUND = 3.0, 20, 0.9
METRICS, LONG, SECONDS = 20, 200, 30.0


def false_alarms(random: np.random.Generator, length: int) -> float:
    """The share of histories without a change that show one."""
    found = sum(bool(changes(random.normal(size=length), seed=n)) for n in range(HISTORIES))
    return found / HISTORIES


def located(random: np.random.Generator) -> tuple[float, float]:
    """In what share a step is found within one run, and in what share the blame range holds it."""
    middle, near, held = RUNS // 2, 0, 0
    for number in range(HISTORIES):
        series = random.normal(size=RUNS) + STEP * (np.arange(RUNS) >= middle)
        splits = changes(series, seed=number)
        near += any(abs(split.at - middle) <= 1 for split in splits)
        held += any(split.low <= middle <= split.high for split in splits)
    return near / HISTORIES, held / HISTORIES


def seconds(random: np.random.Generator) -> float:
    """How long 20 metrics over 200 runs take."""
    series = random.normal(size=(METRICS, LONG))
    series[::2, LONG // 2 :] += 1
    began = time.process_time()
    for number, each in enumerate(series):
        changes(each, seed=number)
    return time.process_time() - began


def main() -> int:
    random = np.random.default_rng(9)
    error = sqrt(LEVEL * (1 - LEVEL) / HISTORIES)
    rates = {length: false_alarms(random, length) for length in LENGTHS}
    for length, rate in rates.items():
        print(f"{length} runs without a change: {rate:.1%} of {HISTORIES} histories show one")
    near, held = located(random)
    print(f"a step of {STEP:g} deviations in {RUNS} runs: {near:.1%} found within one run of it")
    print(f"its blame range holds it in {held:.1%}")
    took = seconds(random)
    print(f"{METRICS} metrics over {LONG} runs: {took:.1f} s")
    good = max(rates.values()) <= LEVEL + 2 * error and min(near, held) >= FOUND
    print(f"false changes: at most {max(rates.values()):.1%}; steps found: {near:.1%}")
    return 0 if good and took <= SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
