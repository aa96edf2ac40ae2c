"""How requests and cache hits fell on data-parallel ranks."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from results.columns import number, of_phase
from results.figure import RankShare


def by_rank(rows: pa.Table) -> tuple[RankShare, ...]:
    """One share a rank, over the requests of the window; none where there is only one rank."""
    window = of_phase(rows)
    rank, cached = number(window, "rank"), number(window, "cached_tokens")
    asked, reported = number(window, "asked_input"), number(window, "input_tokens")
    tokens = np.where(np.isnan(reported), asked, reported)
    told = ~np.isnan(cached)
    shares = tuple(
        RankShare(
            rank=int(each),
            requests=int((rank == each).sum()),
            input_tokens=int(tokens[told & (rank == each)].sum()),
            cached_tokens=int(cached[told & (rank == each)].sum()),
        )
        for each in np.unique(rank[~np.isnan(rank)])
    )
    return shares if len(shares) > 1 else ()


def added(shares: Iterable[RankShare]) -> tuple[RankShare, ...]:
    """The shares of several runs, a rank at a time."""
    sums: dict[int, RankShare] = {}
    for share in shares:
        held = sums.get(share.rank)
        sums[share.rank] = (
            share
            if held is None
            else RankShare(
                rank=share.rank,
                requests=held.requests + share.requests,
                input_tokens=held.input_tokens + share.input_tokens,
                cached_tokens=held.cached_tokens + share.cached_tokens,
            )
        )
    return tuple(sums[rank] for rank in sorted(sums))
