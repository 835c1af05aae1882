"""What a training set shows: the views of table workflows and of ScienceWorld, and mixtures of views.

Invariant: each has one line for a card; a name that has none is refused before anything is trained.
"""

from __future__ import annotations

from stsr.generators import views
from stsr.generators.scienceworld import views as scienceworld

MIXTURES = {
    "mix-full-compact": "Half of the rows under `full`, the others under `compact`; each row once.",
    "mix-full-random": (
        "Half of the rows under `full`, the others under `random25`, `random50` or `random75`; each row once."
    ),
}
"""Mixture -> its line. Their rows are declared in recipes/datasets/table-workflows.yaml (appendix E)."""


def of_scienceworld(name: str, config: str) -> bool:
    """Whether configuration `config` of view `name` is ScienceWorld's: it is called as its view alone."""
    return config in (name, "{view}")


def view_rule(name: str, config: str) -> str:
    """The line for view or mixture `name`, shown in the data set's configuration `config`.

    Views of ScienceWorld have rules of their own. Raises ValueError that names the alternatives.

    >>> view_rule("full", "h16-full")
    'All contents. Consults nothing.'
    """
    if of_scienceworld(name, config):
        view = scienceworld.view(name)
        return f"{view.keeps} Consults {view.consults}."
    if name in MIXTURES:
        return MIXTURES[name]
    if name not in views.VIEWS:
        raise ValueError(f"unknown view {name!r}; there are {', '.join([*views.VIEWS, *MIXTURES])}")
    return views.view(name).rule
