"""``python -m jax_es.benchmark``."""

import sys

from jax_es.benchmark.program import main

sys.exit(main())
