"""`worldagent workspace check` and `show`."""

import json
from pathlib import Path

import pytest

from support.command_line import Run, as_json, home, refusal, run

__all__ = ["home", "run"]  # fixtures

pytestmark = pytest.mark.requirement("A1")

TEAM = """\
workspace: team
name: The team
owner: charles
roles:
  - role_id: cro
    soul: You are the CRO.
    domains: [revenue]
    reports_to: charles
    operator_ids: [ops, intel]
    authority: {autonomous: [qualify], forbidden: [sign]}
  - {role_id: bdr, soul: You sell., reports_to: cro}
role_templates:
  helper:
    name_pattern: "Helper {name}"
    soul_template: You help.
    parameters: [name]
    authority: {autonomous: [qualify, mail]}
    allowed_spawners: [cro]
"""


@pytest.fixture
def team(tmp_path: Path) -> Path:
    file = tmp_path / "team.yaml"
    file.write_text(TEAM, encoding="utf-8")
    return file


async def test_a_file_is_shown_as_a_tree_with_what_its_members_may_do(run: Run, home: Path, team: Path) -> None:
    shown = await run("workspace", "show", str(team))
    assert shown.stdout.splitlines() == [
        "team (The team), owned by charles",
        "",
        "charles",
        "  cro",
        "      domains: revenue",
        "      operators: ops, intel",
        "      autonomous: qualify",
        "      forbidden: sign",
        "    bdr",
        "",
        'template helper: "Helper {name}"',
        "  made by cro",
        "    autonomous: qualify",
        "    needs approval: mail",
        "    forbidden: sign",
    ]
    found = (await as_json(run, "workspace", "show", str(team)))["workspace"]
    assert [(each["role_id"], each["reports_to"]) for each in found["roles"]] == [("cro", "charles"), ("bdr", "cro")]
    assert found["made"][0]["authority"]["needs_approval"] == ["mail"]


async def test_warnings_do_not_fail_a_check_and_problems_do(run: Run, home: Path, team: Path, tmp_path: Path) -> None:
    checked = await run("workspace", "check", str(team))
    assert (checked.exit_code, checked.stdout) == (0, f"{team}\n")
    assert f"warning: {team}:17: the template 'helper' grants what its spawner 'cro' lacks: mail" in checked.stderr
    unrouted = (
        f"warning: {team}:5: 'cro' has domains and operators, and no `routes`, so each event is escalated whose type is"
        " not the id of an operator"
    )
    assert unrouted in checked.stderr
    routed = tmp_path / "routed.yaml"
    routes = "operator_ids: [ops, intel]\n    routes: [{event: 'lead.*', operator: ops}]\n"
    routed.write_text(TEAM.replace("operator_ids: [ops, intel]\n", routes), encoding="utf-8")
    assert "`routes`" not in (await run("workspace", "check", str(routed))).stderr
    broken = tmp_path / "broken.yaml"
    broken.write_text(TEAM.replace("reports_to: cro", "reports_to: cto"), encoding="utf-8")
    both = await run("workspace", "check", str(team), str(broken), "--json")
    assert both.exit_code == 2
    one, two = json.loads(both.stdout)["checked"]
    assert (one["problems"], [each["code"] for each in two["problems"]]) == ([], ["workspace_invalid"])
    assert two["problems"][0]["message"].startswith(f"{broken}:11: 'bdr' reports to 'cto'")
    error = await refusal(run, "workspace", "show", str(broken))
    assert (error["code"], "did you mean 'cro'?" in error["remedy"]) == ("workspace_invalid", True)
