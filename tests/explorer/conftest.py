"""A headless browser, and a page of the digits."""

import shutil

import pytest

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


@pytest.fixture(scope="session")
def tabs(browser):
    """A context, and its tabs that no test uses: starting a tab takes longer than loading a page."""
    context = offline_context(browser)
    yield context, []
    context.close()


def offline_context(browser, **options):
    """A context without network."""
    context = browser.new_context(offline=True, **{"viewport": {"width": 1280, "height": 900}, **options})
    context.set_default_timeout(30_000)
    return context


@pytest.fixture
def new_page(browser, tabs):
    """Open pages without network; a message on the console or an error fails the test."""
    messages, contexts, borrowed = [], [], []
    shared, free = tabs

    def listen_to_message(message):
        messages.append(message.text)

    def listen_to_error(error):
        messages.append(str(error))

    def open_page(**options):
        if options:
            contexts.append(offline_context(browser, **options))
            page = contexts[-1].new_page()
        else:
            page = free.pop() if free else shared.new_page()
            borrowed.append(page)
        page.on("console", listen_to_message)
        page.on("pageerror", listen_to_error)
        return page

    yield open_page
    for context in contexts:
        context.close()
    for page in borrowed:
        page.remove_listener("console", listen_to_message)
        page.remove_listener("pageerror", listen_to_error)
        page.goto("about:blank")  # so that nothing of this test is left
        page.set_viewport_size({"width": 1280, "height": 720})  # playwright's own, if a test changed it
        page.mouse.move(0, 0)
        free.append(page)
    assert messages == []


@pytest.fixture(scope="session")
def lenses(digits):
    return ModularKernelPCA(6, 5, diversity=0.9, random_state=0).fit(digits.data[:500])


@pytest.fixture(scope="session")
def digits_page(lenses, digits, tmp_path_factory):
    path = tmp_path_factory.mktemp("explorer") / "digits.html"
    part = slice(500)
    return explore(lenses, digits.data[part], digits.target[part], digits.images[part], output=path)
