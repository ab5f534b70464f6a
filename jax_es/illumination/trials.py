"""Which elite a damaged robot tries next: intelligent trial and error.

A Gaussian process learns how far each elite falls short of what the archive promises
(Cully et al. 2015, arXiv 1407.3501):

    μ(x) = P(x) + k(x)ᵀ (K + σ² I)⁻¹ (P₁:ₜ − P(χ₁:ₜ)),   next = argmax μ(x) + κ σ(x)

P(x) is what the archive promises of the elite x, k Matérn's kernel with ν = 5/2.
The search ends when a trial reached α of the best that is expected anywhere. Fitness is
counted in units of the archive's best, descriptors in units of the archive's bounds, so
that κ and the kernel's length mean the same on every task.
"""

from typing import Any

import numpy as np

from jax_es.checks import optional
from jax_es.illumination.archive import Archive
from jax_es.illumination.settings import Rule, TrialConfig


class Search:
    """The trials of one damaged robot, by one rule.

    Args:
        archive: with at least one elite.
        promise: ``[N]``, the elites' fitness in an undamaged robot.
        config: the settings.
        rule: how elites are chosen.
        rng: of rule ``random``, and of the first trial without a prior.

    Attributes:
        tried: positions among the elites, in the order of the trials.
        fitness: what each trial showed.
        is_over: whether the rule has ended the search; only ``ite`` does.

    Raises:
        ConfigError: scikit-learn is not installed.
    """

    def __init__(
        self,
        archive: Archive,
        promise: np.ndarray,
        config: TrialConfig,
        rule: Rule,
        rng: np.random.Generator,
    ) -> None:
        elites, axes = archive.elites(), archive.axes
        low, high = np.asarray(axes.low), np.asarray(axes.high)
        self._places = (elites.descriptors - low) / (high - low)
        # An archive none of whose elites gets anywhere is its own unit.
        best = float(promise.max())
        self._unit = best if best > 0 else max(float(np.ptp(promise)), 1.0)
        self._config, self._rule = config, rule
        self._prior = np.zeros(len(elites))
        if rule == "ite":
            self._prior = promise / self._unit
        order = np.argsort(-promise, kind="stable")
        self._order = order if rule == "best-first" else rng.permutation(len(elites))
        self._gaussian_process = _gaussian_process(config)
        self.tried: list[int] = []
        self.fitness: list[float] = []
        self.is_over = False

    def next(self) -> int:
        """Returns the position of the elite to try, among all elites."""
        if self._rule in ("best-first", "random"):
            return int(self._order[len(self.tried) % len(self._order)])
        if not self.tried and self._rule == "no-prior":
            return int(self._order[0])  # all are alike so far
        mean, std = self.expected()
        return int(np.argmax(mean + self._config.kappa * std))

    def tell(self, position: int, fitness: float) -> None:
        """Learns what a trial showed.

        One that failed (NaN) is as bad as standing, or as the worst trial so far.
        """
        worst = min([0.0, *self.fitness])
        self.tried.append(position)
        self.fitness.append(fitness if np.isfinite(fitness) else worst)
        done = len(self.tried) >= self._config.trials
        if self._rule == "ite" and not done:
            mean, _ = self.expected()
            found = max(self.fitness) / self._unit
            done = found >= self._config.enough * float(mean.max())
        self.is_over = done

    def expected(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns mean and standard deviation ``[N]`` of all elites' fitness.

        In units of the archive's best.
        """
        if not self.tried:
            return self._prior, np.ones_like(self._prior)
        tried = np.array(self.tried)
        found = np.array(self.fitness) / self._unit - self._prior[tried]
        self._gaussian_process.fit(self._places[tried], found)
        mean, std = self._gaussian_process.predict(self._places, return_std=True)
        return self._prior + mean, std


def _gaussian_process(config: TrialConfig) -> Any:
    with optional("trials need scikit-learn", "archives"):
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import Matern
    nothing: Any = None  # its type stub knows no None
    return GaussianProcessRegressor(
        Matern(config.length_scale, nu=2.5), alpha=config.noise, optimizer=nothing
    )
