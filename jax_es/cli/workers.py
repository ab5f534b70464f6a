"""``--workers`` and ``--cluster``, of every program that evaluates."""

import contextlib
import dataclasses
from typing import TYPE_CHECKING

from jax_es.checks import Count

if TYPE_CHECKING:
    from jax_es.distributed.workers import Workers


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerArguments:
    """Options that say who evaluates."""

    workers: Count | None = None
    """Evaluate in this many processes of one core each (extra distributed). Numbers do
    not depend on how many there are or die. One process with all cores if not given."""
    cluster: str | None = None
    """HOST:PORT of a running Ray cluster, on whose nodes the workers are; one for each
    of its cores if --workers is not given."""

    @property
    def has_workers(self) -> bool:
        """Whether this process leaves episodes to others."""
        return self.workers is not None or self.cluster is not None

    def open(self, stack: contextlib.ExitStack) -> "Workers | None":
        """Starts the workers, which end with ``stack``; None without any."""
        if not self.has_workers:
            return None
        from jax_es.distributed.session import open_workers

        return stack.enter_context(open_workers(self.workers, self.cluster))
