"""The web server of the dashboard: routes to pages, and a stream of events that says when a page has changed.

Laws: it listens on this host alone and answers no other host's name (a page of another site cannot read it through a
name that it lets point here); it makes read calls alone; however many browsers watch a page, it is read once a period.
"""

import asyncio
import json
import socket
import time
from collections import OrderedDict, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from interfere.client import PolicyClient
from interfere.dashboard import pages
from interfere.errors import InterfereError, UnavailableError
from interfere.records import NAN
from interfere.reports.document import Document
from interfere.reports.html_page import SITE_POLICY, Site, html_page
from interfere.store.observed_table import LoggedWindow, counted_windows, is_in_company

PERIOD_S = 2.0
MAX_PAGES = 64  # kept for the browsers that watch them
LOG_ENTRIES = 1000  # newest of the observation log, from which the page of predictions is made
LISTED = 20  # decisions of the overview
MAX_LISTED = 100  # decisions among which one is looked for
HOSTS = ("127.0.0.1", "localhost")
TITLES = (("Now", "/"), ("Predictions", "/predictions"), ("Models", "/models"))
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": f"{SITE_POLICY}; frame-ancestors 'none'; form-action 'none'; base-uri 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """A page as it was last made."""

    html: str
    status: int
    made_s: float  # time.monotonic()


@dataclass(slots=True)
class Dashboard:
    """Reads pages off a policy server, each at most once a period."""

    client: PolicyClient
    period_s: float = PERIOD_S
    _shown: OrderedDict[str, Shown] = field(default_factory=OrderedDict)
    _reading: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    async def page(self, path: str, query: str) -> Shown:
        """Return the page at a path, not older than a period."""
        key = f"{path}?{query}"
        async with self._reading[key]:
            shown = self._shown.get(key)
            if shown is None or time.monotonic() - shown.made_s >= self.period_s:
                shown = await run_in_threadpool(self._make, path, QueryParams(query))
                self._shown[key] = shown
                self._shown.move_to_end(key)
                while len(self._shown) > MAX_PAGES:
                    self._reading.pop(self._shown.popitem(last=False)[0], None)
            return shown

    def _make(self, path: str, query: QueryParams) -> Shown:
        status = 200
        try:
            document = _PAGES[path](self.client, query)
        except InterfereError as error:
            document = pages.unreachable(str(error), is_away=isinstance(error, UnavailableError))
            status = 503 if isinstance(error, UnavailableError) else 404
        site = Site(pages=TITLES, here=path, script="/live.js")
        return Shown(html_page(document, site), status, time.monotonic())

    async def changes(self, path: str, query: str, request: Request) -> AsyncIterator[str]:
        """Yield an event each period, and one with the page whenever it has changed, until the browser goes away."""
        before = ""
        while not await request.is_disconnected():
            shown = await self.page(path, query)
            if shown.html != before:
                before = shown.html
                yield f"event: page\ndata: {json.dumps(shown.html)}\n\n"
            yield "event: checked\ndata:\n\n"
            await asyncio.sleep(self.period_s)


def application(client: PolicyClient, *, period_s: float = PERIOD_S) -> Starlette:
    """Return the dashboard of the server that a client asks, as an ASGI application."""
    dashboard = Dashboard(client, period_s)
    script = files(__package__).joinpath("live.js").read_text(encoding="utf-8")

    async def page(request: Request) -> Response:
        shown = await dashboard.page(request.url.path, request.url.query)
        return HTMLResponse(shown.html, shown.status, HEADERS)

    async def events(request: Request) -> Response:
        path = request.url.path.removeprefix("/events")
        stream = dashboard.changes(path, request.url.query, request)
        return StreamingResponse(stream, headers=HEADERS, media_type="text/event-stream")

    async def live(_: Request) -> Response:
        return Response(script, headers=HEADERS, media_type="text/javascript")

    async def icon(_: Request) -> Response:
        return Response(status_code=204)  # every browser asks for one

    routes = [
        Route("/favicon.ico", icon),
        Route("/live.js", live),
        *(Route(path, page) for path in _PAGES),
        *(Route(f"/events{path}", events) for path in _PAGES),
    ]
    return Starlette(routes=routes, middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(HOSTS))])


def serve(client: PolicyClient, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve the dashboard on this host until SIGTERM or Ctrl-C. Raises UnavailableError where the port is taken."""
    try:
        listening = socket.create_server((HOSTS[0], port))
    except OSError as error:
        raise UnavailableError(
            f"cannot listen ({error.strerror})", value=f"{HOSTS[0]}:{port}", remedy="give another --port"
        ) from None
    settings = uvicorn.Config(
        application(client),
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,  # streams of events do not end by themselves
    )
    with listening:
        on_ready(f"http://{HOSTS[0]}:{listening.getsockname()[1]}")
        uvicorn.Server(settings).run(sockets=[listening])


# --- what each page asks ----------------------------------------------------------------------------------------------


def _overview(client: PolicyClient, query: QueryParams) -> Document:
    scopes = client.scopes()
    names = [each.scope for each in scopes.scopes]
    scope = query.get("scope") or ("default" if "default" in names or not names else names[0])
    decisions = client.decisions(scope=scope, limit=LISTED)
    state = client.scope(scope) if decisions.decisions else None
    return pages.overview(scopes, scope, state, decisions, client.model())


def _decision(client: PolicyClient, query: QueryParams) -> Document:
    scope, decision_id, job_id = query.get("scope", "default"), query.get("id", ""), query.get("job", "")
    listed = client.decisions(scope=scope, limit=MAX_LISTED).decisions
    found = next((each for each in listed if each.decision_id == decision_id), None)
    explanation = client.explain(decision_id, job_id, scope=scope) if job_id else None
    return pages.decision(scope, found, decision_id, explanation)


def _predictions(client: PolicyClient, _: QueryParams) -> Document:
    log = client.observation_log(limit=LOG_ENTRIES)
    entries = sorted(log.entries, key=lambda entry: entry.sequence)
    windows = [logged for logged in counted_windows(entries) if is_in_company(logged)]
    return pages.predictions(log, _check(client, windows))


_PAGES: dict[str, Callable[[PolicyClient, QueryParams], Document]] = {
    "/": _overview,
    "/decision": _decision,
    "/predictions": _predictions,
    "/models": lambda client, _: pages.models(client.list_models(), client.model()),
}


def _check(client: PolicyClient, windows: Sequence[LoggedWindow]) -> list[pages.Checked]:
    """Return each window with the server's present prediction, by one call for each device type and mode."""
    kinds = dict.fromkeys((each.window.device_type, each.window.mode) for each in windows)
    known: dict[tuple[object, ...], tuple[float, float, float]] = {}
    for device_type, mode in kinds:
        asked = dict.fromkeys(
            (one.workload, *one.company)
            for one in (each.window for each in windows)
            if (one.device_type, one.mode) == (device_type, mode)
        )
        jobs = [name for companies in asked for name in companies]  # a workload beside itself is two jobs
        pairs, first = [], 0
        for company in asked:
            pairs.append(tuple(range(first, first + len(company))))
            first += len(company)
        answer = client.predict(jobs, pairs=pairs, device_type=device_type, mode=mode).prediction
        for company, *numbers in zip(asked, answer.median, answer.lower, answer.upper, strict=True):
            known[device_type, mode, company] = (float(numbers[0]), float(numbers[1]), float(numbers[2]))
    return [
        pages.Checked(each, *known.get((one.device_type, one.mode, (one.workload, *one.company)), (NAN, NAN, NAN)))
        for each in windows
        for one in (each.window,)
    ]
