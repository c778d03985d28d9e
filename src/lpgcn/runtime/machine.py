"""The machine under an engine of tables: compiled kernels and ranking, on so many threads."""

from __future__ import annotations

from dataclasses import dataclass, field

from lpgcn.evaluation import Ranker
from lpgcn.model.kernels import Kernels
from lpgcn.model.kernels.threads import Threads


@dataclass(frozen=True)
class Machine:
    """The bits do not depend on it, unless a compared method takes the threads for torch."""

    kernels: Kernels
    ranker: Ranker
    threads: Threads = field(default_factory=Threads)

    @classmethod
    def with_threads(cls, count: int | None = None) -> Machine:
        """As many threads as there are processors, if no number is given."""
        # numba takes a good part of a second to import, and a client has no tables.
        from lpgcn.evaluation.compiled import CompiledRanker
        from lpgcn.model.kernels.compiled import Compiled

        threads = Threads(count)
        return cls(Compiled(threads), CompiledRanker(threads), threads)
