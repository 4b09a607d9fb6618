"""`manylens demo`: its options, its table and its report."""

import re
import sys
from html import unescape
from html.parser import HTMLParser

import matplotlib
import numpy
import pytest

import manylens
from manylens.cli import main
from manylens.cli.demo_experiment import Settings, run_experiment
from manylens.cli.demo_report import gallery_queries, table_rows

SEED = 3


@pytest.fixture(scope="module")
def experiment():
    return run_experiment(Settings.quick(SEED))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "page.html"
    assert main(["demo", "--quick", "--seed", str(SEED), "--output", str(path)]) == 0
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(written):
    """The page without the pixels embedded in it."""
    return re.sub(r"data:image/png;base64,[A-Za-z0-9+/=\s]+", "data:", written)


class Outline(HTMLParser):
    """Open tags, identifiers, headings and table cells of a page."""

    void = {"meta", "br", "image", "path", "use", "rect"}

    def __init__(self, page):
        super().__init__()
        self.open, self.identifiers, self.headings, self.rows = [], [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.identifiers += [value for name, value in attributes if name == "id"]
        if tag == "tr":
            self.rows.append([])
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.identifiers += [value for name, value in attributes if name == "id"]

    def handle_endtag(self, tag):
        if tag not in self.void:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)
        if self.open and self.open[-1] == "td":
            self.rows[-1].append(data)


def test_the_page_refers_to_nothing_outside_itself(page):
    assert "http" not in page
    assert not re.findall(r'(?:src|href)="(?!data:|#)', page)
    assert not re.findall(r"url\((?!#)", page)
    assert not re.findall(r"<(?:script|link|iframe)\b|@import", page)


def test_the_page_is_well_formed_and_no_identifier_is_used_twice(page):
    outline = Outline(page)
    assert not outline.open
    assert len(outline.identifiers) == len(set(outline.identifiers)) > 0
    for name in re.findall(r'(?:url\(#|href="#)([^)"]+)', page):
        assert name in outline.identifiers


def test_the_page_has_all_sections_and_figures(page):
    assert Outline(page).headings == [
        "How the representations compare",
        "What the modules cover",
        "What diversity does",
        "What the modules return",
        "How close the modules are to the best possible",
    ]
    assert page.count("<svg") == 5
    assert page.count('role="img"') == 5
    assert "prefers-color-scheme: dark" in page
    assert f"manylens demo --seed {SEED} --quick" in page
    for version in (manylens.__version__, numpy.__version__, matplotlib.__version__):
        assert version in page


def test_figures_take_the_color_of_the_page(page):
    assert "#010203" not in page
    assert page.count("currentColor") > 20


def test_the_images_of_the_gallery_are_embedded(written):
    assert "data:image/png;base64," in written


def test_the_table_shows_the_scores_of_the_experiment(page, experiment):
    printed = [row for row in Outline(page).rows if len(row) > 5 or (row and row[0] == "monolithic")]
    for shown, row in zip(printed, table_rows(experiment), strict=True):
        expected = [cell.strip() for cell in row.cells[:-1] if cell]  # the last is a time
        assert shown[: len(expected)] == expected


def test_the_page_shows_the_certificates_of_the_models(page, experiment):
    best = experiment.best.model
    assert f"<b>{best.loss_:.4g}</b>" in page
    assert f"<b>{best.lower_bound_:.4g}</b>" in page
    losses = [row[1] for row in Outline(page).rows if len(row) == 5]
    assert losses == [f"{measured.model.loss_:.6g}" for measured in experiment.path]


def test_the_summary_is_two_sentences_with_the_measured_precision(page, experiment):
    lead = unescape(re.search(r'<p class="lead">(.*?)</p>', page, re.DOTALL).group(1))
    assert len(re.findall(r"\.(?:\s|$)", lead)) == 2
    assert f"{100 * experiment.best.scores.precision:.1f}\N{NO-BREAK SPACE}%" in lead


def test_the_gallery_shows_the_hardest_queries_first(experiment):
    model, digits = experiment.best.model, experiment.digits
    chosen = gallery_queries(model, digits, 10)
    assert len(set(chosen)) == 6
    assert list(chosen[2:]) == sorted(chosen[2:])


def test_the_terminal_shows_the_same_table(tmp_path, capsys, experiment, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["demo", "--quick", "--seed", str(SEED), "--output", str(tmp_path / "page.html")]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = {row.cells[0] for row in table_rows(experiment)}
    shown = [line.split() for line in lines if line.split() and line.split()[0] in names]
    for words, row in zip(shown, table_rows(experiment), strict=True):
        assert words[:-1] == [cell.strip() for cell in row.cells[:-1] if cell]
    assert all(len(line) <= 80 or str(tmp_path) in line for line in lines)
    assert "…" not in "".join(lines)


def test_the_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out.strip() == f"manylens {manylens.__version__}"


def test_without_a_command_the_help_is_printed(capsys):
    assert main([]) == 0
    assert "demo" in capsys.readouterr().out


@pytest.mark.parametrize("package", ["rich", "matplotlib"])
def test_the_error_for_a_missing_package_says_how_to_install_it(package, monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["demo", "--output", str(tmp_path / "page.html")]) == 2
    message = capsys.readouterr().err
    assert message == f'manylens: the demo needs {package}: pip install "manylens[cli]"\n'


def test_a_missing_folder_is_rejected_before_any_work(tmp_path, capsys):
    missing = tmp_path / "missing"
    assert main(["demo", "--output", str(missing / "page.html")]) == 2
    assert (
        capsys.readouterr().err
        == f"manylens: the folder {missing} of --output does not exist: create it first.\n"
    )
    assert main(["demo", "--output", str(tmp_path)]) == 2
    assert "is a folder: give the name of a file in it" in capsys.readouterr().err


def test_the_error_names_a_file_that_cannot_be_written_and_the_reason(tmp_path, capsys, monkeypatch):
    def refuse(*arguments, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.write_text", refuse)
    path = tmp_path / "page.html"
    assert main(["demo", "--quick", "--output", str(path)]) == 2
    message = f"manylens: {path} could not be written (Permission denied): choose another --output.\n"
    assert capsys.readouterr().err == message


@pytest.mark.parametrize("text", ["-1", "many", "4294967296"])
def test_an_invalid_seed_is_rejected(text, capsys):
    with pytest.raises(SystemExit):
        main(["demo", f"--seed={text}"])
    assert f"'{text}' is not a whole number from 0 to 4294967295" in capsys.readouterr().err


def test_an_interrupt_prints_one_line_and_writes_no_report(tmp_path, capsys, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("manylens.cli.demo.run_experiment", interrupted)
    path = tmp_path / "page.html"
    assert main(["demo", "--output", str(path)]) == 130
    assert capsys.readouterr().err == "manylens: interrupted.\n"
    assert not path.exists()
