"""Requests find their data-parallel ranks: by a header, by an address, or behind a router."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from harness.client import Request
from harness.endpoint import Endpoint
from harness.engine import Deployment
from harness.topology import parse
from results.errors import UnsupportedError
from tests.scripted_server import DONE, c, script, serving, u
from workloads.prompt import marked

STREAM = script((0, c("a") + u(16, 4) + DONE))


def sent(tmp_path, ranks, **settings):
    """The ranks in the replies to requests of these ranks, and what each of two servers saw."""

    async def main():
        async with AsyncExitStack() as stack:
            servers = [await stack.enter_async_context(serving(STREAM)) for _ in range(2)]
            urls = tuple(server.url for server in servers)
            by_port = settings.get("affinity") == "port"
            rank_urls = {"rank_urls": urls} if by_port else {}
            endpoint = Endpoint(url=urls[0], model="m", **rank_urls, **settings)
            deployment = Deployment(engine=endpoint, topology=parse("DP2"))
            log = tmp_path / "log"
            running = await stack.enter_async_context(
                endpoint.start(deployment, seed=1, log=log, keys={})
            )
            replies = []
            for number, rank in enumerate(ranks):
                request = Request(
                    id=f"r{number}", prompt=marked((1, 16)), output=4, session="s", rank=rank
                )
                replies.append(
                    await running.client.send(request, cut=asyncio.Event(), on_first=lambda _: None)
                )
            posts = [
                [
                    (asked.headers["x-request-id"], asked.headers.get("x-data-parallel-rank"))
                    for asked in server.asked
                    if asked.headers.get("x-request-id", "").startswith("r")
                ]
                for server in servers
            ]
            return [reply.rank for reply in replies], posts

    return asyncio.run(main())


def test_a_rank_is_named_in_a_header(tmp_path):
    assert sent(tmp_path, [1, None]) == ([1, None], [[("r0", "1"), ("r1", None)], []])


def test_a_rank_is_asked_at_its_address(tmp_path):
    found = sent(tmp_path, [1, 0, 1], affinity="port")
    assert found == ([1, 0, 1], [[("r1", None)], [("r0", None), ("r2", None)]])


def test_requests_of_no_rank_go_to_each_address_in_turn(tmp_path):
    ranks, posts = sent(tmp_path, [None] * 4, affinity="port")
    # The request that the endpoint was tried with was the first.
    assert ranks == [1, 0, 1, 0]
    assert [len(asked) for asked in posts] == [2, 2]


def test_behind_a_router_no_rank_is_named_and_none_is_known(tmp_path):
    assert sent(tmp_path, [1], affinity="router") == ([None], [[("r0", None)], []])


def test_addresses_and_affinity_go_together():
    with pytest.raises(ValueError, match="state both or neither"):
        Endpoint(url="http://a", model="m", affinity="port")
    with pytest.raises(ValueError, match="state both or neither"):
        Endpoint(url="http://a", model="m", rank_urls=("http://a",))
    endpoint = Endpoint(url="http://a", model="m", rank_urls=("http://a",), affinity="port")
    with pytest.raises(UnsupportedError, match="states 1 rank_urls, and DP2 has 2 ranks"):
        endpoint.describe(Deployment(engine=endpoint, topology=parse("DP2")))
