"""Workers, and jobs that survive them.

A job is a call of a method of the engine that every worker made from one recipe. It
goes to whichever worker is free; results are taken in the order of the jobs. A worker
that dies, hangs or runs out of memory is replaced where that is possible, and its job
runs again. What a job returns depends on the job alone, so neither the number of
workers nor their fate changes a number.
"""

import contextlib
import math
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from jax_es.checks import ConfigError, require
from jax_es.distributed.deadlines import PATIENCE, Deadlines, Patience
from jax_es.distributed.member import (
    Jobs,
    Member,
    is_memory,
    other_versions,
    versions_here,
    why_ended,
)
from jax_es.distributed.worker import Worker, processes_here

MOST_LOSSES = 10
"""A job that was lost so often ends its workers itself."""

MOST_FAILED_STARTS = 3
"""So many workers that fail to start, one after the other, and no more are tried."""


class WorkersGone(ConfigError):
    """No worker is left, and none comes."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.add_note("what is finished is saved, continue with {}")


class Status(NamedTuple):
    """How the workers are, for progress."""

    workers: int
    """At work or ready."""
    nodes: int
    """Machines that they are on."""
    lost: int
    """Workers lost so far."""
    repeated: int
    """Jobs that ran again so far."""


class Workers:
    """Processes that run jobs; see :func:`~jax_es.distributed.session.open_workers`.

    Args:
        ray: Ray, started.
        count: how many; one a core of the cluster, now or later, if not given.
        say: prints a line for the user.
        patience: when something counts as lost.

    Attributes:
        say: as the argument; may be set anew.
    """

    def __init__(
        self,
        ray: Any,
        count: int | None,
        say: Callable[[str], None],
        patience: Patience = PATIENCE,
    ) -> None:
        self._ray, self._count, self.say = ray, count, say
        self._patience = patience
        options = {"num_cpus": 1, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
        self._actor: Any = ray.remote(Worker).options(**options)
        self._members: list[Member] = []
        self._recipe: Callable[[], Any] | None = None
        self._recipe_ref: Any = None
        self._deadlines = Deadlines(patience)
        self._num_started = self._failed_starts = self._refused = 0
        self._lost = self._repeated = 0
        self._alone_since: float | None = None
        self._counted, self._cluster_cores = -math.inf, 0
        self._versions: dict[str, str] = {}
        self._processors: set[str] = set()
        self._grow()

    def status(self) -> Status:
        """Returns how the workers are."""
        there = [m for m in self._members if m.stage in ("idle", "busy")]
        nodes = {m.place.node for m in there if m.place}
        return Status(len(there), len(nodes), self._lost, self._repeated)

    @contextlib.contextmanager
    def saying(self, say: Callable[[str], None]) -> Iterator[None]:
        """Prints lines elsewhere for a while."""
        before, self.say = self.say, say
        try:
            yield
        finally:
            self.say = before

    def use(
        self, recipe: Callable[[], Any], on_wait: Callable[[], None] = lambda: None
    ) -> None:
        """Lets every worker make its engine; does nothing if they have this one.

        Args:
            recipe: makes it; it is pickled, so it must be importable by name.
            on_wait: called often while the workers build; what it raises ends it.

        Raises:
            ConfigError: if a worker cannot make it, or is of other versions.
        """
        if recipe is self._recipe:
            return
        # Once: what is installed while the run goes on is not what this process runs.
        self._versions = self._versions or versions_here()
        self._recipe, self._recipe_ref = recipe, self._ray.put(recipe)
        self._deadlines.forget()
        for member in list(self._members):
            if member.stage == "idle":
                self._build(member)
            elif member.stage != "placing":
                self._drop(member)
        began = time.monotonic()
        while not self._members or any(m.stage != "idle" for m in self._members):
            on_wait()
            self._check_alone()
            self._wait(None, strict=True)
            late = time.monotonic() - began > self._patience.alone
            stages = {member.stage for member in self._members}
            if late and stages == {"idle", "placing"}:
                break
            self._grow()
        status = self.status()
        if status.workers < len(self._members):
            self.say(
                f"{status.workers} of {len(self._members)} workers have a core; the "
                "others join as cores become free."
            )

    def run(
        self,
        method: str,
        shared: Any,
        jobs: Sequence[tuple],
        take: Callable[[Any], None],
        *,
        most_units: Sequence[float],
        units: Callable[[Any], float],
        on_wait: Callable[[int], None] = lambda num_done: None,
    ) -> None:
        """Runs jobs to their end, whatever happens to workers.

        Args:
            method: of the engine; it is called with ``shared`` and the job's arguments.
            shared: sent once.
            jobs: each one's arguments.
            take: called with the results, in the order of the jobs.
            most_units: of work, that each job may be at most.
            units: how many a result was, to learn how long one takes.
            on_wait: called often, with the number of finished jobs. What it raises ends
                the call.

        Raises:
            WorkersGone: if no worker is left.
            Exception: what a job raises that is not a worker's end.
        """
        state = Jobs(method, self._ray.put(shared), len(jobs))
        num_taken = 0
        self._failed_starts = 0
        try:
            while num_taken < len(jobs):
                on_wait(state.num_done)
                self._grow()
                self._check_alone()
                for member in self._members:
                    if member.stage == "idle" and state.waiting:
                        self._give(member, state, jobs, most_units)
                self._wait(state, units)
                while num_taken in state.results:
                    take(state.results.pop(num_taken))
                    num_taken += 1
        finally:
            # After an error others are still at work on what nobody wants.
            for member in [m for m in self._members if m.stage == "busy"]:
                self._drop(member)

    def close(self) -> None:
        """Ends all workers."""
        for member in list(self._members):
            self._drop(member)

    def _wanted(self) -> int:
        """Returns how many workers there shall be."""
        now = time.monotonic()
        if now - self._counted > 2.0:
            self._counted = now
            cores = int(self._ray.cluster_resources().get("CPU", 0))
            if cores != self._cluster_cores:
                # A refused node may be gone, or have come back repaired: ask again.
                self._cluster_cores, self._refused = cores, 0
        count = self._cluster_cores if self._count is None else self._count
        return max(0, count - self._refused)

    def _grow(self) -> None:
        """Starts workers that are missing, also of nodes that have joined."""
        if self._failed_starts >= MOST_FAILED_STARTS:
            return
        wanted = self._wanted()
        for member in self._members[wanted:]:
            if member.stage in ("idle", "placing"):
                self._drop(member)
        while len(self._members) < wanted:
            actor = self._actor.remote()
            self._num_started += 1
            member = Member(self._num_started, actor, actor.place.remote())
            self._members.append(member)

    def _check_alone(self) -> None:
        """Raises ``WorkersGone`` if there is no worker, and has not been for long."""
        now = time.monotonic()
        if any(member.stage != "placing" for member in self._members):
            self._alone_since = None
            return
        if self._alone_since is None:
            self._alone_since = now
        tried = self._failed_starts >= MOST_FAILED_STARTS and not self._members
        if tried or now - self._alone_since > self._patience.alone:
            reason = (
                "no new one starts"
                if tried
                else (f"none has come for {self._patience.alone:.0f} s")
            )
            raise WorkersGone(
                f"all workers are gone, and {reason}; look after the nodes (ray status)"
            )

    def _build(self, member: Member) -> None:
        """Lets a placed worker make the engine."""
        member.reply = member.actor.build.remote(self._recipe_ref)
        member.stage, member.called = "building", set()
        member.deadline = time.monotonic() + self._patience.build

    def _give(
        self,
        member: Member,
        state: Jobs,
        jobs: Sequence[tuple],
        most_units: Sequence[float],
    ) -> None:
        """Gives a worker the next job."""
        job = state.waiting.popleft()
        member.stage, member.job = "busy", job
        member.reply = member.actor.call.remote(state.method, state.shared, *jobs[job])
        member.began = time.monotonic()
        new = state.method not in member.called
        member.deadline = member.began + self._deadlines.seconds(
            state.method, most_units[job], state.losses[job], new
        )

    def _wait(
        self,
        state: Jobs | None,
        units: Callable[[Any], float] = lambda result: 0.0,
        strict: bool = False,
    ) -> None:
        """Waits a moment for workers' answers, and deals with them.

        Args:
            state: the present jobs.
            units: of a result.
            strict: whether a worker that cannot make its engine is an error.
        """
        asked = {m.reply: m for m in self._members if m.reply is not None}
        if not asked:
            time.sleep(0.05)
        ready, _ = self._ray.wait(list(asked), timeout=0.1) if asked else ([], [])
        for reply in ready:
            member = asked[reply]
            try:
                answer = self._ray.get(reply)
            except self._ray.exceptions.RayTaskError as error:
                if is_memory(error):
                    self._lose(member, "ran out of memory", state)
                elif member.stage == "busy":
                    raise error.cause from error
                else:
                    self._refuse(member, str(error.cause), strict)
            except self._ray.exceptions.RayError as error:
                self._lose(member, why_ended(error), state, is_dead=True)
            else:
                self._answered(member, answer, state, units, strict)
        now = time.monotonic()
        for member in [m for m in self._members if now > m.deadline]:
            self._lose(member, f"gave no answer for {now - member.began:.0f} s", state)

    def _answered(
        self,
        member: Member,
        answer: Any,
        state: Jobs | None,
        units: Callable[[Any], float],
        strict: bool,
    ) -> None:
        """Takes an answer; the worker is then ready for the next thing."""
        stage, member.reply, member.stage = member.stage, None, "idle"
        member.deadline = math.inf
        if stage == "placing":
            member.place, member.began = answer, time.monotonic()
            self._build(member)
        elif stage == "building":
            self._failed_starts = 0
            self._check_versions(member, answer, strict)
        elif state is not None:
            state.results[member.job] = answer
            state.num_done += 1
            seconds = time.monotonic() - member.began
            if state.method in member.called:
                self._deadlines.ended(state.method, seconds, units(answer))
            member.called.add(state.method)

    def _check_versions(
        self, member: Member, theirs: dict[str, str], strict: bool
    ) -> None:
        """Refuses a worker that would give other numbers."""
        other = other_versions(self._versions, theirs)
        if other:
            self._refuse(
                member, f"has {', '.join(other)}; install the same everywhere", strict
            )
            return
        self._processors.add(theirs["processor"])
        if len(self._processors) == 2:
            self.say(
                "warning: workers have different processors "
                f"({' and '.join(sorted(self._processors))}), which may round "
                "differently: a repeated run may give other numbers."
            )

    def _refuse(self, member: Member, why: str, strict: bool) -> None:
        """Does without a worker that cannot make its engine."""
        text = f"{member}: {why.rstrip('.')}."
        self._drop(member)
        self._refused += 1
        self._failed_starts += 1
        require(not strict, text)
        self.say(f"{text} It is not used.")

    def _lose(
        self, member: Member, why: str, state: Jobs | None, is_dead: bool = False
    ) -> None:
        """Does without a worker that has ended; its job runs again."""
        self._drop(member, is_dead)
        self._lost += 1
        again = ""
        if member.stage == "busy" and state is not None:
            state.losses[member.job] += 1
            state.waiting.appendleft(member.job)
            self._repeated += 1
            again = f"; job {member.job + 1} runs again"
            if state.losses[member.job] >= MOST_LOSSES:
                raise WorkersGone(
                    f"{MOST_LOSSES} workers ended in the same job, the last since it "
                    f"{why}; look at the policy and the environment"
                )
        else:
            self._failed_starts += 1
        if why == "ran out of memory":
            self._refused += 1  # another one would, too
            if self._wanted() == 0:
                raise WorkersGone(
                    f"{member}, the last one, {why}; take a machine with more, or "
                    "start a new run with fewer --rollout.num-slots"
                )
        self.say(f"{member} {why}{again}.")

    def _drop(self, member: Member, is_dead: bool = False) -> None:
        """Ends a worker's process, whatever it is doing."""
        self._members.remove(member)
        place = member.place
        if place and place.processes == processes_here() and not is_dead:
            # Ray asks a process to end, which a stopped one does not hear.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(place.pid, signal.SIGKILL)
        with contextlib.suppress(self._ray.exceptions.RayError, ValueError):
            self._ray.kill(member.actor)


def shown(workers: Workers) -> list[str]:
    """Returns what progress shows of workers."""
    return [f"{name} {value}" for name, value in workers.status()._asdict().items()]
