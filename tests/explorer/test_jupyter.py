"""The widget in a real JupyterLab: the page and Python follow each other, and the theme is the notebook's."""

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

import manylens

SHOW = """
from sklearn.datasets import load_digits
from manylens import ModularKernelPCA, explore
digits = load_digits()
X, y = digits.data[:200], digits.target[:200]
lenses = ModularKernelPCA(3, 4, random_state=0).fit(X)
widget = explore(lenses, X, y, digits.images[:200])
widget
"""
CELLS = [SHOW, "print('selected', widget.selected, 'diversity', widget.diversity)", "widget.selected = 77"]

pytestmark = pytest.mark.skipif(
    any(find_spec(package) is None for package in ("jupyterlab", "anywidget", "ipykernel")),
    reason="needs jupyterlab, anywidget and ipykernel",
)


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@pytest.fixture
def address(tmp_path):
    """JupyterLab with a notebook of three cells, its settings in a temporary folder."""
    cells = [
        {
            "cell_type": "code",
            "id": f"c{k}",
            "source": source,
            "metadata": {},
            "outputs": [],
            "execution_count": None,
        }
        for k, source in enumerate(CELLS)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    folder = tmp_path / "notebooks"
    folder.mkdir()
    (folder / "page.ipynb").write_text(json.dumps(notebook))
    port, token = free_port(), secrets.token_hex(16)
    words = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}"]
    words += [f"--IdentityProvider.token={token}", "--LabApp.expose_app_in_browser=True", "--allow-root"]
    words += ["--LabApp.news_url=", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
    homes = {f"JUPYTER_{kind}_DIR": str(tmp_path / kind) for kind in ("CONFIG", "DATA", "RUNTIME")}
    homes |= {
        "JUPYTERLAB_SETTINGS_DIR": str(tmp_path / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(tmp_path / "w"),
    }
    source = str(Path(manylens.__file__).parents[1])
    log = (tmp_path / "log").open("w")
    server = subprocess.Popen(
        words, cwd=folder, stdout=log, stderr=log, env={**os.environ, **homes, "PYTHONPATH": source}
    )
    try:
        where = f"http://127.0.0.1:{port}"
        for _ in range(120):
            assert server.poll() is None, (tmp_path / "log").read_text()
            try:
                urlopen(f"{where}/api?token={token}", timeout=5).close()
                break
            except (URLError, OSError):
                time.sleep(0.5)
        yield f"{where}/lab/tree/page.ipynb?token={token}"
    finally:
        server.terminate()  # which also ends its kernel
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        log.close()


def run_cell(page, number):
    page.evaluate(
        """async (number) => {
          jupyterapp.shell.currentWidget.content.activeCellIndex = number;
          await jupyterapp.commands.execute("notebook:run-cell");
        }""",
        number,
    )


def test_the_widget_and_python_follow_each_other(browser, address):
    context = browser.new_context(viewport={"width": 1400, "height": 1000}, color_scheme="light")
    page = context.new_page()
    page.set_default_timeout(90_000)
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    try:
        page.goto(address)
        page.wait_for_selector(".jp-Notebook .jp-CodeCell")
        page.wait_for_function(
            "jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
        )
        run_cell(page, 0)
        page.wait_for_selector(".mlx-modules[aria-busy=false]")
        assert page.locator(".mlx-card").count() == 10
        chosen = page.locator(".mlx-card").first.get_attribute("data-row")
        page.locator(".mlx-card").first.click()
        page.locator(".mlx-slider").evaluate("n => { n.value = 0.5; n.dispatchEvent(new Event('input')); }")
        page.locator(".mlx-query strong", has_text=f"row {chosen}").wait_for()
        run_cell(page, 1)
        page.get_by_text(f"selected {chosen} diversity 0.5").wait_for()
        run_cell(page, 2)
        page.locator(".mlx-query strong", has_text="row 77").wait_for()
        assert not page.locator(".mlx").evaluate("node => node.matches('.mlx-dark')")
        page.evaluate("jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})")
        page.locator(".mlx.mlx-dark").wait_for()
        assert errors == []
    finally:
        context.close()
