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
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jax_es.checks import ConfigError, require
from jax_es.distributed.member import OUT_OF_MEMORY, Jobs, Member, Patience, why_ended
from jax_es.distributed.worker import Worker, processes_here, versions_here
from jax_es.runs.machine import jax_settings

MOST_LOSSES = 10
"""A job that was lost so often ends its workers itself."""

MOST_FAILED_STARTS = 3
"""So many workers that fail to start, one after the other, and no more are tried."""

ANSWER_SECONDS = 10.0
"""How long one of Ray's servers may take to answer."""

UNKNOWN_SECONDS = 3600.0
"""How long a job may take before one like it has ended."""


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
        say: as the argument; a run's progress takes its place.
    """

    def __init__(
        self,
        ray: Any,
        count: int | None,
        say: Callable[[str], None],
        patience: Patience,
    ) -> None:
        self._ray, self._count, self.say = ray, count, say
        self._patience = patience
        options = {"num_cpus": 1, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
        self._actor: Any = ray.remote(Worker).options(**options)
        self._members: list[Member] = []
        self._recipe: Callable[[], Any] | None = None
        self._recipe_ref: Any = None
        self._longest: dict[str, float] = {}  # seconds, by method
        self._num_started = self._failed_starts = self._refused = 0
        self._lost = self._repeated = 0
        self._alone_since: float | None = None
        self._counted, self._cluster_cores = -math.inf, 0
        self._versions: dict[str, str] = {}
        self._servers = _servers(ray)
        self._grow()

    def status(self) -> Status:
        """Returns how the workers are."""
        there = [m for m in self._members if m.stage in ("idle", "busy")]
        nodes = {m.place.node for m in there if m.place}
        return Status(len(there), len(nodes), self._lost, self._repeated)

    def use(self, recipe: Callable[[], Any]) -> None:
        """Lets every worker make its engine; does nothing if they have this one.

        Args:
            recipe: makes it; it is pickled, so it must be importable by name.

        Raises:
            ConfigError: if a worker cannot make it, or is of other versions.
        """
        if recipe is self._recipe:
            return
        # Once: what is installed while the run goes on is not what this process runs.
        self._versions = self._versions or versions_here()
        self._recipe, self._recipe_ref = recipe, self._ray.put(recipe)
        self._longest.clear()
        for member in list(self._members):
            if member.stage == "idle":
                self._build(member)
            elif member.stage != "placing":
                self._drop(member)
        began = time.monotonic()
        while not self._members or any(m.stage != "idle" for m in self._members):
            self._check_alone()
            self._wait(None)
            late = time.monotonic() - began > self._patience.alone
            if late and {m.stage for m in self._members} == {"idle", "placing"}:
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
        on_wait: Callable[[int], None] = lambda num_done: None,
    ) -> None:
        """Runs jobs to their end, whatever happens to workers.

        Args:
            method: of the engine; it is called with ``shared`` and the job's arguments.
            shared: sent once.
            jobs: each one's arguments.
            take: called with the results, in the order of the jobs.
            on_wait: called often, with the number of finished jobs. What it raises ends
                the call.

        Raises:
            WorkersGone: if no worker is left.
            Exception: what a job raises that is not a worker's end.
        """
        state = Jobs(method, self._ray.put(shared), jobs, deque(range(len(jobs))))
        num_taken = 0
        self._failed_starts = 0
        try:
            while num_taken < len(jobs):
                on_wait(num_taken + len(state.results))
                self._grow()
                self._check_alone()
                for member in self._members:
                    if member.stage == "idle" and state.waiting:
                        self._give(member, state)
                self._wait(state)
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
            self._check_ray()
            cores = int(self._ray.cluster_resources().get("CPU", 0))
            if cores != self._cluster_cores:
                # A refused node may be gone, or have come back repaired: ask again.
                self._cluster_cores, self._refused = cores, 0
        count = self._cluster_cores if self._count is None else self._count
        return max(0, count - self._refused)

    def _check_ray(self) -> None:
        """Raises ``WorkersGone`` if one of Ray's servers is: Ray would end the program.

        It does so after a minute in which every question to them waits. A program that
        asks the raylet just as that dies it ends at once, with status 1 and no message.
        """
        for host, port in self._servers:
            try:
                socket.create_connection((host, port), ANSWER_SECONDS).close()
            except OSError as error:
                raise WorkersGone(
                    f"Ray's server at {host}:{port} has ended ({error})"
                ) from error

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
        if self._failed_starts >= MOST_FAILED_STARTS and not self._members:
            reason = "no new one starts"
        elif now - self._alone_since > self._patience.alone:
            reason = f"none has come for {self._patience.alone:.0f} s"
        else:
            return
        raise WorkersGone(
            f"all workers are gone, and {reason}; look after the nodes (ray status)"
        )

    def _build(self, member: Member) -> None:
        """Lets a placed worker make the engine."""
        member.reply = member.actor.build.remote(self._recipe_ref, jax_settings())
        member.stage, member.called = "building", set()
        member.deadline = time.monotonic() + self._patience.build

    def _give(self, member: Member, state: Jobs) -> None:
        """Gives a worker the next job, and so long for it as others show it takes."""
        job = state.waiting.popleft()
        member.stage, member.job = "busy", job
        member.reply = member.actor.call.remote(
            state.method, state.shared, *state.jobs[job]
        )
        member.began = time.monotonic()
        seconds = UNKNOWN_SECONDS
        if longest := self._longest.get(state.method):
            seconds = self._patience.slack + self._patience.factor * longest
            seconds += self._patience.build * (state.method not in member.called)
        # A machine may have become slow: what was cut off gets more time.
        member.deadline = member.began + seconds * 2 ** state.losses[job]

    def _wait(self, state: Jobs | None) -> None:
        """Waits a moment for workers' answers, and deals with them.

        ``state`` is None while all make their engines: an error if one cannot.
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
                cause = error.cause
                if isinstance(cause, MemoryError) or "RESOURCE_EXHAUSTED" in str(cause):
                    self._lose(member, OUT_OF_MEMORY, state)
                elif member.stage == "busy":
                    raise cause from error
                else:
                    self._refuse(member, str(cause), is_error=state is None)
            except self._ray.exceptions.RayError as error:
                self._lose(member, why_ended(error), state, is_dead=True)
            else:
                self._answered(member, answer, state)
        now = time.monotonic()
        for member in [m for m in self._members if now > m.deadline]:
            self._lose(member, f"gave no answer for {now - member.began:.0f} s", state)

    def _answered(self, member: Member, answer: Any, state: Jobs | None) -> None:
        """Takes an answer; the worker is then ready for the next thing."""
        stage, member.reply, member.stage = member.stage, None, "idle"
        member.deadline = math.inf
        if stage == "placing":
            member.place, member.began = answer, time.monotonic()
            self._build(member)
        elif stage == "building":
            self._failed_starts = 0
            self._check_versions(member, answer, is_error=state is None)
        elif state is not None:
            state.results[member.job] = answer
            if state.method in member.called:  # the first one compiled
                seconds = time.monotonic() - member.began
                before = self._longest.get(state.method, 0.0)
                self._longest[state.method] = max(before, seconds)
            member.called.add(state.method)

    def _check_versions(
        self, member: Member, theirs: dict[str, str], is_error: bool
    ) -> None:
        """Refuses a worker that would give other numbers."""
        other = [
            f"{name} {theirs.get(name)} there and {version} here"
            for name, version in self._versions.items()
            if theirs.get(name) != version
        ]
        if other:
            why = f"has {', '.join(other)}; install the same everywhere"
            self._refuse(member, why, is_error)

    def _refuse(self, member: Member, why: str, is_error: bool) -> None:
        """Does without a worker that cannot make its engine."""
        text = f"{member}: {why.rstrip('.')}."
        self._drop(member)
        self._refused += 1
        self._failed_starts += 1
        require(not is_error, text)
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
        if why == OUT_OF_MEMORY:
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


def _servers(ray: Any) -> list[tuple[str, int]]:
    """Returns where the head's server listens, and that of this node."""
    here = ray.get_runtime_context()
    host, _, port = here.gcs_address.rpartition(":")
    return [(host.strip("[]"), int(port))] + [
        (node["NodeManagerAddress"], node["NodeManagerPort"])
        for node in ray.nodes()
        if node["NodeID"] == here.get_node_id()
    ]


def shown(workers: Workers) -> list[str]:
    """Returns what progress shows of workers."""
    return [f"{name} {value}" for name, value in workers.status()._asdict().items()]
