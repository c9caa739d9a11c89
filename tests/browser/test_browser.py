"""The browser of tests: what a page does wrong fails its test, and what a person could not use is found."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.async_api import Page

from support.browser import NARROW, WIDE, Browser, scrolls_sideways, serious_faults, started_browser, unreached

POLICY = "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'unsafe-inline'"
GOOD = '<!doctype html><html lang="en"><title>t</title><meta name="viewport" content="width=device-width"><h1>Hats</h1>'


@dataclass
class Site:
    """A server: its address, and the bodies that it serves, by path."""

    url: str
    pages: dict[str, str] = field(default_factory=dict)


@pytest.fixture
def site() -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            body = served.pages.get(self.path, "")
            self.send_response(200 if body else 404)
            self.send_header("content-type", "text/javascript" if self.path.endswith(".js") else "text/html")
            self.send_header("content-security-policy", POLICY)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        served = Site(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield served
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ("console.error('broken')", "error in the console: broken"),
        ("console.warn('doubtful')", "warning in the console: doubtful"),
        ("nothing.here()", "error of the page: nothing is not defined"),
        ("fetch('/missing')", "status of 404"),
        ("new Image().src = '/picture'", "Content Security Policy"),
        ("open('http://localhost:1/')", "request to another origin: http://localhost:1/"),
    ],
)
async def test_what_a_page_does_wrong_fails_its_test(site: Site, script: str, fault: str) -> None:
    site.pages |= {"/": f"{GOOD}<script src=/own.js></script>", "/own.js": script}
    with pytest.raises(AssertionError, match=fault):
        await visit(site.url)


async def visit(url: str) -> None:
    async with started_browser() as browser:
        page = await browser.page()
        await page.goto(url)
        await page.wait_for_load_state("networkidle")


async def test_a_fault_that_a_test_allows_does_not_fail_it(browser: Browser, site: Site) -> None:
    site.pages |= {"/": f"{GOOD}<script src=/missing.js></script>"}
    page = await browser.page()
    await page.goto(site.url)
    assert len(browser.faults()) == 1
    browser.allow("status of 404")


async def test_serious_faults_are_found_under_a_strict_policy(page: Page, site: Site) -> None:
    site.pages |= {"/": GOOD, "/poor": f"{GOOD}<input><p style='color: #ccc'>pale</p>"}
    await page.goto(site.url)
    assert await serious_faults(page) == []
    await page.goto(f"{site.url}/poor")
    assert [found.split(":")[0] for found in await serious_faults(page)] == ["serious color-contrast", "critical label"]


async def test_two_people_share_no_cookie_and_two_tabs_do(browser: Browser, site: Site) -> None:
    site.pages |= {"/": GOOD}
    ana, bob = await browser.page(), await browser.page()
    tab = await ana.context.new_page()
    for page in (ana, bob, tab):
        await page.goto(site.url)
    await ana.evaluate("document.cookie = 'user=ana'")
    assert [await page.evaluate("document.cookie") for page in (ana, tab, bob)] == ["user=ana", "user=ana", ""]


@pytest.mark.parametrize(("width", "wider"), [(NARROW, True), (WIDE, False)])
async def test_a_page_that_is_wider_than_its_window_is_noticed(
    browser: Browser, site: Site, width: int, wider: bool
) -> None:
    site.pages |= {"/": f"{GOOD}<div style='width: 500px'>wide</div>"}
    page = await browser.page(width=width)
    await page.goto(site.url)
    assert await scrolls_sideways(page) is wider


async def test_buttons_that_are_cut_off_or_covered_are_found(page: Page, site: Site) -> None:
    cut = "<div style='overflow: hidden; width: 100px; white-space: nowrap'><i>{}</i><button>Cut</button></div>"
    under = "<div style='position: relative'><button>Under</button><b style='position: absolute; inset: 0'></b></div>"
    far = "<p style='height: 3000px'></p><button>Below</button>"  # a person scrolls to it
    site.pages |= {"/": f"{GOOD}<button>In</button>{cut.format('wide ' * 20)}{under}{far}"}
    await page.goto(site.url)
    assert await unreached(page) == ["Cut", "Under"]
    site.pages["/wide"] = f"{GOOD}<p style='width: 1400px; text-align: right'><button>Far right</button>"
    await page.goto(f"{site.url}/wide")
    assert await unreached(page) == ["Far right"]


async def test_a_dark_page_is_one_for_a_person_who_prefers_that(browser: Browser, site: Site) -> None:
    site.pages |= {"/": GOOD}
    page = await browser.page(dark=True)
    await page.goto(site.url)
    assert await page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")


async def test_a_test_without_a_browser_is_skipped_with_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("support.browser.find_browser", lambda: None)
    with pytest.raises(pytest.skip.Exception, match="Chromium is missing: put one of"):
        await visit("http://127.0.0.1/")
