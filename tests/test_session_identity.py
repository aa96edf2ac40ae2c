"""By which headers a router knows what belongs together."""

import asyncio
from dataclasses import replace

from tests.scripted_server import DONE, ask, c, client, request, script, serving, u


def test_a_tree_has_one_session_id_and_each_of_its_streams_a_correlation_id() -> None:
    async def main() -> list[dict[str, str]]:
        answer = script((0, c("a") + u(1, 1) + DONE))
        sent = [
            replace(request("r1"), session="p-0-main", tree="p-0"),
            replace(request("r2"), session="p-0-sub", tree="p-0"),
            request("r3"),
        ]
        async with serving(answer) as server, client(server.url) as sender:
            for one in sent:
                await ask(sender, one)
            return [asked.headers for asked in server.asked]

    names = ("x-request-id", "x-session-id", "x-correlation-id")
    assert [tuple(headers[name] for name in names) for headers in asyncio.run(main())] == [
        ("r1", "p-0", "p-0-main"),
        ("r2", "p-0", "p-0-sub"),
        ("r3", "s1", "s1"),
    ]
