"""A headless browser, and a page of the digits."""

import shutil

import pytest
from sklearn.datasets import load_digits

from manylens import ModularKernelPCA, explore

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="session")
def browser():
    if CHROMIUM is None:
        pytest.skip("needs chromium: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=60_000)
        yield started
        started.close()


@pytest.fixture
def new_page(browser):
    """Open pages without network; a message on the console or an error fails the test."""
    messages, contexts = [], []

    def open_page(**options):
        context = browser.new_context(offline=True, **{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        context.set_default_timeout(30_000)
        page = context.new_page()
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert messages == []


@pytest.fixture(scope="session")
def digits():
    return load_digits()


@pytest.fixture(scope="session")
def lenses(digits):
    return ModularKernelPCA(6, 5, diversity=0.9, random_state=0).fit(digits.data[:500])


@pytest.fixture(scope="session")
def digits_page(lenses, digits, tmp_path_factory):
    path = tmp_path_factory.mktemp("explorer") / "digits.html"
    part = slice(500)
    return explore(lenses, digits.data[part], digits.target[part], digits.images[part], output=path)
