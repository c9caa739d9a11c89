"""The tool `web_fetch`: what comes back of a page, what is refused, and what bounds it (P2, H9)."""

import asyncio
import gzip
import ipaddress
import itertools
import ssl
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.agents import scripted_agent
from support.processes import children, eventually, held
from support.tools import Dial, Names, Request, certificates, saying, site
from worldagent.core.errors import AddressRefused, ToolFailed
from worldagent.harness import Function
from worldagent.mcp_client.tls import trusted
from worldagent.testing import ScriptedLM
from worldagent.tools.web import WebPage, web_fetch_function
from worldagent.tools.web import page as html
from worldagent.tools.web.fetch import CheckedNetwork, Fetched, Fetcher, reach
from worldagent.tools.web.page import fetch_function

pytestmark = pytest.mark.timeout(60)

PUBLIC = "93.184.216.34"


async def fetch(url: str, function: Function | None = None, **options: Any) -> WebPage:
    """Fetch one page; of this machine too, unless told otherwise."""
    made = function or web_fetch_function(**{"allow_private": True, **options})
    page = await made.body(url=url)
    assert isinstance(page, WebPage)
    return page


def outside(
    names: Names, dial: Dial | None = None, *, tls: Callable[[], ssl.SSLContext] = trusted, timeout: float = 20
) -> Function:
    """The tool as it ships, with other names and wires."""
    return fetch_function(Fetcher(CheckedNetwork(resolver=names, dial=dial), tls=tls), timeout=timeout, limit=1000)


async def test_a_page_comes_as_markdown_with_its_title_and_whole_links(tmp_path: Path) -> None:
    page = """<!doctype html><title> A &amp; B </title><script>x = "<p>no"</script><style>p {}</style>
    <h1>Head</h1><p>Some <b>bold</b> a &lt; b, <a href="../c?d=1">there</a>.</p><ul><li>one<li>two</ul>
    <table><tr><th>n</th></tr><tr><td>1</td></tr></table><img alt="a dot" src="data:image/png;base64,AAAA">"""
    async with site(saying(page, "text/html; charset=utf-8")) as at:
        function = web_fetch_function(allow_private=True)
        async with scripted_agent(tmp_path, ScriptedLM([]), tools=[function]) as agent:
            got = await agent.call("web_fetch", {"url": f"http://127.0.0.1:{at.port}/a/b"})
    assert (got.title, got.kind, got.cut) == ("A & B", "text/html", False)
    assert got.text.startswith("# Head\n\nSome **bold** a < b, ")
    assert f"[there](http://127.0.0.1:{at.port}/c?d=1)" in got.text
    assert "- one\n- two" in got.text
    assert "| n |" in got.text
    assert "no" not in got.text.split("there")[0]
    assert "base64" not in got.text


def raw(answer: bytes) -> Any:
    async def says(request: Request) -> None:
        request.writer.write(answer)
        await request.writer.drain()

    return says


@pytest.mark.parametrize(
    ("says", "told"),
    [
        (saying(b"\x89PNG", "image/png"), "image/png"),
        (saying(b"x", Content_Encoding="gzip, gzip"), "gzip, gzip"),
        (saying(b"no gzip at all", Content_Encoding="gzip"), "decompressed"),
        (saying("canary", status="404 Not Found"), "status 404"),
        (saying("canary", status="302 No Location"), "status 302"),
        (raw(b""), "HTTP as it should|ended the connection"),
        (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"), "HTTP as it should|ended the connection"),
    ],
)
async def test_an_answer_without_a_page_fails_without_its_text(says: Any, told: str) -> None:
    async with site(says) as at:
        with pytest.raises(ToolFailed, match=told) as caught:
            await fetch(f"http://127.0.0.1:{at.port}/?secret=canary")
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/plain; charset=ISO-8859-1", "é€".encode("cp1252")),
        ("text/plain", "é€".encode("cp1252")),
        ("text/plain", b"\xff\xfe" + "é€".encode("utf-16-le")),
        ("text/html", b"<meta charset=windows-1252><p>" + "é€".encode("cp1252")),
        ("text/html; charset=koi8-r", b"<meta charset=utf-8><p>" + "é€ж".encode("koi8-r", "ignore")),
    ],
)
async def test_a_page_is_read_in_its_encoding(kind: str, body: bytes) -> None:
    wanted = {"shift": "日", "koi8": "ж"}
    async with site(saying(body, kind)) as at:
        got = await fetch(f"http://127.0.0.1:{at.port}/")
    assert got.text == next((text for name, text in wanted.items() if name in kind), "é€")


async def test_a_long_text_is_cut_where_the_limit_is() -> None:
    for kind in ("text/plain", "text/html"):
        async with site(saying("word " * 1000, kind)) as at:
            got = await fetch(f"http://127.0.0.1:{at.port}/", limit=100)
        assert (len(got.text), got.cut) == (100, True)


async def test_a_packed_page_is_unpacked() -> None:
    text = b"some text, " * 1000
    packed = gzip.compress(text[:500]) + gzip.compress(text[500:])
    async with site(saying(packed, Content_Encoding="gzip")) as at:
        assert (await fetch(f"http://127.0.0.1:{at.port}/")).text == text.decode()


async def test_a_bomb_is_unpacked_up_to_the_limit_of_a_page() -> None:
    bomb = gzip.compress(b"\0" * (60 << 20))
    fetcher = Fetcher(CheckedNetwork(allow_private=True))
    async with site(saying(bomb, Content_Encoding="gzip")) as at:
        tracemalloc.start()
        try:
            got = await fetcher.get(f"http://127.0.0.1:{at.port}/")
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert (got.cut, len(got.body)) == (True, 5 << 20)
    assert peak < 25 << 20


@pytest.mark.parametrize("where", ["before", "body"])
async def test_a_server_that_is_slow_on_purpose_ends_with_the_time(where: str) -> None:
    async def says(request: Request) -> None:
        if where != "before":
            request.writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n" + b"\r\n" * (where == "body"))
        for number in itertools.count():
            if where != "before":
                request.writer.write(b"X-%d: y\r\n" % number)
            await request.writer.drain()
            await asyncio.sleep(0.05)

    async with site(says) as at, asyncio.timeout(10):
        with pytest.raises(ToolFailed, match=r"within 0\.5 seconds"):
            await fetch(f"http://127.0.0.1:{at.port}/", timeout=0.5)


async def test_a_page_after_one_that_was_given_up_is_read() -> None:
    before = children()
    html_page: Any = {"url": "", "kind": "text/html", "charset": None, "cut": False}
    slow = b"<p " + b" ".join(b"a%d=1" % n for n in range(200_000)) + b">x"
    async with html.Reader(seconds=1.5) as reader, asyncio.timeout(20):
        with pytest.raises(ToolFailed, match="longer than"):
            await reader.read(Fetched(body=slow, **html_page), limit=10)
        assert (await reader.read(Fetched(body=b"<p>fine", **html_page), limit=10)).text == "fine"
    assert children() <= before


async def test_redirects_are_followed_five_times() -> None:
    async def says(request: Request) -> None:
        left = int(request.path[1:])
        if left:
            await request.say(status="302 Found", Location=f"/{left - 1}")
        else:
            await request.say("there")

    async with site(says) as at:
        got = await fetch(f"http://127.0.0.1:{at.port}/5#part")
        assert (got.text, got.url) == ("there", f"http://127.0.0.1:{at.port}/0")
        with pytest.raises(ToolFailed, match="more than 5 times"):
            await fetch(f"http://127.0.0.1:{at.port}/6")


async def test_no_cookie_and_no_password_is_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password canary", encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path))

    async def says(request: Request) -> None:
        if request.path == "/":
            await request.say(status="302 Found", Location="/next", Set_Cookie="a=canary")
        else:
            await request.say("there")

    async with site(says) as at:
        await fetch(f"http://127.0.0.1:{at.port}/")
    assert [sorted(each.headers) for each in at.asked] == [["accept", "accept-encoding", "host", "user-agent"]] * 2


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.org/",
        "http://user:canary@example.org/",
        "http://a\\@b/",
        "http://ex%61mple.org/",
        "http://example.org:99999/",
        "http://example.org\r\nX: y/",
    ],
)
async def test_an_invalid_address_of_a_page_is_refused(url: str) -> None:
    names = Names()
    with pytest.raises(ToolFailed) as caught:
        await fetch(url, outside(names))
    assert "canary" not in str(caught.value)
    assert names.asked == []


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001", "127.0.0.1.",
        "0", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "100.100.100.200",
        "192.0.0.192", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "168.63.129.16", "192.0.2.1",
        "203.0.113.1", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[fe80::1]",
        "[::ffff:0:127.0.0.1]", "[fc00::1]", "[fd00:ec2::254]", "[ff02::1]", "[fec0::1]", "[64:ff9b::127.0.0.1]",
        "[64:ff9b::a00:1]", "[64:ff9b:1::1]", "[2002:7f00:1::]", "[2002:a00:1::1]", "[2001:db8::1]", "[100::1]",
        "[2001:0:4136:e378:8000:63bf:80ff:fffe]", "[5f00::1]", "[2606:4700::5efe:10.0.0.1]",
        "[2001:4860:0:0:200:5efe:7f00:1]", "[0:0:0:0:0:ffff:c0a8:0101]",
        "localhost", "LOCALHOST", "localhost.", "a.localhost", "a.localhost.",
    ],
)  # fmt: skip
async def test_an_address_that_leads_inward_is_refused(host: str) -> None:
    names = Names(localhost=[PUBLIC], a_localhost=[PUBLIC])
    with pytest.raises(ToolFailed if host == "0177.0.0.1" else AddressRefused):  # such is not a host of a URL
        await fetch(f"http://{host}/", outside(names, Dial(1)))
    assert names.asked == []


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "169.254.169.254", "::ffff:10.0.0.1", "64:ff9b::a9fe:a9fe", "fe80::1%eth0"]
)
async def test_a_name_that_leads_inward_is_refused(address: str) -> None:
    for answer in ([address], [PUBLIC, address], [address, PUBLIC]):
        names, dial = Names(evil_org=[answer]), Dial(1)
        with pytest.raises(AddressRefused, match=r"evil\.org"):
            await fetch("https://evil.org/", outside(names, dial))
        assert (names.asked, dial.dialled) == (["evil.org"], [])


async def test_a_name_without_an_address_is_named() -> None:
    with pytest.raises(ToolFailed, match=r"the host 'nowhere\.org' has no address"):
        await fetch("http://nowhere.org/", outside(Names()))


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "192.88.98.1"])
def test_a_public_address_is_public(address: str) -> None:
    assert reach(ipaddress.ip_address(address)) == "public"


async def test_it_connects_to_the_very_address_that_it_checked() -> None:
    """A name that leads outside when it is checked, and inward afterwards, is looked up once."""
    names = Names(evil_org=[PUBLIC, "127.0.0.1"])
    async with site(saying("there")) as at:
        dial = Dial(at.port)
        assert (await fetch("http://evil.org/x?y=1", outside(names, dial))).text == "there"
    assert (names.asked, dial.dialled) == (["evil.org"], [(PUBLIC, 80)])
    assert (at.asked[0].path, at.asked[0].headers["host"]) == ("/x?y=1", "evil.org")


@pytest.mark.parametrize(
    ("to", "error"),
    [
        ("http://inner.org/", AddressRefused),
        ("file:///etc/passwd", ToolFailed),
        ("http://me:canary@good.org/", ToolFailed),
    ],
)
async def test_a_redirect_inward_is_refused(to: str, error: type[Exception]) -> None:
    names = Names(good_org=[PUBLIC], inner_org=["192.168.0.1"])
    async with site(saying(b"", status="307 Moved", Location=to)) as at:
        dial = Dial(at.port)
        with pytest.raises(error) as caught:
            await fetch("http://good.org/", outside(names, dial))
    assert dial.dialled == [(PUBLIC, 80)]
    assert "canary" not in str(caught.value)


async def test_a_certificate_is_checked_against_the_name_though_an_address_is_connected_to(tmp_path: Path) -> None:
    server, trust = certificates(tmp_path, "good.org")
    asked: list[str | None] = []
    server.sni_callback = lambda _, name, __: asked.append(name)
    names = Names(good_org=[PUBLIC], other_org=[PUBLIC])
    async with site(saying("there"), tls=server) as at:
        dial = Dial(at.port)
        assert (await fetch("https://good.org/", outside(names, dial, tls=trust))).text == "there"
        with pytest.raises(ToolFailed, match="certificate"):
            await fetch("https://other.org/", outside(names, dial, tls=trust))
        with pytest.raises(ToolFailed, match="certificate"):
            await fetch("https://good.org/", outside(names, dial))
    assert asked[:2] == ["good.org", "other.org"]
    assert dial.dialled == [(PUBLIC, 443)] * 3


async def test_a_call_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    reached = asyncio.Event()

    async def says(request: Request) -> None:
        reached.set()
        await asyncio.sleep(30)

    async with site(says) as at:
        before, running = held(), children()
        call = asyncio.create_task(fetch(f"http://127.0.0.1:{at.port}/"))
        await asyncio.wait_for(reached.wait(), 10)
        call.cancel()
        await asyncio.wait((call,))
    assert call.cancelled()
    assert await eventually(lambda: held()[0] <= before[0] and children() <= running)
