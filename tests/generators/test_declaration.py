"""Protects: a slip in a YAML file is one line that names the file, the key and the alternatives."""

from dataclasses import dataclass

import pytest

from stsr.generators.declaration import DeclarationError, load


@dataclass(frozen=True, kw_only=True)
class Inner:
    name: str


@dataclass(frozen=True, kw_only=True)
class Outer:
    count: int
    rate: float
    names: tuple[str, ...]
    inner: Inner
    table: dict[str, int]
    note: str | None = None


GOOD = "count: 1\nrate: 2\nnames: [a, b]\ninner: {name: x}\ntable: {a: 1}\n"


def read(tmp_path, text):
    path = tmp_path / "d.yaml"
    path.write_text(text)
    return load(Outer, path)


def test_a_good_file(tmp_path):
    assert read(tmp_path, GOOD) == Outer(
        count=1, rate=2.0, names=("a", "b"), inner=Inner(name="x"), table={"a": 1}, note=None
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD + "cuont: 2\n", r"unknown key 'cuont'; did you mean 'count'\? keys are count, rate, names"),
        (GOOD.replace("count: 1\n", ""), "the key 'count' is missing"),
        (GOOD.replace("count: 1", "count: one"), "count: expected int, found 'one'"),
        (GOOD.replace("count: 1", "count: true"), "count: expected int, found True"),
        (GOOD.replace("[a, b]", "[a, 3]"), r"names\[1\]: expected str, found 3"),
        (GOOD.replace("{name: x}", "{nam: x}"), "inner: unknown key 'nam'; did you mean 'name'"),
        (GOOD.replace("{a: 1}", "{a: b}"), "table.a: expected int, found 'b'"),
        (GOOD + "note: 3\n", "note: expected str, found 3"),
        ("- 1\n", "expected keys and values, found list"),
        ("a: [\n", "not YAML"),
        ("", "expected keys and values, found NoneType"),
    ],
)
def test_a_slip_is_named(tmp_path, text, message):
    with pytest.raises(DeclarationError, match=message):
        read(tmp_path, text)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DeclarationError, match=r"nowhere\.yaml: cannot be read"):
        load(Outer, tmp_path / "nowhere.yaml")
