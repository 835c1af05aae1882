"""What a training set is of and shows: family and horizon; views of tables and of ScienceWorld; mixtures.

Invariant: each has one line for a card; a name that has none is refused before anything is trained.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from stsr.generators import views
from stsr.generators.scienceworld import views as scienceworld

MIXTURES = {
    "mix-full-compact": "Half of the rows under `full`, the others under `compact`; each row once.",
    "mix-full-random": (
        "Half of the rows under `full`, the others under `random25`, `random50` or `random75`; each row once."
    ),
}
"""Mixture -> its line. Their rows are declared in recipes/datasets/table-workflows.yaml (appendix E)."""


class Origin(NamedTuple):
    """What the workflows of a training set are."""

    family: str
    horizon: int | None
    """None where paths have their natural lengths."""


def origin_of(config: str) -> Origin:
    """Family and horizon of a data set's configuration, which its name tells; `{view}` may stand for a view.

    >>> origin_of("h16-compact"), origin_of("choice-h16-{view}")
    (Origin(family='chain', horizon=16), Origin(family='choice', horizon=16))
    >>> origin_of("short-full")
    Origin(family='scienceworld', horizon=None)
    """
    if found := re.match(r"(?:(.+)-)?h(\d+)\b", config):
        return Origin(found[1] or "chain", int(found[2]))
    known = config.removeprefix("short-") in (*scienceworld.VIEWS, "{view}")
    return Origin("scienceworld" if known else "", None)


def view_rule(name: str, config: str) -> str:
    """The line for view or mixture `name`, shown in the data set's configuration `config`.

    Views of ScienceWorld have rules of their own. Raises ValueError that names the alternatives.

    >>> view_rule("full", "h16-full")
    'All contents. Consults nothing.'
    """
    if origin_of(config).family == "scienceworld":
        view = scienceworld.view(name)
        return f"{view.keeps} Consults {view.consults}."
    if name in MIXTURES:
        return MIXTURES[name]
    if name not in views.VIEWS:
        raise ValueError(f"unknown view {name!r}; there are {', '.join([*views.VIEWS, *MIXTURES])}")
    return views.view(name).rule
