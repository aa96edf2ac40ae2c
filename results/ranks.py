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
    ranks: dict[int, list[RankShare]] = {}
    for share in shares:
        ranks.setdefault(share.rank, []).append(share)
    return tuple(
        RankShare(
            rank=rank,
            requests=sum(one.requests for one in members),
            input_tokens=sum(one.input_tokens for one in members),
            cached_tokens=sum(one.cached_tokens for one in members),
        )
        for rank, members in sorted(ranks.items())
    )
