"""A chat on a page of your own, with an agent mounted in a FastAPI app; see docs/start/fastapi.md."""

from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, RedirectResponse

from worldagent import Storage, WorldAgent, tool
from worldagent.hosts.web import WebApp

HERE = Path(__file__).parent


@tool(risk="write")
def buy(item: str) -> str:
    """Buy an item."""
    return f"one {item} is on its way"


def login(request: Request) -> str | None:
    """Your own login goes here: it says who the person is. This one believes a cookie."""
    return request.cookies.get("user")


web = WebApp(WorldAgent("shop", tools=[buy], storage=Storage(home=HERE / "home")), login=login)
app = FastAPI(lifespan=web.lifespan)
app.mount("/agent", web)


@app.get("/")
async def page() -> FileResponse:
    return FileResponse(HERE / "page.html")


@app.get("/login")
async def log_in(name: str) -> RedirectResponse:
    answer = RedirectResponse("/")
    answer.set_cookie("user", name, httponly=True, samesite="strict")
    return answer
