import numpy as np

from workloads.prompt import MARKER_TOKENS, marked


def test_a_marked_prompt_has_exactly_the_stated_tokens() -> None:
    for tokens in (1, 7, 8, 9, 5000):
        prompt = marked((5, tokens), (6, 3))
        assert prompt.length == tokens + 3
        assert prompt.marker == 0
        assert prompt.tokens[0] == min(MARKER_TOKENS, tokens)
        assert (prompt.tokens > 0).all()


def test_a_salt_changes_content_but_neither_length_nor_hash() -> None:
    prompt = marked((5, 100))
    salted = prompt.salted(77)
    ends = np.array([100])
    assert salted.length == prompt.length
    assert salted.hash == prompt.hash
    assert salted.prefix_hashes(ends) != prompt.prefix_hashes(ends)
