"""The report from synthetic records: its numbers are the hand counts; it loads nothing; it is never half."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from stsr.eval_tasks.records import Record
from stsr.stats import figures
from stsr.stats.cells import group
from stsr.stats.crossover import CrossoverSpec, build
from stsr.stats.outcomes import CellError
from stsr.stats.report import main, write_report

SEED = 20260910
FILES = {
    *("report.html", "report.md", "README.md", "crossover.csv", "numbers.csv", "inputs.json"),
    *("figures", "tables"),
}


class Page(HTMLParser):
    """The tables' rows, images and links of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.open_cell = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.open_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self.open_cell = False

    def handle_data(self, data: str) -> None:
        if self.open_cell:
            self.rows[-1][-1] += data


@pytest.fixture(scope="module")
def spec(records: Any) -> CrossoverSpec:
    adapters = {SEED: {view: records.adapter(SEED, view) for view in ("full", "compact")}}
    return CrossoverSpec(16, ("full", "compact"), adapters, records.BASE)


@pytest.fixture(scope="module")
def files(
    records: Any,
    paper_free_run: dict[str, list[Record]],
    paper_oracle: dict[str, list[Record]],
    tmp_path_factory: pytest.TempPathFactory,
) -> list[Path]:
    """Two record files: the paper's original pair, and the untuned base in full view (2 of 20 free runs)."""
    folder = tmp_path_factory.mktemp("records")
    base = records.cell("full")
    free = [r for part in paper_free_run.values() for r in part]
    free += records.episodes(base, [records.WON] * 2 + [records.lost(4)] * 18)
    oracle = [r for part in paper_oracle.values() for r in part]
    return [records.write(folder / "oracle.jsonl", oracle), records.write(folder / "free.jsonl", free)]


@pytest.fixture(scope="module")
def report(files: list[Path], spec: CrossoverSpec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out") / "report"
    return write_report(files, spec, {"code": "stsr <1.0.0> & more"}, out)


def test_files(report: Path) -> None:
    assert report.name == "report.html"
    assert {path.name for path in report.parent.iterdir()} == FILES
    assert {path.name for path in (report.parent / "figures").iterdir()} == {
        f"{name}.{kind}"
        for name in (
            *("free-run-interaction", "free-run-forest", "rejections"),
            *("oracle-prefix-interaction", "oracle-prefix-forest", "oracle-prefix-stages"),
        )
        for kind in ("png", "svg")
    }


EXPECTED_ROWS = [
    # Tables 16, 18 and 20 of the paper, in this report's columns.
    ["20260910", "full", "full", "17/20", "85.0", "64.0 to 94.8"],
    ["20260910", "full", "compact", "15/20", "75.0", "53.1 to 88.8"],
    ["20260910", "compact", "full", "0/20", "0.0", "0.0 to 16.1"],
    ["20260910", "compact", "compact", "20/20", "100.0", "83.9 to 100.0"],
    ["20260910", "compact→compact − full→compact", "+25.0", "+10.0 to +45.0", "0.0625"],
    ["20260910", "difference of differences", "+110.0", "+85.0 to +135.0", "1.53×10⁻⁵"],
    ["1", "+110.0", "+110.0", "–"],
    ["20260910", "full", "compact", "20.40", "94.1", "8/20", "3/8"],
    ["20260910", "compact", "compact", "16.00", "100.0", "0/20", "–"],
    ["20260910", "full", "compact", "missing-input 99, output-exists 8"],
    ["–", "untuned", "full", "2/20", "10.0", "2.8 to 30.1"],
]


@pytest.mark.parametrize("expected", EXPECTED_ROWS, ids=lambda row: " ".join(row))
def test_numbers_in_html_and_markdown(report: Path, expected: list[str]) -> None:
    assert expected in Page(report.read_text(encoding="utf-8")).rows
    lines = report.with_name("report.md").read_text(encoding="utf-8").splitlines()
    assert expected in [[text.strip() for text in line.split("|")[1:-1]] for line in lines]


def test_every_head_is_marked_as_the_head_of_its_column(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    assert text.count("<th ") == text.count('<th scope="col" ') > 20


def test_oracle_row(report: Path) -> None:
    [row] = [
        row
        for row in Page(report.read_text(encoding="utf-8")).rows
        if row[:4] == ["20260910", "full", "compact", "310/320"]
    ]
    assert row[4] == "96.9"
    assert row[6:8] == ["95.8", "12/20"]


def test_csv_has_one_row_a_cell(report: Path) -> None:
    with open(report.with_name("crossover.csv"), encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    keys = [(r["kind"], r["trained_on"], r["tested_on"]) for r in rows]
    assert len(keys) == len(set(keys)) == 9
    by_key = dict(zip(keys, rows, strict=True))
    free = by_key["free_run", "full", "compact"]
    assert [free[c] for c in ("seed", "k", "n", "percent", "unit")] == [
        "20260910",
        "15",
        "20",
        "75.0000",
        "task",
    ]
    assert (free["low"][:4], free["high"][:4]) == ("53.1", "88.8")
    assert [free[c] for c in ("mean_calls", "rejection_k", "recovery_k", "recovery_n")] == [
        "20.4000",
        "8",
        "3",
        "8",
    ]
    assert free["clean_k"] == ""
    perfect = by_key["free_run", "compact", "compact"]
    assert (perfect["recovery_k"], perfect["recovery_n"]) == ("", "")
    oracle = by_key["oracle_prefix", "compact", "full"]
    assert [oracle[c] for c in ("k", "n", "post4_k", "post4_n", "clean_k", "clean_n")] == [
        *("103", "320", "45", "240", "0", "20")
    ]
    base = by_key["free_run", "untuned", "full"]
    assert [base[c] for c in ("seed", "adapter", "k")] == ["", "", "2"]


def test_finding_is_one_sentence_of_the_numbers(report: Path) -> None:
    text = report.with_name("report.md").read_text(encoding="utf-8")
    assert (
        "**In free runs of Qwen/Qwen3-1.7B adapters on 20 H16 chain tasks (test split), the training-view by "
        "test-view interaction was +110.0 percentage points (95% task bootstrap +85.0 to +135.0, "
        "sign-flip p = 1.53×10⁻⁵; one adapter pair, training seed 20260910); successes, trained→tested: "
        "compact→compact 20/20, compact→full 0/20, full→compact 15/20, full→full 17/20.**"
    ) in text
    assert "One training seed does not speak for other seeds" in text


def test_every_table_says_unit_conditioning_and_null(report: Path) -> None:
    html = report.read_text(encoding="utf-8")
    before_provenance = html[: html.index('<section id="provenance">')]
    notes = re.findall(r'<p class="note">(.*?)</p>', before_provenance, re.DOTALL)
    assert len(notes) == 10
    for note in notes:
        assert "Unit: " in note
        assert "Given: " in note
        assert "ull: " in note or "ull of the test: " in note


def test_paper_values_are_set_apart(report: Path) -> None:
    html = report.read_text(encoding="utf-8")
    paper = html[html.index('<section id="paper">') : html.index('<section id="provenance">')]
    for row in (
        ["20260926", "49/50", "50/50", "0/50", "50/50", "+98"],
        ["full", "full", "99.1", "17/20", "18.40"],
    ):
        assert row in Page(paper).rows
    assert "copied, not computed here" in paper
    assert "not the same measurement" in paper


def test_another_model_is_called_not_comparable(
    files: list[Path], spec: CrossoverSpec, tmp_path: Path
) -> None:
    renamed = files[1].read_text(encoding="utf-8").replace("Qwen/Qwen3-1.7B", "tiny/base")
    (tmp_path / "free.jsonl").write_text(renamed, encoding="utf-8")
    other = CrossoverSpec(spec.horizon, spec.views, spec.adapters, "tiny/base")
    page = write_report([tmp_path / "free.jsonl"], other, {}, tmp_path / "out").read_text(encoding="utf-8")
    assert "another model or horizon, so the two are not comparable" in page
    assert 'id="oracle-prefix"' not in page


def test_page_loads_nothing(report: Path) -> None:
    html = report.read_text(encoding="utf-8")
    page = Page(html)
    loads = [
        value for _, name, value in page.attributes if name in ("src", "href", "srcset", "data", "action")
    ]
    assert loads
    assert all(value.startswith(("data:image/svg+xml;base64,", "#")) for value in loads)
    assert not re.search(r"https?://|<script|@import|url\(", html)
    assert "default-src &#39;none&#39;" in html or "default-src 'none'" in html


def test_contents_lead_to_every_section(report: Path) -> None:
    attributes = Page(report.read_text(encoding="utf-8")).attributes
    links = [value[1:] for tag, name, value in attributes if tag == "a" and name == "href"]
    targets = [link for link in links if not link.startswith("cell-")]
    sections = [value for tag, name, value in attributes if tag == "section" and name == "id"]
    assert targets == sections == ["free-run", "oracle-prefix", "behaviour", "paper", "provenance"]


def test_images_have_text_with_the_counts(report: Path) -> None:
    attributes = Page(report.read_text(encoding="utf-8")).attributes
    texts = [value for tag, name, value in attributes if tag == "img" and name == "alt"]
    assert len(texts) == 6
    assert "trained full tested compact 15/20" in texts[0]
    assert "difference of differences (seed 20260910): +110.0, +85.0 to +135.0" in texts[1]
    assert "trained compact tested full: stage 1 20/20, lowest 0/20 at stage 4, last stage 0/20" in texts[4]
    assert "full→compact (seed 20260910): missing-input 99, output-exists 8;" in texts[5]


def test_provenance(report: Path, files: list[Path]) -> None:
    html = report.read_text(encoding="utf-8")
    rows = Page(html).rows
    assert ["data", "stsr/table-workflows at 0f3c1d9a, split test, family chain"] in rows
    assert ["base", "Qwen/Qwen3-1.7B at 70d244cc86ccca08cf5af4e1e306ecf908b1ad5e"] in rows
    assert ["adapter stsr/qwen3-1.7b-h16-full-s20260910", "rev-full-20260910"] in rows
    assert ["code", "stsr <1.0.0> & more"] in rows  # escaped in the page, read back unescaped
    assert "stsr <1.0.0>" not in html
    assert ["free.jsonl", "100", hashlib.sha256(files[1].read_bytes()).hexdigest()] in rows
    assert str(files[0].parent) not in html


def test_the_printed_command_makes_the_same_report(
    report: Path, files: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "python -m stsr.stats.report --inputs inputs.json --out again oracle.jsonl free.jsonl"
    assert f"<pre>{command}</pre>" in report.read_text(encoding="utf-8")
    inputs = report.with_name("inputs.json")
    assert json.loads(inputs.read_text(encoding="utf-8"))["spec"]["horizon"] == 16
    main(["--inputs", str(inputs), "--out", str(tmp_path / "again"), *map(str, files)])
    assert capsys.readouterr().out.strip() == str(tmp_path / "again" / "report.html")
    for path in sorted(p for p in report.parent.rglob("*") if p.is_file()):
        again = tmp_path / "again" / path.relative_to(report.parent)
        assert again.read_bytes() == path.read_bytes(), path.name


def test_a_failed_report_leaves_the_old_one(
    report: Path, files: list[Path], spec: CrossoverSpec, tmp_path: Path
) -> None:
    before = report.read_bytes()
    cut = tmp_path / "cut.jsonl"
    cut.write_text(
        "".join(files[0].read_text(encoding="utf-8").splitlines(keepends=True)[:-1]), encoding="utf-8"
    )
    with pytest.raises(CellError, match=r"missing decisions \(1\): chain-h16/62019#16"):
        write_report([cut, files[1]], spec, {}, report.parent)
    assert report.read_bytes() == before
    assert {path.name for path in report.parent.iterdir()} == FILES


def test_a_given_command_replaces_the_default(files: list[Path], spec: CrossoverSpec, tmp_path: Path) -> None:
    page = write_report([files[1]], spec, {"command": "stsr report h16-crossover"}, tmp_path / "out")
    assert "<pre>stsr report h16-crossover</pre>" in page.read_text(encoding="utf-8")


# Figures


def test_pictures_are_whole_and_have_fixed_bytes(
    files: list[Path], spec: CrossoverSpec, report: Path, tmp_path: Path
) -> None:
    for svg in (report.parent / "figures").glob("*.svg"):
        assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    for png in (report.parent / "figures").glob("*.png"):
        content = png.read_bytes()
        width = int.from_bytes(content[16:20], "big")
        assert content.startswith(b"\x89PNG")
        assert width >= 1000  # 200 dpi, at least five inches


def test_series_differ_without_colour() -> None:
    looks = (*figures.TRAINED, figures.UNTUNED)
    for what in ("color", "marker", "linestyle"):
        assert len({getattr(look, what) for look in looks}) == 3


def test_stage_curves_refuse_free_runs(
    records: Any, spec: CrossoverSpec, paper_free_run: dict[str, list[Record]], tmp_path: Path
) -> None:
    crossover = build(spec, group([r for part in paper_free_run.values() for r in part]), draws=10)[
        "free_run"
    ]
    with pytest.raises(TypeError, match="need oracle-prefix cells, not free_run"):
        figures.stage_curves(crossover, tmp_path / "stages")
