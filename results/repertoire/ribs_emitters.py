"""MAP-Elites with pyribs' own emitters, on our tasks: what ours are compared with.

    python results/repertoire/ribs_emitters.py iso+line FOLDER GENERATIONS PRESET …
    python results/repertoire/ribs_emitters.py cma-me FOLDER GENERATIONS PRESET …

PRESET and what follows are those of ``python -m jax_es.illuminate``. Everything but the
emitter is ours: task, episodes, archive, and the records in ``FOLDER/metrics.jsonl``.
"""

import contextlib
import sys

import jax.numpy as jnp
import numpy as np
from ribs.archives import GridArchive
from ribs.emitters import EvolutionStrategyEmitter, IsoLineEmitter
from ribs.schedulers import Scheduler

from jax_es.cli.train_program import start_jax
from jax_es.es.population import MaterializedPopulation
from jax_es.illuminate import parse
from jax_es.illumination.emitters import IsoLine
from jax_es.illumination.generations import Illumination
from jax_es.illumination.run import build_parts
from jax_es.runs.metrics import MetricsWriter


class RibsEmitters:
    """pyribs' scheduler in the place of our emitter."""

    def __init__(self, kind, settings, illumination, seed):
        self.weights, axes = illumination.weights, illumination.archive.axes
        archive = GridArchive(
            solution_dim=self.weights.size,
            dims=axes.cells,
            ranges=list(zip(axes.low, axes.high, strict=True)),
            seed=seed,
        )
        # The first policies are those that ours begins with.
        first = IsoLine(settings, self.weights, seed).initial(0)
        if kind == "iso+line":
            emitters = [
                IsoLineEmitter(
                    archive,
                    iso_sigma=settings.sigma_iso,
                    line_sigma=settings.sigma_line,
                    initial_solutions=first,
                    batch_size=settings.batch_size,
                    seed=seed,
                )
            ]
        else:
            emitters = [
                EvolutionStrategyEmitter(
                    archive,
                    x0=first[i],
                    sigma0=0.1,
                    ranker="2imp",
                    es="sep_cma_es",
                    batch_size=settings.batch_size // 4,
                    seed=seed + i,
                )
                for i in range(4)
            ]
        self.scheduler = Scheduler(archive, emitters)
        self.low, self.high = axes.low, axes.high

    def ask(self, generation, elites):
        asked = np.asarray(self.scheduler.ask(), np.float32)
        mean = elites.weights[elites.fitness.argmax()] if len(elites) else asked[0]
        self.asked = asked
        return MaterializedPopulation(
            self.weights.tree(jnp.asarray(mean)), self.weights.trees(asked)
        )

    def tell(self, generation, mean, members):
        places = np.clip(members.descriptors, self.low, self.high)
        self.scheduler.tell(members.fitness, places)
        return members._replace(weights=self.asked)

    def state(self):
        return {}  # none of these runs is resumed


def main(kind, folder, generations, *options):
    request = parse([*options])
    start_jax(request.num_devices)
    settings = request.arguments.archive
    parts = build_parts(request.config, settings)
    with contextlib.closing(parts), MetricsWriter(folder) as writer:
        illumination = Illumination(parts, settings)
        illumination.emitter = RibsEmitters(
            kind, settings, illumination, request.config.seed
        )
        for _ in range(int(generations)):
            record = illumination.advance().record
            writer.write(record)
            sys.stderr.write(
                f"{record.generation} coverage {record.coverage:.3f} qd "
                f"{record.qd_score:.0f} best {record.best_fitness:.1f}\n"
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
