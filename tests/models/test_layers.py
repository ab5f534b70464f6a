import jax
import jax.numpy as jnp
import numpy as np

from models.layers import fan_in_dense


def test_fan_in_dense_starts_as_in_pytorch():
    params = fan_in_dense(400, 300).init(jax.random.key(0), jnp.zeros(400))["params"]
    bound = 1.0 / 20.0  # 1/sqrt(400)
    for name, tolerance in [("kernel", 0.01), ("bias", 0.15)]:
        draws = np.asarray(params[name])
        assert np.abs(draws).max() <= bound
        # A uniform variable on ±b has standard deviation b/sqrt(3).
        np.testing.assert_allclose(draws.std(), bound / np.sqrt(3.0), rtol=tolerance)
        assert abs(draws.mean()) < 4.0 * bound / np.sqrt(3.0 * draws.size)
