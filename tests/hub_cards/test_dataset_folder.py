"""A built folder is a data set to `datasets`: by config and split, streaming or not, shards or not.

pytest tests/hub_cards/test_dataset_folder.py
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pyarrow.parquet as pq
import pytest

from stsr.generators.build import Manifest, build, build_shard, join_shards
from stsr.generators.dataset import Declaration, Mixture, Part, read_declaration
from stsr.hub_cards.cards import dataset_card

DECLARATIONS = Path(__file__).parents[2] / "recipes/datasets"


def declared() -> Declaration:
    """A few tasks of chains, choices and the interface, with a mixture: every kind of config there is."""
    workflows = read_declaration(DECLARATIONS / "table-workflows.yaml")
    chain, choice, pivotal = (workflows.parts[number] for number in (0, 3, 4))
    interface = read_declaration(DECLARATIONS / "workflow-controls.yaml").parts[2]
    assert interface.family == "interface"

    def few(part: Part, **changes: Any) -> Part:
        splits = dict.fromkeys((part.splits[0], part.splits[-1]))
        return replace(part, splits=tuple(replace(split, tasks=3) for split in splits), **changes)

    mixture = Mixture(
        config="h16-mix", horizon=16, split="train", tasks=2, seed=1, plain="full", masked={"block": 16}
    )
    parts = (few(chain, views=("full", "block")), few(choice, views=("full",)), few(pivotal), few(interface))
    return replace(workflows, parts=parts, mixtures=(mixture,), tokenizers=())


@pytest.fixture(scope="module", params=["whole", "two shards"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Manifest]:
    folder = tmp_path_factory.mktemp("built") / "out"
    if request.param == "whole":
        return folder, build(declared(), folder, dataset_card)
    for shard in range(2):
        build_shard(declared(), folder, shard, 2)
    return folder, join_shards(declared(), folder, 2, dataset_card)


def leaves(feature: Any) -> Iterator[Any]:
    if isinstance(feature, dict):
        for inner in feature.values():
            yield from leaves(inner)
    elif isinstance(feature, datasets.List):
        yield from leaves(feature.feature)
    else:
        yield feature


def test_every_config_loads_and_streams_the_rows_that_were_written(
    built: tuple[Path, Manifest], tmp_path: Path
) -> None:
    folder, manifest = built
    assert datasets.get_dataset_config_names(str(folder)) == list(manifest["configs"])
    for config, splits in manifest["configs"].items():
        assert set(datasets.get_dataset_split_names(str(folder), config)) == set(splits)
        for split, paths in splits.items():
            written = [row for path in paths for row in pq.read_table(folder / path).to_pylist()]
            loaded = datasets.load_dataset(str(folder), config, split=split, cache_dir=str(tmp_path))
            streamed = datasets.load_dataset(str(folder), config, split=split, streaming=True)
            assert list(loaded) == written
            assert list(streamed) == written


def test_columns_are_plain_values_which_need_no_decoding(
    built: tuple[Path, Manifest], tmp_path: Path
) -> None:
    folder, manifest = built
    for config in manifest["configs"]:
        split = next(iter(manifest["configs"][config]))
        rows = datasets.load_dataset(str(folder), config, split=split, cache_dir=str(tmp_path))
        kinds = {(type(leaf), leaf.dtype) for leaf in leaves(rows.features)}
        assert kinds <= {(datasets.Value, dtype) for dtype in ("string", "int32", "int64", "bool")}
        assert (
            rows.features == datasets.load_dataset(str(folder), config, split=split, streaming=True).features
        )
        if "prompt" in rows.column_names:  # as chat templates take them
            assert [set(message) for message in rows[0]["prompt"]] == [{"role", "content"}]
            assert rows[0]["chat_template_kwargs"] == {"enable_thinking": False}
