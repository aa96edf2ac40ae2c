"""Word problems of our own making, generated from a seed, with answers that are worked out."""

import random
from collections.abc import Callable, Iterator

from workloads.prompt import seed_of

QUESTIONS = 400

_NAMES = ("Ada", "Ben", "Chiara", "Dev", "Emeka", "Fay", "Goran", "Hana", "Ines", "Jonas")
_THINGS = ("apples", "stamps", "marbles", "postcards", "pencils", "buttons", "shells", "coins")
_GOODS = ("loaves of bread", "jars of honey", "bags of rice", "boxes of tea", "bars of soap")

Made = tuple[str, tuple[str, ...], int]
"""A question, the lines that work it out, and the answer."""


def questions() -> Iterator[dict[str, str]]:
    """All of them, the same every time; rows as of GSM8K, with an `id`."""
    for number in range(QUESTIONS):
        draw = random.Random(seed_of("arithmetic", number))  # noqa: S311 - the same for everybody
        asked, lines, answer = _KINDS[number % len(_KINDS)](draw)
        worked = "\n".join([*lines, f"#### {answer}"])
        yield {"id": f"arithmetic-{number}", "question": asked, "answer": worked}


def _shared(draw: random.Random) -> Made:
    name, thing = draw.choice(_NAMES), draw.choice(_THINGS)
    each, friends, kept = draw.randint(3, 30), draw.randint(2, 9), draw.randint(2, 40)
    given = each * friends
    return (
        f"{name} gives {each} {thing} to each of {friends} friends and keeps {kept}. How many "
        f"{thing} did {name} have at first?",
        (
            f"{name} gives away {each} * {friends} = {given} {thing}.",
            f"With those kept that is {given} + {kept} = {given + kept}.",
        ),
        given + kept,
    )


def _shopping(draw: random.Random) -> Made:
    name, one, other = draw.choice(_NAMES), *draw.sample(_GOODS, 2)
    many, price, more, cost = (draw.randint(2, 12) for _ in range(4))
    first, second = many * price, more * cost
    paid = -(-(first + second) // 50) * 50
    return (
        f"{name} buys {many} {one} at ${price} each and {more} {other} at ${cost} each, and pays "
        f"with ${paid}. How many dollars does {name} get back?",
        (
            f"The {one} cost {many} * {price} = {first} dollars.",
            f"The {other} cost {more} * {cost} = {second} dollars.",
            f"Together they cost {first} + {second} = {first + second} dollars.",
            f"{name} gets back {paid} - {first + second} = {paid - first - second} dollars.",
        ),
        paid - first - second,
    )


def _journey(draw: random.Random) -> Made:
    name, fast, slow = draw.choice(_NAMES), draw.randint(40, 110), draw.randint(3, 6)
    hours, walked = draw.randint(2, 8), draw.randint(2, 4)
    ridden, feet = fast * hours, slow * walked
    return (
        f"{name} rides a train at {fast} km/h for {hours} hours and then walks at {slow} km/h for "
        f"{walked} hours. How many kilometres is that in all?",
        (
            f"By train it is {fast} * {hours} = {ridden} km.",
            f"On foot it is {slow} * {walked} = {feet} km.",
            f"In all it is {ridden} + {feet} = {ridden + feet} km.",
        ),
        ridden + feet,
    )


def _wages(draw: random.Random) -> Made:
    name, rate, extra = draw.choice(_NAMES), draw.randint(11, 40), draw.randint(2, 9)
    hours, over, weeks = draw.randint(20, 40), draw.randint(2, 10), draw.randint(2, 6)
    usual, more = rate * hours, (rate + extra) * over
    return (
        f"{name} earns ${rate} an hour for {hours} hours a week, and ${extra} more than that for "
        f"each of {over} hours of overtime. How many dollars are that in {weeks} weeks?",
        (
            f"The usual hours bring {rate} * {hours} = {usual} dollars.",
            f"An hour of overtime brings {rate} + {extra} = {rate + extra} dollars.",
            f"Overtime brings {rate + extra} * {over} = {more} dollars.",
            f"A week brings {usual} + {more} = {usual + more} dollars.",
            f"{weeks} weeks bring {usual + more} * {weeks} = {(usual + more) * weeks} dollars.",
        ),
        (usual + more) * weeks,
    )


def _discount(draw: random.Random) -> Made:
    name, thing = draw.choice(_NAMES), draw.choice(("coat", "lamp", "bicycle", "table"))
    price, percent, fee = (
        draw.randint(2, 30) * 20,
        draw.choice((5, 10, 15, 20, 25)),
        draw.randint(3, 19),
    )
    less = price * percent // 100
    return (
        f"A {thing} costs ${price} and is sold {percent}% cheaper. Delivery is ${fee}. How many "
        f"dollars does {name} pay for the {thing} and its delivery?",
        (
            f"The {thing} is {price} * {percent} / 100 = {less} dollars cheaper.",
            f"It is sold for {price} - {less} = {price - less} dollars.",
            f"With delivery that is {price - less} + {fee} = {price - less + fee} dollars.",
        ),
        price - less + fee,
    )


def _ages(draw: random.Random) -> Made:
    young, old = draw.sample(_NAMES, 2)
    age, times, years = draw.randint(3, 15), draw.randint(2, 5), draw.randint(2, 20)
    return (
        f"{old} is {times} times as old as {young}, who is {age}. How old will both together be in "
        f"{years} years?",
        (
            f"{old} is {times} * {age} = {times * age}.",
            f"Together they are {age} + {times * age} = {age + times * age}.",
            f"In {years} years each is {years} older, so that is 2 * {years} = {2 * years} more.",
            f"{age + times * age} + {2 * years} = {age + times * age + 2 * years}.",
        ),
        age + times * age + 2 * years,
    )


def _rows(draw: random.Random) -> Made:
    lines, seats, empty = draw.randint(8, 30), draw.randint(10, 40), draw.randint(5, 60)
    price, all_seats = draw.randint(4, 25), lines * seats
    taken = all_seats - empty
    return (
        f"A theatre has {lines} rows of {seats} seats, and {empty} of its seats are empty. A seat "
        f"costs ${price}. How many dollars were paid for the others?",
        (
            f"There are {lines} * {seats} = {all_seats} seats.",
            f"{all_seats} - {empty} = {taken} of them are taken.",
            f"They brought {taken} * {price} = {taken * price} dollars.",
        ),
        taken * price,
    )


def _baking(draw: random.Random) -> Made:
    name, cakes, eggs = draw.choice(_NAMES), draw.randint(3, 15), draw.randint(2, 6)
    have, box = draw.randint(0, 5), draw.choice((6, 10, 12))
    needed = cakes * eggs
    short = needed - have
    boxes = -(-short // box)
    return (
        f"{name} bakes {cakes} cakes with {eggs} eggs each and has {have} eggs at home. Eggs come "
        f"in boxes of {box}. How many boxes must {name} buy?",
        (
            f"The cakes need {cakes} * {eggs} = {needed} eggs.",
            f"{needed} - {have} = {short} eggs are missing.",
            f"{short} / {box}, rounded up, is {boxes} boxes.",
        ),
        boxes,
    )


_KINDS: tuple[Callable[[random.Random], Made], ...] = (
    _shared,
    _shopping,
    _journey,
    _wages,
    _discount,
    _ages,
    _rows,
    _baking,
)
