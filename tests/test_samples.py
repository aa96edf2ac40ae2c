"""A server's counters: read from its page, kept with a point, and held against its requests."""

import asyncio

import orjson
import pytest

from harness.sampling import labelled, sampled, values
from results import samples
from results.samples import Sample, disagreements, increase, strays
from results.validity import problems
from results.writer import PointWriter
from tests.scripted_server import client, serving, whole
from tests.test_results_record import cell, evidence, failed, made, table

PAGE = r"""# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="nano"} 16.0
vllm:prompt_tokens_total{model_name="nano",engine="1"} 1.6e+03 1395066363000
vllm:prompt_tokens_created{engine="0"} 1.79e+09
odd{path="C:\\DIR\"a } b\"",text="two\nlines, {x}"} 3
empty{} 4
bare 7
endless{le="+Inf"} +Inf
seconds_bucket{engine="0",le="0.1"} 5
nothing NaN
broken
"""


def test_a_page_is_read_into_series_and_values():
    assert [value for _, value in values(PAGE.splitlines())] == [16, 1600, 3, 4, 7, float("inf")]
    names = [labelled(series) for series, _ in values(PAGE.splitlines())]
    assert [name for name, _ in names][2:] == ["odd", "empty", "bare", "endless"]
    assert names[1] == ("vllm:prompt_tokens_total", '{"engine":"1","model_name":"nano"}')
    assert orjson.loads(names[2][1]) == {"path": 'C:\\DIR"a } b"', "text": "two\nlines, {x}"}


def rises(*values_of, name="vllm:prompt_tokens_total", labels="{}"):
    """A counter that had these values, one a second."""
    return [
        Sample(moment=float(n), source="s", name=name, labels=labels, value=value)
        for n, value in enumerate(values_of)
        if value is not None
    ]


def kept(*series):
    return samples.pa.Table.from_batches([samples.batch([row for rows in series for row in rows])])


def test_a_counter_rises_from_the_first_look_or_from_nothing():
    told = kept(rises(10, 15, 40), rises(None, 5, 7, labels='{"a":"b"}'), rises(1, 9, name="other"))
    assert increase(told, "vllm:prompt_tokens_total") == {("s", "{}"): 30, ("s", '{"a":"b"}'): 7}
    assert increase(told, "absent") == {}


def complaints(rows, *series):
    return list(disagreements(table(*rows), kept(*series)))


def test_counters_and_requests_add_up():
    rows = [made(input_tokens=100, output_tokens=8), made(input_tokens=50, output_tokens=4)]
    generated = "vllm:generation_tokens_total"
    assert complaints(rows, rises(7, 157), rises(0, 12, name=generated)) == []
    (words,) = complaints(rows, rises(0, 250), rises(0, 12, name=generated))
    assert words.startswith("the server counted 250 prompt tokens, and the requests add up to 150:")


def counted(rank, tokens):
    return rises(7, 7 + tokens, labels=f'{{"engine":"{rank}"}}')


def test_a_rank_counts_what_was_sent_to_it():
    rows = [made(rank=0, input_tokens=100), made(rank=1, input_tokens=50)]
    never = failed(rank=None, sent=None, input_tokens=None)
    assert not list(strays(table(*rows, never), kept(counted(0, 100), counted(1, 50))))
    words = list(strays(table(*rows), kept(counted(0, 50), counted(1, 100))))
    assert words[0].startswith(
        "rank 0 counted 50 prompt tokens, and the requests that were sent to it add up to 100:"
    )
    assert len(words) == 2
    told = kept(counted(0, 50), counted(1, 100))
    assert not complaints(rows, counted(0, 50), counted(1, 100))
    assert "did not stay at their ranks" in "".join(
        problems(table(*rows), cell(), evidence(), told)
    )


@pytest.mark.parametrize("named", [(None, 1), (None, None)])
def test_requests_of_no_rank_show_nothing_of_it(named):
    rows = [made(rank=rank, input_tokens=100) for rank in named]
    assert not list(strays(table(*rows), kept(counted(0, 200), counted(1, 0))))


@pytest.mark.parametrize(("counted", "fits"), [(99, False), (100, True), (164, True), (165, False)])
def test_a_request_that_was_cut_may_have_taken_up_to_what_it_asked_for(counted, fits):
    cut = made(state="cut", reason="cut", asked_input=64, input_tokens=None, output_tokens=None)
    rows = [made(input_tokens=100), cut, failed(status=400, input_tokens=None)]
    assert (complaints(rows, rises(0, counted)) == []) is fits


def test_a_counter_that_falls_shows_another_server():
    assert "started again" in complaints([made()], rises(500, 0))[0]


def test_a_point_whose_requests_do_not_add_up_is_invalid():
    rows = table(made(input_tokens=100))
    told = kept(rises(0, 250))
    words = problems(rows, cell(), evidence(), told)
    assert [line for line in words if "counted 250" in line]
    assert not [line for line in problems(rows, cell(), evidence()) if "counted" in line]


def test_a_server_is_looked_at_until_the_end_and_only_changes_are_kept(tmp_path):
    pages = iter([b"a 1\nb 1\n", b"a 1\nb 2\n"])

    async def answer(asked, reader, writer):
        page = next(pages, None)
        status = "503 Not Now" if page is None else "200 OK"
        await whole(status, page or b"", "text/plain")(asked, reader, writer)

    async def main():
        writer = PointWriter(tmp_path)
        async with serving(answer) as server, client(server.url) as asking:
            async with sampled(asking.page("/metrics"), writer.add_samples):
                growing = samples.read(tmp_path)
            async with sampled(asking.page("/metrics"), writer.add_samples):
                pass
        assert {asked.path for asked in server.asked} == {"/metrics"}
        writer.finish("finished", None, None, None)
        return growing

    growing = asyncio.run(main())
    assert growing["name"].to_pylist() == ["up", "a", "b"]
    assert growing["moment"].to_pylist() == [0, 0, 0]
    told = samples.read(tmp_path)
    assert told["name"].to_pylist() == ["up", "a", "b", "up", "b", "up", "up"]
    assert told["value"].to_pylist() == [1, 1, 1, 1, 2, 0, 0]
    assert not (tmp_path / "server.arrow").exists()


def test_without_an_address_nothing_is_kept(tmp_path):
    async def main():
        writer = PointWriter(tmp_path)
        async with sampled(None, writer.add_samples):
            pass
        writer.finish("finished", None, None, None)

    asyncio.run(main())
    assert samples.read(tmp_path) is None
    assert not (tmp_path / "server.parquet").exists()


def test_samples_of_an_earlier_attempt_are_not_taken_for_those_of_this_one(tmp_path):
    writer = PointWriter(tmp_path)
    writer.add_samples(rises(1))
    writer.abandon()
    assert samples.read(tmp_path).num_rows == 1
    PointWriter(tmp_path).abandon()
    assert samples.read(tmp_path) is None


def looks(*answered):
    return [
        Sample(moment=float(n), source="s", name="up", labels="{}", value=float(value))
        for n, value in enumerate(answered)
    ]


@pytest.mark.parametrize(
    ("answered", "when"), [((0, 1, 1), "at the start"), ((1, 1, 0), "any more at the end")]
)
def test_counters_that_were_not_told_throughout_prove_nothing(answered, when):
    told = kept(looks(*answered), rises(1_000_000.0, 1_001_000.0))
    sentence = f"the server did not tell its counters {when}, so they could not be checked"
    assert list(disagreements(table(made([0.5])), told)) == [sentence]


def test_hits_of_a_server_that_tells_requests_nothing_are_bounded_by_what_was_sent_before():
    # A cold prompt of 1,000 tokens of which the server found 960 in its cache.
    told = kept(looks(1, 1), rises(0.0, 960.0, name="vllm:prefix_cache_hits_total"))
    assert list(disagreements(table(made([0.5], cached_tokens=None)), told))
    known = made([0.5], cached_tokens=None, ceiling_tokens=960)
    assert not list(disagreements(table(known), told))
