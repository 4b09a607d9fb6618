"""The explorer on a local server, for more rows than a page can hold."""

from __future__ import annotations

import json
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from manylens.explorer.page_hosts import page
from manylens.explorer.served_neighbors import BadRequestError, ExplorerBackend, NotReadyError
from manylens.optional import import_optional

LARGEST_REQUEST = 2**20  # bytes
HOST = "127.0.0.1"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline' blob:; "
    "style-src 'unsafe-inline'; img-src data: blob:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def serve(
    backend: ExplorerBackend, started: Callable[[str], object] = print, *, token: str | None = None
) -> None:
    """Serve the page on this machine only, until Ctrl-C; `started` gets its address.

    Rows that are not mapped yet are mapped meanwhile; the page shows how many are.

    The address holds a random port and a token. Requests without the token, or for another host name (as in
    DNS rebinding), or from a page of another origin are refused.
    """
    uvicorn: Any = import_optional("uvicorn", "Serving the explorer", "'manylens[serve]'")
    import_optional("starlette", "Serving the explorer", "'manylens[serve]'")
    token = token or secrets.token_urlsafe(24)
    listening = socket.socket()
    try:
        listening.bind((HOST, 0))
        port = listening.getsockname()[1]
        app = application(backend, token, port)
        config = uvicorn.Config(
            app,
            log_level="error",
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=2,
        )
        listening.listen()  # so that the browser can connect as soon as it knows the address
        started(f"http://{HOST}:{port}/?token={token}")
        if not backend.is_ready:
            threading.Thread(target=backend.map_rows, daemon=True).start()
        with suppress(KeyboardInterrupt):  # uvicorn shuts down and then passes the signal on
            uvicorn.Server(config).run(sockets=[listening])
    finally:
        listening.close()


def application(backend: ExplorerBackend, token: str, port: int) -> Any:
    """The ASGI application: the page, and answers to its requests."""
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    addresses = {f"{HOST}:{port}", f"localhost:{port}"}
    html = page(backend.data({"token": token})).encode()

    def respond(content: Any, status: int = 200, kind: str = "application/json") -> Response:
        body = content if isinstance(content, bytes) else json.dumps(content, allow_nan=False).encode()
        return Response(body, status, HEADERS, media_type=kind)

    def refusal(request: Request, given: str) -> Response | None:
        origin = request.headers.get("origin")
        if request.headers.get("host") not in addresses:
            return respond({"error": "this server answers to its own address only"}, 421)
        if origin is not None and origin.removeprefix("http://") not in addresses:
            return respond({"error": "requests from other pages are refused"}, 403)
        if not secrets.compare_digest(given.encode("utf-8", "replace"), token.encode()):
            return respond({"error": "the token in the address is missing or wrong"}, 403)
        return None

    async def show(request: Request) -> Response:
        refused = refusal(request, request.query_params.get("token", ""))
        return refused or respond(html, kind="text/html")

    async def answer(request: Request, ask: Callable[[Any], dict[str, Any]]) -> Response:
        refused = refusal(request, request.headers.get("authorization", "").removeprefix("Bearer "))
        if refused:
            return refused
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > LARGEST_REQUEST:
                return respond({"error": "the request is too large"}, 413)
        try:
            asked = json.loads(body)
        except (ValueError, RecursionError):
            return respond({"error": "the request is not JSON"}, 400)
        try:
            return respond(await run_in_threadpool(ask, asked))
        except BadRequestError as error:
            return respond({"error": str(error)}, 400)
        except NotReadyError as error:
            return respond({"mapped": error.args[0]}, 202)

    async def neighbors(request: Request) -> Response:
        return await answer(request, backend.neighbors)

    async def row(request: Request) -> Response:
        return await answer(request, backend.find)

    return Starlette(
        routes=[
            Route("/", show, methods=["GET"]),
            Route("/neighbors", neighbors, methods=["POST"]),
            Route("/row", row, methods=["POST"]),
        ]
    )
