"""A ScienceWorld workflow's local decisions beside its free run, under one adapter and one view.

Source: section 4.7 and appendix F of the paper. Invariant: a pair is whole: all decisions of the reference
path, and one free run. Repeated workflows are not independent, so nothing here is tested.
"""

from __future__ import annotations

import pandas as pd

from stsr.stats.estimators import spearman, wilson
from stsr.stats.results import GIVEN_MODELS, Association, Proportion

THRESHOLD = 0.8
"""Share of decisions that agree from which the paper calls local agreement high."""
UNIT = "workflow under one adapter"
GIVEN = f"{GIVEN_MODELS}; workflows repeat over training seeds and are counted as if independent"


def pairs(frame: pd.DataFrame) -> pd.DataFrame:
    """A row for each pair: `local` (share of decisions that agree), `success` and `score` of the free run.

    `frame` holds outcomes of both kinds. Seeds of one adapter pair answer alike; arms tell them apart.
    """
    place = ["seed", "task"]
    decisions = frame[frame["kind"] == "oracle_prefix"].groupby(place, observed=True)
    local = decisions["agree"].agg(lambda agree: agree.astype(bool).mean()).rename("local")
    whole = decisions["stage"].agg(["size", "max"])
    runs = frame[frame["kind"] == "free_run"].set_index(place)[["success", "score"]]
    joined = pd.concat([local[whole["size"] == whole["max"]], runs], axis=1, join="inner")
    return joined.astype(float)


def success_where(frame: pd.DataFrame, *, high: bool) -> Proportion:
    """Successes among the pairs with high local agreement, or among the others."""
    found = pairs(frame)
    part = found[(found["local"] >= THRESHOLD) == high]
    return wilson(int(part["success"].sum()), len(part), unit=UNIT, conditioning=GIVEN)


def clean(frame: pd.DataFrame) -> Proportion:
    """Pairs with every decision right."""
    found = pairs(frame)
    return wilson(int((found["local"] == 1).sum()), len(found), unit=UNIT, conditioning=GIVEN)


def clean_success(frame: pd.DataFrame) -> Proportion:
    """Successes among those."""
    found = pairs(frame)
    whole = found[found["local"] == 1]
    return wilson(int(whole["success"].sum()), len(whole), unit=UNIT, conditioning=GIVEN)


def rho(frame: pd.DataFrame, column: str) -> Association:
    """Spearman's rho of local agreement with `success` or `score`."""
    found = pairs(frame)
    return spearman(found["local"].to_numpy(), found[column].to_numpy())
