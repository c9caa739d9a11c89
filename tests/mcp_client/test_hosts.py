"""Where a host is: values that refuse what cannot work, show no secret and load nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from support.house import ROOT
from worldagent import Roles
from worldagent.core.errors import InvalidArgument
from worldagent.mcp_client import HttpHost, StdioHost

URL = "https://host.example/mcp"


@pytest.mark.requirement("R9")
def test_tokens_and_variables_are_not_shown() -> None:
    assert "s3cret" not in repr(HttpHost(URL, "s3cret"))
    assert "s3cret" not in repr(StdioHost(["host"], {"TOKEN": "s3cret"}))
    assert HttpHost(f"{URL}?key=s3cret").label == URL
    assert StdioHost(["/opt/bin/host", "--key=s3cret"]).label == "host"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: HttpHost("http://ana:s3cret@host.example/mcp"), "url"),
        (lambda: HttpHost(URL, "s3cret\r\nX-Evil: 1"), "`token`"),
        (lambda: HttpHost(URL, mode="modern"), "`mode` must be .* got 'modern'"),  # type: ignore[arg-type]  # the mistake that is tested
        (lambda: HttpHost(URL, tools={"role_list": "role_get"}), "its own name"),
        (lambda: StdioHost(["host", "a\0b"]), "argv"),
        (lambda: StdioHost(["host"], {"A": 1}), "env"),  # type: ignore[dict-item]  # the mistake that is tested
        (lambda: StdioHost(["host"], stderr="log"), "got 'log'"),  # type: ignore[arg-type]  # the mistake that is tested
    ],
)
def test_what_cannot_work_is_refused_with_the_remedy_and_without_the_secret(
    make: Callable[[], object], says: str
) -> None:
    with pytest.raises(InvalidArgument, match=says) as caught:
        make()
    assert "s3cret" not in str(caught.value)


def test_a_host_is_a_role_host_of_an_agent_and_an_object_without_methods_is_none() -> None:
    assert Roles(host=HttpHost(URL)).host == HttpHost(URL)
    with pytest.raises(InvalidArgument, match="neither HttpHost, StdioHost nor a RoleStore"):
        Roles(host="http://host.example/mcp")  # type: ignore[arg-type]  # the mistake that is tested


def test_the_mcp_library_is_loaded_by_the_first_connection_and_not_before() -> None:
    script = f"""
import sys
sys.path.insert(0, {str(ROOT / ".dev")!r})
from worldagent import Roles, WorldAgent
from worldagent.mcp_client import HostRoleStore, HttpHost
HostRoleStore(Roles(host=HttpHost("http://127.0.0.1:1/mcp")).host)
assert "mcp" not in sys.modules
"""
    ran = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
