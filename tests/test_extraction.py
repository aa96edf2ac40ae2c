"""Answers found in hard words: ours, and what lm-eval's two ways make of the same."""

import re

import pytest

from workloads.extraction import answer_part, letter, number

STRICT = re.compile(r"#### (\-?[0-9\.\,]+)")
FLEXIBLE = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")


def strict(text):
    found = STRICT.findall(text)
    return found[0] if found else None


def flexible(text):
    found = FLEXIBLE.findall(text)
    return next(filter(None, found[-1])) if found else None


# fmt: off
NUMBERS = [
    # text, ours, lm-eval's strict-match, lm-eval's flexible-extract
    ("2 * 9 = 18\n#### 18", "18", "18", "18"),
    ("She makes $18.00 a day.", "18", None, "$18.00"),
    ("So the answer is 18...", "18", None, "18..."),
    ("#### $18.00", "18", None, "$18.00"),
    ("#### 1,234.50", "1234.5", "1,234.50", "1,234.50"),
    ("#### 18 dollars a day", "18", "18", "18"),
    ("#### -7", "-7", "-7", "-7"),
    ("#### −$7", "-7", None, "$7"),
    ("It costs -$7.50 in the end", "-7.5", None, "-$7.50"),
    ("The answer is $\\boxed{18}$.", "18", None, "$."),
    ("\\boxed{\\$1{,}800}", "1800", None, "800"),
    ("\\[ x = \\boxed{\\frac{3}{4}} \\]", "0.75", None, "4"),
    ("\\boxed{18\\%}", "18", None, "18"),
    ("\\boxed{18 \\text{ eggs}}", "18", None, "18"),
    ("The total is **18** eggs, out of 20 she had.", "18", None, "20"),
    ("**Answer: 18 dollars** (after 3 days)", "18", None, "3"),
    ("**Final answer:** 42", "42", None, "42"),
    ("The answer is 20 - 2 = 18 apples", "18", None, "18"),
    ("Answer: 5 + 6 = 11. Check: 11 - 6 = 5.", "5", None, "5."),
    ("The answer is 5.\nNo, wait.\nThe answer is 6.", "6", None, "6."),
    ("#### 5\nThat is wrong.\n#### 6", "6", "5", "6"),
    ("First 3, then 4, and at last 7", "7", None, "7"),
    ("It is 1 1/2 hours", "1.5", None, "2"),
    ("They ate 3/4 of it", "0.75", None, "4"),
    ("the answer is 1/3", "1/3", None, "3"),
    ("about 1.5 million people", "1500000", None, "1.5"),
    ("18% of them", "18", None, "18"),
    ("18kg", "18", None, "18"),
    ("3,200,000", "3200000", None, "3,200,000"),
    ("It took 5 days, 6, 7", "7", None, "7"),
    ("#### Step 2: add them up\nThe answer is 9", "9", None, "9"),
    (".5", "0.5", None, ".5"),
    ("0.50", "0.5", None, "0.50"),
    ("#### **18**", "18", None, "18"),
    ("####18", "18", None, "18"),
    ("I cannot tell.", None, None, None),
    ("", None, None, None),
    ("1/0", None, None, "0"),
    ("<think>It may be 3 or 4.</think>The answer is 5", "5", None, "5"),
    ("<think>It may be 3 or 4.", None, None, "4."),
    ("The price is x2 and then $ 18", "18", None, "18"),
    ("Since 2024-05-18", "18", None, "-18"),
    ("In sum:\n- 18 eggs", "18", None, "18"),
    ("It takes 10–12 days", "12", None, "12"),
    ("**Step 1:** 7 + 2 = 9\n**Step 2:** 9 * 2 = 18\nSo it is $18.", "18", None, "$18."),
    ("**1. Add them**\nIt comes to 18 in **all**", "18", None, "18"),
    ("The correct answer is not 20 but 18", "18", None, "18"),
    ("**Final Answer**\n\n540 meters (3 sprints of 180)", "540", None, "180"),
    ("\\boxed{12 000}", "12000", None, "000"),
    ("It is 12\u202f000 in 3 rows: **12\u202f000**", "12000", None, "000"),
]

LETTERS = [
    ("The answer is (C)", "C"),
    ("the answer is C.", "C"),
    ("Answer: B", "B"),
    ("**Answer: (D)**", "D"),
    ("**Answer:** D", "D"),
    ("\\boxed{A}", "A"),
    ("\\boxed{\\text{(b)}}", "B"),
    ("I would choose **C** here.", "C"),
    ("**C) 12 metres**", "C"),
    ("(A) is too small, (B) too large, so it is (D)", "D"),
    ("The answer is not (A). The answer is (B).", "B"),
    ("The answer is (A).\nOn reflection, the answer is (C).", "C"),
    ("The answer is a matter of taste.", None),
    ("Answer: A good question, so hard to say", None),
    ("The answer is option B", "B"),
    ("The correct answer is:\n\nC", "C"),
    ("B.", "B"),
    ("I'm sure about nothing", None),
    ("", None),
    ("<think>The answer is (A)</think>The answer is (B)", "B"),
    ("<think>The answer is (A)", None),
    ("Option (B) is correct, since (A) is too large.", "B"),
    ("So (B) is right; (C) and (D) are wrong.", "B"),
    ("The answer is B because it falls", "B"),
    ("The answer is `B`", "B"),
    ("The answer is [B]", "B"),
    ("The answer is \\textbf{B}", "B"),
    ("the right answer should be C", "C"),
    ("The best answer is therefore C", "C"),
    ("The correct choice is B.", "B"),
    ("\\boxed{\\text{B. 12 m}}", "B"),
    ("\\boxed{B) 12}", "B"),
    ("<answer>B</answer>", "B"),
    ("## B", "B"),
    ("The answer is D-glucose", None),
]
# fmt: on


@pytest.mark.parametrize(("text", "ours", "lm_strict", "lm_flexible"), NUMBERS)
def test_a_number_is_found_in_its_words(text, ours, lm_strict, lm_flexible):
    assert number(text) == ours
    assert strict(text) == lm_strict
    assert flexible(text) == lm_flexible


@pytest.mark.parametrize(("text", "ours"), LETTERS)
def test_a_letter_is_found_in_its_words(text, ours):
    assert letter(text) == ours


def test_reasoning_that_the_server_did_not_tell_apart_is_no_answer():
    assert answer_part("<think>a</think>b<think>c</think>d") == "d"
    assert answer_part("plain") == "plain"
    assert answer_part("  <think>never ended") == "  "
