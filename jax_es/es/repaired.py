"""Three algorithms that evosax 0.3.2 has in another form than their papers.

In evosax the off-diagonal numbers of xNES' matrix stay 0, the covariance update of
MA-ES weighs members by their place instead of their rank, and Rm-ES compares weights,
which are the same in every generation, so that σ always shrinks.
"""

from typing import Any

import jax
import jax.numpy as jnp
from evosax.algorithms.distribution_based import MA_ES, Rm_ES, xNES


class RepairedXNES(xNES):
    """Exponential NES (Glasmachers et al. 2010).

    A member is θ + σ z B with z ~ N(0, I).
    """

    def _init(self, key: jax.Array, params: Any) -> Any:
        return super()._init(key, params).replace(B=jnp.eye(self.num_dims))

    def _tell(
        self,
        key: jax.Array,
        population: jax.Array,
        fitness: jax.Array,
        state: Any,
        params: Any,
    ) -> Any:
        z, identity = state.z, jnp.eye(self.num_dims)
        descent = -state.std * (fitness @ z) @ state.B
        updates, opt_state = self.optimizer.update(descent, state.opt_state, state.mean)
        gradient = (fitness * z.T) @ z - jnp.sum(fitness) * identity
        of_std = jnp.trace(gradient) / self.num_dims
        of_shape = gradient - of_std * identity
        return state.replace(
            mean=state.mean + updates,
            std=state.std * jnp.exp(0.5 * state.lr_std * of_std),
            B=jax.scipy.linalg.expm(0.5 * params.lr_B * of_shape) @ state.B,
            opt_state=opt_state,
        )


class RepairedMAES(MA_ES):
    """Matrix adaptation (Beyer & Sendhoff 2017)."""

    def _tell(
        self,
        key: jax.Array,
        population: jax.Array,
        fitness: jax.Array,
        state: Any,
        params: Any,
    ) -> Any:
        # evosax' update takes the weights in their order: the best member comes first.
        order = jnp.argsort(-fitness)
        state = state.replace(z=state.z[order])
        return super()._tell(key, population[order], fitness[order], state, params)

    def update_M(
        self, M: jax.Array, p_std: jax.Array, z: jax.Array, params: Any
    ) -> jax.Array:
        """As evosax', without [P, n, n] numbers on the way."""
        identity = jnp.eye(self.num_dims)
        return M @ (
            identity
            + params.c_1 / 2 * (jnp.outer(p_std, p_std) - identity)
            + params.c_mu / 2 * ((params.weights * z.T) @ z - identity)
        )


class RepairedRmES(Rm_ES):
    """Rank-m evolution strategy (Li & Zhang 2017)."""

    def _postprocess_fitness(
        self, raw_fitness: jax.Array, fitness: jax.Array
    ) -> jax.Array:
        """Returns both: the success rule compares fitness as it is."""
        return jnp.stack([raw_fitness, fitness])

    def _tell(
        self,
        key: jax.Array,
        population: jax.Array,
        fitness: jax.Array,
        state: Any,
        params: Any,
    ) -> Any:
        raw, weights = fitness
        told = super()._tell(key, population, weights, state, params)
        elites = jnp.sort(raw)[: self.num_elites]
        both = jnp.concatenate([state.fitness_elites_sorted, elites])
        before, now = jnp.split(jax.scipy.stats.rankdata(both), 2)
        q = params.weights[: self.num_elites] @ (before - now) / self.num_elites
        # The first generation has no predecessor to be better than.
        q = jnp.where(state.generation_counter == 0, params.q_star, q)
        rate = (1 - params.c_std) * state.cumulative_rank_rate
        rate += params.c_std * (q - params.q_star)
        return told.replace(
            std=self.update_std(state.std, rate, params),
            cumulative_rank_rate=rate,
            fitness_elites_sorted=elites,
        )
