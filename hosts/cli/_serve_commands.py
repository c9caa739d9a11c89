"""The commands `serve` and `ps` with their help; what they do is in `_serve` and `_ps`."""

from __future__ import annotations

import typer

from ._serve_options import PsOptions, ServeOptions
from .options import options_of

_SERVE = """\
Serve agents to programs in any language: an MCP server over its standard streams or HTTP, the sidecar.

Runs until Ctrl-C, SIGTERM, or, with --stdio, the end of its input. Turns stop at their next step then, and can be
resumed. Tokens come from a file or the environment, never from arguments.

[bold]Examples[/bold]

  worldagent serve --stdio --lm openai/gpt-4o

  worldagent serve --http 127.0.0.1:8200 --token-file token.txt --app shop:agent

  worldagent serve --http 0.0.0.0:8443 --tls-cert cert.pem --tls-key key.pem --token-file tokens.toml --log-format json
"""

_PS = """\
List the sidecars of this home that run, and the turns that run or were cut off, of all workspaces.

No text of a turn is shown, and no token. [bold]worldagent threads cancel[/bold] ends a turn, [bold]worldagent
resume[/bold] goes on with one that was cut off.

[bold]Examples[/bold]

  worldagent ps

  worldagent ps --json
"""


def add_serve(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("serve", help=_SERVE)(options_of(ServeOptions, _serve))
    app.command("ps", help=_PS)(options_of(PsOptions, _ps))


def _serve(options: ServeOptions) -> int:
    from .serve import serve

    return serve(options)


def _ps(options: PsOptions) -> int:
    from .ps import ps

    return ps(options)


__all__ = ["add_serve"]
