"""Nine elites side by side: what kinds of behaviour an archive holds."""

from pathlib import Path

import numpy as np

from jax_es.evaluation.video import record_video
from jax_es.illumination.archive import Archive
from jax_es.illumination.repertoire import load_archive


def record_elites(run: Path, file: Path) -> None:
    """Records an episode of each of nine elites that differ most, in three columns.

    Args:
        run: the archive's.
        file: ``.mp4`` or ``.gif``; its folder is created.

    Raises:
        ConfigError: there is no encoder, no renderer, or no elite.
    """
    repertoire = load_archive(run)
    elites = repertoire.elites
    policies = {}
    for i in different(repertoire.archive, 9):
        title = " ".join(f"{number:.2g}" for number in elites.descriptors[i])
        policies[title] = repertoire[int(elites.cell[i])]
    record_video(policies, repertoire.config.env, file, seed=0, columns=3)


def different(archive: Archive, count: int) -> list[int]:
    """Returns positions of elites of the better half that lie far apart.

    The best one, then again and again the one that is farthest from all chosen.
    """
    elites, axes = archive.elites(), archive.axes
    places = elites.descriptors / np.subtract(axes.high, axes.low)
    good = np.flatnonzero(elites.fitness >= np.median(elites.fitness))
    chosen = [archive.best]
    while len(chosen) < min(count, len(good)):
        ways = np.linalg.norm(places[good, None] - places[chosen], axis=-1)
        chosen.append(int(good[ways.min(axis=1).argmax()]))
    return chosen
