"""The server of many rows: exact answers, refusals, and the page in a browser."""

import base64
import json
import threading
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from io import BytesIO
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

from manylens import ModularKernelPCA
from manylens.explorer import served_neighbors as room
from manylens.explorer.page_data import explorer_data
from manylens.explorer.served_neighbors import BadRequestError, ExplorerBackend

pytest.importorskip("starlette")
uvicorn = pytest.importorskip("uvicorn")

SERVER = uvicorn.Server  # which a fixture replaces
HOSTILE = "<img src=x onerror=\"console.log('pwned')\">"


@pytest.fixture(scope="module")
def lenses(digits):
    return ModularKernelPCA(4, 5, diversity=0.9, random_state=0).fit(digits.data[:600])


@pytest.fixture(scope="module")
def backend(digits, lenses):
    """The backend of 600 digits with only 100 of them on the map."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "SAMPLE", 100)
        part = slice(600)
        text = [f"{HOSTILE} {row}" for row in range(600)]
        return ExplorerBackend(
            lenses, digits.data[part], digits.target[part], digits.images[part], text, title=HOSTILE
        )


@pytest.fixture(scope="module")
def address(backend):
    """The address of a server that runs in a thread."""
    with served(backend) as address:
        yield address


@contextmanager
def served(backend):
    """Serve in a thread."""
    from manylens.explorer import server

    ready, running = threading.Event(), {}

    class Server(SERVER):
        def __init__(self, config):
            super().__init__(config)
            running["server"] = self

    def started(address):
        running["address"] = address
        ready.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uvicorn, "Server", Server)
        thread = threading.Thread(target=server.serve, args=(backend, started), daemon=True)
        thread.start()
        assert ready.wait(60)
        yield running["address"]
        running["server"].should_exit = True
        thread.join(30)
        assert not thread.is_alive()


def weights_of(backend, diversity):
    W = backend.lenses.with_diversity(diversity)
    k = backend.coordinates.shape[1]
    gram = np.einsum("mhi,mhj->ij", *[W.weights_.reshape(4, 5, -1)[:, :, :k]] * 2) / 4
    return np.diag(gram).tolist()


def expected(view, row):
    found = NearestNeighbors(n_neighbors=11).fit(view).kneighbors(view[[row]], return_distance=False)[0]
    return [int(other) for other in found if other != row]


class TestAnswers:
    @pytest.mark.parametrize("diversity", [0.3, 0.9, 1.0])
    def test_they_are_exact_among_all_rows(self, backend, digits, diversity):
        Z = backend.lenses.with_diversity(diversity).transform(digits.data[:600])
        found = backend.neighbors({"row": 599, "weights": weights_of(backend, diversity)})
        assert found["together"] == expected(Z, 599)
        wanted = np.sqrt(((Z[found["together"]] - Z[599]) ** 2).sum(axis=1) / 4)
        np.testing.assert_allclose(found["distances"], wanted, rtol=1e-3)

    def test_modules_and_modules_switched_off(self, backend, digits):
        stops = [stop["diversity"] for stop in backend.page.meta["stops"]]
        asked = {"row": 7, "weights": weights_of(backend, 0.9), "stop": stops.index(0.9), "each": True}
        Z = backend.lenses.transform(digits.data[:600])
        views = Z.reshape(600, 4, 5)
        found = backend.neighbors(asked)
        assert found["modules"] == [expected(views[:, m], 7) for m in range(4)]
        found = backend.neighbors({**asked, "off": [0, 2]})
        assert found["together"] == expected(views[:, [1, 3]].reshape(600, 10), 7)

    def test_an_image_is_mapped_by_the_lenses(self, backend, digits):
        pixels = np.round(digits.images[700] * 255 / 16).astype(np.uint8)
        image = base64.b64encode(pixels.tobytes()).decode()
        found = backend.neighbors({"image": image, "weights": weights_of(backend, 0.9)})
        C = backend.coordinates
        c = backend.lenses.principal_coordinates(digits.data[[700]])[0, : C.shape[1]]
        wanted = np.argsort(((C - c) ** 2) @ np.array(weights_of(backend, 0.9)))[:10]
        assert len({*found["together"]} & {*wanted.tolist()}) >= 9

    def test_rows_of_an_answer_are_described(self, backend, digits):
        found = backend.neighbors({"row": 5, "weights": weights_of(backend, 1.0)})
        row = next(row for row in found["rows"] if row["row"] == 5)
        assert row["text"] == f"{HOSTILE} 5"
        assert backend.page.meta["classes"][row["codes"]] == str(digits.target[5])
        assert base64.b64decode(row["image"])[3] == round(digits.images[5].flat[3] * 255 / 16)
        assert {row["row"] for row in found["rows"]} == {5, *found["together"]}

    @pytest.mark.parametrize(
        "bad",
        [
            None, [], "row", {"row": "5"}, {"row": -1}, {"row": 600}, {"row": True}, {"row": 1e300},
            {"row": 1.5}, {"row": 1, "off": [0, 1, 2, 3]},
            {"row": 1, "weights": []}, {"row": 1, "weights": "x"}, {"row": 1, "weights": [[1]]},
            {"row": 1, "weights": {}}, {"image": 5}, {"image": "!!"}, {"image": ""},
            {"image": base64.b64encode(bytes(65)).decode()}, {"row": 1, "off": [9]},
            {"row": 1, "off": "0"}, {"row": 1, "stop": 99}, {"row": 1, "stop": None}, {"row": 1, "off": [[]]},
        ],
    )  # fmt: skip
    def test_what_the_page_would_not_send_is_refused(self, backend, bad):
        if isinstance(bad, dict) and "weights" not in bad:
            bad = {**bad, "weights": weights_of(backend, 1.0)} if "off" in bad or "stop" in bad else bad
        with pytest.raises(BadRequestError):
            backend.neighbors(bad)

    def test_rows_are_found_by_name(self, digits, lenses):
        names = ["same", *(f"{HOSTILE} {row}" for row in range(1, 599)), "same"]
        named = ExplorerBackend(lenses, digits.data[:600], ids=names)
        assert named.page.meta["named"]
        assert named.page.meta["ids"] is None
        assert [named.find({"name": name})["row"] for name in ("same", names[7], "none")] == [0, 7, -1]
        for bad in (None, {}, {"name": 5}, {"name": None}, ["name"]):
            with pytest.raises(BadRequestError, match="name"):
                named.find(bad)

    @pytest.mark.parametrize("weight", [np.nan, np.inf, -1.0, 1e300, None, "1e400"])
    def test_weights_must_be_numbers(self, backend, weight):
        weights = weights_of(backend, 1.0)
        with pytest.raises(BadRequestError, match="weights"):
            backend.neighbors({"row": 1, "weights": [weight, *weights[1:]]})

    def test_the_page_has_the_sample_only(self, backend, digits, lenses):
        data = backend.data({"token": "t"})
        assert len(data.coordinates) == 100 * backend.coordinates.shape[1] * 4
        assert data.images == b""
        assert data.meta["n"] == 600
        assert HOSTILE not in json.dumps({**data.meta, "title": ""})
        whole = explorer_data(lenses, digits.data[:600])
        C = np.frombuffer(whole.coordinates, "<f4").reshape(600, -1)
        np.testing.assert_array_equal(
            np.frombuffer(data.coordinates, "<f4").reshape(100, -1), C[data.meta["sample"]]
        )


class TestViews:
    def test_as_many_stops_are_kept_as_there_is_room_for(self, backend, monkeypatch):
        one = 4 * 600 * 20
        monkeypatch.setattr(room, "LARGEST_VIEWS", 2 * one)
        monkeypatch.setattr(backend, "_views", {})
        for stop, kept in ((0, [0]), (1, [0, 1]), (0, [1, 0]), (2, [0, 2]), (3, [2, 3])):
            asked = {"row": 1, "weights": weights_of(backend, 0.9), "stop": stop, "each": True}
            backend.neighbors(asked)
            assert list(backend._views) == kept

    def test_fixed_modules_are_their_own_columns(self, digits):
        class Columns:
            """Modules of different widths, by columns."""

            def fit(self, X):
                self.fitted_ = True
                return self

            def transform(self, X):
                return np.asarray(X)

            def split(self, Z):
                return [Z[:, :4], Z[:, 4:]]

            def __sklearn_tags__(self):
                return ModularKernelPCA().__sklearn_tags__()

        X = Z = np.random.default_rng(0).standard_normal((300, 11))
        fixed = ExplorerBackend(Columns().fit(X), X)
        found = fixed.neighbors({"row": 9, "weights": [0.5] * 11, "each": True})
        assert found["modules"] == [expected(view, 9) for view in (Z[:, :4], Z[:, 4:])]
        assert found["together"] == expected(Z, 9)

    def test_a_deferred_map_answers_once_all_rows_are_mapped(self, backend, digits, lenses, monkeypatch):
        from manylens.explorer import page_data

        monkeypatch.setattr(page_data, "MAPPED", 256)
        monkeypatch.setattr(room, "SAMPLE", 100)
        later = ExplorerBackend(lenses, digits.data[:600], digits.target[:600], deferred=True)
        asked = {"row": 3, "weights": weights_of(backend, 0.9)}
        seen = []
        fill = room.fill_groups

        def filled(*arguments):
            with pytest.raises(room.NotReadyError) as refused:
                later.neighbors(asked)
            seen.append(refused.value.args[0])
            fill(*arguments)

        monkeypatch.setattr(room, "fill_groups", filled)
        later.map_rows()
        assert seen == [0, 256 / 600, 512 / 600]
        assert later.neighbors(asked)["together"] == backend.neighbors(asked)["together"]

    def test_rows_that_cannot_be_mapped_are_reported_to_the_page(self, backend, digits, lenses):
        later = ExplorerBackend(lenses, digits.data[:600], deferred=True)
        later._unmapped = np.full((600, 64), np.nan)
        with pytest.raises(ValueError, match="NaN"):
            later.map_rows()
        with pytest.raises(room.BadRequestError, match=r"could not be mapped.*NaN"):
            later.neighbors({"row": 3, "weights": weights_of(backend, 0.9)})

    def test_blocks_of_rows_are_mapped_alike(self, digits, lenses, monkeypatch):
        pd = pytest.importorskip("pandas")
        from manylens.explorer import page_data

        X = digits.data[:100]
        whole = page_data.leading_coordinates(lenses, X, 20)
        monkeypatch.setattr(page_data, "MAPPED", 33)
        np.testing.assert_allclose(page_data.leading_coordinates(lenses, X, 20), whole, atol=1e-10)
        frame = page_data.leading_coordinates(lenses, pd.DataFrame(X), 20, np.float32)
        assert frame.dtype == np.float32
        np.testing.assert_allclose(frame, whole, rtol=1e-4, atol=1e-5)


def ask(address, path="/", method="GET", body=None, **headers):
    where = urlsplit(address)
    with closing(HTTPConnection(where.hostname, where.port, timeout=30)) as connection:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        headers = {"Host": where.netloc, **headers}
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        headers["Content-Length"] = str(len(content))
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders(content)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()


class TestServer:
    def test_only_this_machine_can_reach_it_and_the_token_is_long(self, address):
        assert urlsplit(address).hostname == "127.0.0.1"
        assert len(parse_qs(urlsplit(address).query)["token"][0]) >= 32

    def test_the_page_needs_the_token_the_host_and_no_other_origin(self, address):
        where = urlsplit(address)
        good = f"/?{where.query}"
        status, headers, body = ask(address, good)
        assert status == 200
        assert b"<!DOCTYPE html>" in body
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert not any(name.lower().startswith("access-control") for name in headers)
        assert headers["referrer-policy"] == "no-referrer"
        assert ask(address, "/")[0] == 403
        assert ask(address, good[:-1])[0] == 403
        assert ask(address, "/?token=%F0%9F%92%A9")[0] == 403
        assert ask(address, good, Host="evil.example")[0] == 421
        assert ask(address, good, Host=f"evil.example:{where.port}")[0] == 421
        assert ask(address, good, Origin="http://evil.example")[0] == 403
        assert ask(address, good, Origin="null")[0] == 403
        assert ask(address, good, Host=f"localhost:{where.port}")[0] == 200

    def test_questions_need_the_token_and_sense(self, address, backend):
        token = parse_qs(urlsplit(address).query)["token"][0]
        asked = {"row": 3, "weights": weights_of(backend, 0.9)}
        good = {"Authorization": f"Bearer {token}"}
        status, _, body = ask(address, "/neighbors", "POST", asked, **good)
        assert status == 200
        assert json.loads(body)["together"] == backend.neighbors(asked)["together"]
        assert ask(address, "/neighbors", "POST", asked)[0] == 403
        assert ask(address, f"/neighbors?token={token}", "POST", asked)[0] == 403
        assert ask(address, "/neighbors", "POST", asked, Authorization="Bearer x")[0] == 403
        assert ask(address, "/neighbors", "POST", asked, Host="evil.example", **good)[0] == 421
        assert ask(address, "/neighbors", "POST", asked, Origin="http://evil.example", **good)[0] == 403
        assert ask(address, "/neighbors", "OPTIONS", Origin="http://evil.example")[0] == 405
        assert json.loads(ask(address, "/row", "POST", {"name": "x"}, **good)[2]) == {"row": -1}
        assert ask(address, "/row", "POST", {"name": "x"})[0] == 403
        for body in (b"", b"{", b"[" * 100_000, b"\xff", b'{"row": NaN}'):
            status, _, answer = ask(address, "/neighbors", "POST", body, **good)
            assert (status, list(json.loads(answer))) == (400, ["error"])
        assert ask(address, "/neighbors", "POST", b" " * (2**20 + 1), **good)[0] == 413
        assert ask(address, "/../../etc/passwd")[0] == 404

    def test_a_missing_package_is_named(self, backend, monkeypatch):
        from manylens.explorer import server

        def missing(name):
            raise ImportError(name)

        monkeypatch.setattr("manylens.optional.importlib.import_module", missing)
        with pytest.raises(ImportError, match=r"needs uvicorn: pip install 'manylens\[serve\]'"):
            server.serve(backend)


def test_the_page_of_a_server_shows_exact_neighbors_of_rows_that_are_not_on_the_map(
    browser, address, backend, digits
):
    messages = []
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(30_000)
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))

    def shown():
        page.wait_for_selector(".mlx-modules[aria-busy=false]")
        return [int(row) for row in page.eval_on_selector_all(".mlx-card", "n => n.map(b => b.dataset.row)")]

    try:
        page.goto(address)
        assert page.title() == HOSTILE
        row = next(row for row in range(600) if row not in set(backend.page.meta["sample"]))
        page.get_by_role("searchbox").fill(str(row))
        page.keyboard.press("Enter")
        page.locator(".mlx-query strong", has_text=f"row {row}").wait_for()
        assert shown() == expected(backend.lenses.transform(digits.data[:600]), row)
        assert page.locator(".mlx-query .mlx-text").text_content() == f"{HOSTILE} {row}"
        page.locator(".mlx-slider").evaluate("n => { n.value = 0.4; n.dispatchEvent(new Event('input')); }")
        assert shown() == expected(backend.lenses.with_diversity(0.4).transform(digits.data[:600]), row)
        page.get_by_role("checkbox", name="module 2 ").uncheck()
        views = backend.lenses.with_diversity(0.4).transform(digits.data[:600]).reshape(600, 4, 5)
        assert shown() == expected(views[:, [0, 2, 3]].reshape(600, 15), row)
        pixels = np.round(digits.images[700] * 255 / 16).astype(np.uint8)
        image = pytest.importorskip("PIL.Image").fromarray(pixels)
        image.save(buffer := BytesIO(), "PNG")
        page.locator("input[type=file]").set_input_files(
            {"name": "new.png", "mimeType": "image/png", "buffer": buffer.getvalue()}
        )
        page.locator(".mlx-query strong", has_text="Your image").wait_for()
        assert len(shown()) == 10
        assert messages == []
    finally:
        context.close()


@contextmanager
def opened(browser, backend):
    """A page of a server; nothing may be written to its console."""
    messages, context = [], browser.new_context(viewport={"width": 1280, "height": 900})
    try:
        with served(backend) as address:
            page = context.new_page()
            page.set_default_timeout(30_000)
            page.on("console", lambda message: messages.append(message.text))
            page.goto(address)
            yield page
            assert messages == []
    finally:
        context.close()


def cards(page):
    """Rows of the neighbors that a page shows."""
    page.wait_for_selector(".mlx-modules[aria-busy=false]")
    return page.eval_on_selector_all(".mlx-card", "n => n.map(b => Number(b.dataset.row))")


def test_a_page_says_how_many_rows_are_mapped_and_then_shows_the_neighbors(browser, digits, lenses):
    rows = digits.data[:600]
    later, proceed = ExplorerBackend(lenses, rows, deferred=True), threading.Event()
    map_rows = later.map_rows
    later.map_rows = lambda: proceed.wait(60) and map_rows()
    with opened(browser, later) as page:
        page.locator(".mlx-query", has_text="maps all 600 rows: 0 % are done").wait_for()
        proceed.set()
        assert cards(page) == expected(lenses.transform(rows), 0)


def test_a_page_of_a_server_finds_rows_by_name(browser, digits, lenses):
    named = ExplorerBackend(lenses, digits.data[:600], ids=[f"digit {HOSTILE} {row}" for row in range(600)])
    with opened(browser, named) as page:
        field = page.get_by_role("searchbox")
        assert field.get_attribute("placeholder") == "0 to 599 or name"
        field.fill(f"digit {HOSTILE} 321")
        page.keyboard.press("Enter")
        page.locator(".mlx-query strong", has_text="321").wait_for()
        assert cards(page) == expected(lenses.transform(digits.data[:600]), 321)
        field.fill("nobody")
        page.keyboard.press("Enter")
        page.get_by_text("There is no row “nobody”").first.wait_for()
        assert field.get_attribute("aria-invalid") == "true"
