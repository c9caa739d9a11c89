"""The commands of `approvals` and `policy` with their help; what they do loads when one runs."""

from __future__ import annotations

import typer

from ._approvals_options import ApprovalsListOptions, ApproveOptions, PolicyCheckOptions, RejectOptions
from .options import options_of

_APPROVALS = """\
The calls of a workspace that wait for a person's leave.

Some of them can be answered, in any order and from any process on the same home.

[bold]Example[/bold]

  worldagent approvals list
"""

_LIST = """\
List the calls that wait for leave, over all threads of the workspace, the longest waiting first.

No model is asked, and none is needed. Questions and calls that were cut off are told by [bold]threads show[/bold].

[bold]Example[/bold]

  worldagent approvals list --thread t1
"""

_APPROVE = """\
Approve calls that wait, and go on with their turn, as [bold]resume[/bold] does.

The agent is made of the same options as when the turn began. What is not answered waits on, and the exit code is 3.

[bold]Examples[/bold]

  worldagent approvals approve ID --app shop:agent --account ana

  worldagent approvals approve ID --arguments '{"what": "cap"}' --hash 1f0c9a2b7d3e

  worldagent approvals approve ID ID --always
"""

_REJECT = """\
Reject calls that wait, and go on with their turn, as [bold]resume[/bold] does.

Who wanted a call is told the reason. What is not answered waits on, and the exit code is 3.

[bold]Example[/bold]

  worldagent approvals reject ID --reason 'too dear' --app shop:agent
"""

_POLICY = """\
Policies: what may be called without asking, what a person is asked for, what is refused.

[bold]--policy[/bold] of the commands that run turns takes one, as does the setting policy.

[bold]Example[/bold]

  worldagent policy check policy.yaml
"""

_CHECK = """\
Check a policy: whether it can be read, and with --app whether each rule is about something that can be called.

For each rule that approves it also names a call that the rule takes and that a person would not expect, with the
predicate to use instead; the exit code is 0, since you may want it so.

Where something is wrong, it says what and in which line, and the exit code is 2.

[bold]Examples[/bold]

  worldagent policy check policy.yaml

  worldagent policy check policy.yaml --app shop:agent
"""


def add_approvals(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    approvals = typer.Typer(no_args_is_help=True, help=_APPROVALS, rich_markup_mode="rich")
    approvals.command("list", help=_LIST)(options_of(ApprovalsListOptions, _list))
    approvals.command("approve", help=_APPROVE)(options_of(ApproveOptions, _approve))
    approvals.command("reject", help=_REJECT)(options_of(RejectOptions, _reject))
    app.add_typer(approvals, name="approvals")
    policy = typer.Typer(no_args_is_help=True, help=_POLICY, rich_markup_mode="rich")
    policy.command("check", help=_CHECK)(options_of(PolicyCheckOptions, _check))
    app.add_typer(policy, name="policy")


def _list(options: ApprovalsListOptions) -> int:
    from .approvals import list_approvals

    return list_approvals(options)


def _approve(options: ApproveOptions) -> int:
    from .approvals import approve

    return approve(options)


def _reject(options: RejectOptions) -> int:
    from .approvals import reject

    return reject(options)


def _check(options: PolicyCheckOptions) -> int:
    from .policy import check_policy

    return check_policy(options)


__all__ = ["add_approvals"]
