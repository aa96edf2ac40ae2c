import pytest

from results.errors import InputError
from suites.reading import DEPTH, Problem, place, read


def value_of(text):
    value, problems = read(text, "s.yaml")
    assert problems == []
    return value


def error_of(text):
    with pytest.raises(InputError) as caught:
        read(text, "s.yaml")
    return str(caught.value)


@pytest.mark.parametrize("word", ["on", "off", "yes", "no", "On", "OFF", "True", "y", "n"])
def test_only_true_and_false_are_booleans(word):
    assert value_of(f"a: [true, {word}, false]") == {"a": [True, word, False]}
    assert value_of(f"{word}: 1") == {word: 1}


@pytest.mark.parametrize("word", ["1:30", "010", "1_000", "0x10", "2001-01-01", ".inf", "1e999"])
def test_what_only_looks_like_a_number_stays_text(word):
    assert value_of(f"a: {word}") == {"a": word}


@pytest.mark.parametrize(
    ("text", "number"), [("8", 8), ("+5", 5), ("-3", -3), ("0", 0), ("1e3", 1e3), (".5", 0.5)]
)
def test_numbers_are_decimal(text, number):
    value = value_of(f"a: {text}")["a"]
    assert value == number
    assert type(value) is type(number)


def test_nothing_is_none():
    assert value_of("{a: , b: null, c: ~}") == {"a": None, "b": None, "c": None}
    assert value_of("") is None


def test_a_quoted_or_tagged_value_is_text():
    assert value_of("a: ['true', \"8\", !!str 8]") == {"a": ["true", "8", "8"]}


def test_every_key_that_is_written_twice_is_a_problem():
    value, problems = read("a: 1\nb:\n  - {c: 1, c: 2}\na: 3\n", "s.yaml")
    assert value == {"a": 1, "b": [{"c": 1}]}
    assert problems == [
        Problem(("b", 0, "c"), "expected a key once, got it again on line 3: remove one of them"),
        Problem(("a",), "expected a key once, got it again on line 4: remove one of them"),
    ]


def test_merged_mappings_give_way_to_what_is_written():
    text = "a: &a {x: 1, y: 1}\nb: &b {x: 2, z: 2}\nc: {<<: [*a, *b], y: 3}"
    assert value_of(text)["c"] == {"x": 1, "z": 2, "y": 3}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: 1\nb: c: d", "s.yaml:2:5: mapping values are not allowed here: correct the YAML"),
        ("a: [1", "s.yaml:1:4: the [ here is never closed: add the ]"),
        ("a: {x: [1], y: 2\n", "s.yaml:1:4: the { here is never closed: add the }"),
        ("a: 1\nb: 'x\nc: 2", "s.yaml:2:4: the ' here is never closed: add the other '"),
        (
            "a: 1\nb: [TP4, DEP2\nc: [off, on]\nd: {x: 1}\n",
            "s.yaml:2:4: the [ here is not closed before line 3: "
            "add the ] or the comma that is missing",
        ),
        (
            'a: ["x" "y"]',
            "s.yaml:1:4: the [ here is not closed before column 9: "
            "add the ] or the comma that is missing",
        ),
        (
            "a: [@]",
            "s.yaml:1:5: while scanning for the next token, found character '@' that cannot start "
            "any token: correct the YAML",
        ),
        (
            "a: &x 1\nb: &x 2",
            "s.yaml:2:4: found duplicate anchor 'x'; first occurrence, second occurrence: "
            "correct the YAML",
        ),
        ("a: *b", "s.yaml:1:4: found undefined alias 'b': correct the YAML"),
        (
            "--- 1\n--- 2",
            "s.yaml:2:1: expected a single document in the stream, but found another document: "
            "correct the YAML",
        ),
        ("? [a]\n: b", "s.yaml:1:3: a key must be a plain name: correct the YAML"),
        ("a: !foo b", "s.yaml:1:4: the tag !foo means nothing here: correct the YAML"),
        ("a: {<<: 3}", "s.yaml:1:9: << merges mappings only: correct the YAML"),
        ('a: "\\ud800"', "s.yaml:1:4: half of a surrogate pair is not text: correct the YAML"),
    ],
)
def test_what_is_not_yaml_has_a_line_and_a_column(text, sentence):
    assert error_of(text) == sentence


def test_characters_that_do_not_exist_are_refused():
    assert error_of("a: \0").startswith("s.yaml: unacceptable character #x0000")
    assert error_of('a: "\\UFFFFFFFF"').startswith("s.yaml: is not YAML")


def test_python_objects_are_not_made():
    sentence = "the tag tag:yaml.org,2002:python/name:os.system means nothing here"
    assert error_of("!!python/name:os.system a") == f"s.yaml:1:1: {sentence}: correct the YAML"


def test_aliases_cannot_multiply_without_end():
    lines = ["a0: &a0 [1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "aliases make more than 100,000 values" in error_of("\n".join(lines))
    assert "aliases make more than 100,000 values" in error_of("a: &a [*a]")
    assert "aliases make more than 100,000 values" in error_of("a: &a {<<: *a}")


def test_nesting_has_an_end():
    sentence = f"is nested deeper than {DEPTH}: correct the YAML"
    assert error_of("[" * 100_000) == f"s.yaml:1:{DEPTH + 1}: {sentence}"


def test_a_path_is_written_as_people_write_it():
    assert place(("experiments", 1, "load", "concurrency", 2)) == (
        "experiments[1].load.concurrency[2]"
    )
    assert place(("a\nb", "c")) == '["a\\nb"].c'
