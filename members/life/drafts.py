"""Templates of a workspace in the database, and the drafts of members for them, which a person approves (A10)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final

from pydantic import ValidationError

from ...core import canonical_json, check_id, new_id
from ...core.checks import check_text, check_texts, to_json
from ...core.errors import DraftRequired, InvalidArgument, UnknownDraft
from ...core.validation import describe_failure
from ...storage import Transaction
from ..data.brief import InterfaceSpec
from ..data.roles import USER, AuthorityConfig
from ..data.rows import read_as
from ..data.store import WorkspaceStore
from ..data.workspace import DraftStatus, RoleTemplate, RoleTemplateDraft, WorkspaceConfig
from .members import Member, hold_members, one_member
from .spawning import id_of, narrowed

_TEMPLATE: Final = "SELECT body FROM wa_template WHERE workspace=? AND id=?"
_TEMPLATES: Final = "SELECT body FROM wa_template WHERE workspace=? AND body LIKE ? ORDER BY id"
_PUT_TEMPLATE: Final = """INSERT INTO wa_template(workspace, id, body) VALUES(?, ?, ?)
                          ON CONFLICT(workspace, id) DO UPDATE SET body=excluded.body"""
_ADD: Final = """INSERT INTO wa_draft(workspace, id, template, status, body, at) VALUES(?, ?, ?, ?, ?, ?)
                 ON CONFLICT DO NOTHING"""
_ONE: Final = "SELECT id, body FROM wa_draft WHERE workspace=? AND id=?"
_ALL: Final = "SELECT id, body FROM wa_draft WHERE workspace=? ORDER BY at, id"
_OF: Final = (
    "SELECT id, body FROM wa_draft WHERE workspace=? AND template=? AND status='pending_review' ORDER BY at, id"
)
_DECIDE: Final = "UPDATE wa_draft SET template=?, status=?, body=? WHERE workspace=? AND id=?"
_FIELD: Final = re.compile(r"\{([a-z_][a-z0-9_]{0,63})\}")


def stored_template(tx: Transaction, config: WorkspaceConfig, template_id: str) -> RoleTemplate | None:
    """The template with an id, in a transaction: that of the configuration, or one that was added; None for none."""
    rows = tx.execute(_TEMPLATE, (config.id, template_id))
    found: RoleTemplate | None = read_as(RoleTemplate, json.loads(rows[0][0])) if rows else None
    return config.role_templates.get(template_id, found)


def stored_templates(tx: Transaction, config: WorkspaceConfig, naming: str | None = None) -> list[RoleTemplate]:
    """All templates, in a transaction: those of the configuration, then those that were added.

    Args:
        tx: The transaction.
        config: The workspace.
        naming: A member. Of the templates that were added, those that do not name it can be left out, which saves
            reading them; None is all.
    """
    plain = naming is not None and naming != USER and "\\" not in naming  # it would escape in the pattern
    rows = tx.execute(_TEMPLATES, (config.id, f"%{canonical_json(naming)}%" if plain else "%"))
    added: list[RoleTemplate] = [read_as(RoleTemplate, json.loads(body)) for (body,) in rows]
    return [*config.role_templates.values(), *(each for each in added if each.template_id not in config.role_templates)]


def put_template(tx: Transaction, config: WorkspaceConfig, template: RoleTemplate) -> None:
    """Add a template in a transaction, or replace one that was added.

    Raises:
        InvalidArgument: The configuration has a template with this id.
    """
    if template.template_id in config.role_templates:
        raise InvalidArgument(
            f"the template {template.template_id!r} is part of the workspace's configuration",
            remedy="change it there, or use another id",
        )
    tx.execute(_PUT_TEMPLATE, (config.id, template.template_id, canonical_json(to_json(template))))


def check_no_draft(tx: Transaction, workspace: str, template_id: str) -> None:
    """Refuse a template of which there is only a draft.

    Raises:
        DraftRequired: A person must approve it first.
    """
    found = tx.execute(_OF, (workspace, template_id))
    if found:
        raise DraftRequired(
            f"the template {template_id!r} is a draft, {found[0][0]!r}, that no person has approved",
            remedy="ask a person to approve it",
        )


class Drafts:
    """The drafts of a workspace's members for templates. A person may change one, and approves or rejects it.

    Args:
        store: The database of the workspace.
    """

    def __init__(self, store: WorkspaceStore) -> None:
        self._store = store
        self._config = store.config

    async def propose(self, draft: RoleTemplateDraft, *, draft_id: str | None = None) -> RoleTemplateDraft:
        """Store a draft, with no more than its author may do; returns it as it is stored.

        It allows no spawner: the person who approves it says who can use it.

        Args:
            draft: The draft.
            draft_id: Its id. A second call with the same id returns the draft of the first.

        Raises:
            InvalidArgument: The workspace has a template with this id.
        """
        id_ = draft_id or new_id("draft")
        check_id("draft_id", id_)

        def work(tx: Transaction) -> RoleTemplateDraft:
            there = self._get(tx, id_)
            if there is not None:
                return there
            self._check_free(tx, draft.template)
            author = one_member(tx, self._config.id, draft.proposed_by)
            template = within(replace(draft.template, allowed_spawners=()), author)
            stored = replace(draft, id=id_, template=template, status="pending_review", decided_by="")
            now = self._store.clock.now().timestamp()
            tx.execute(_ADD, (self._config.id, id_, template.template_id, stored.status, _body(stored), now))
            return stored

        return await self._store.transact(work)

    async def get(self, draft_id: str) -> RoleTemplateDraft:
        """Return a draft.

        Raises:
            UnknownDraft: There is none with this id.
        """
        check_texts(draft_id=draft_id)
        found = await self._store.read(lambda tx: self._get(tx, draft_id))
        return found if found is not None else _raise_unknown(draft_id)

    async def list(self, *, status: DraftStatus | None = None) -> tuple[RoleTemplateDraft, ...]:
        """Return all drafts, the oldest first.

        Args:
            status: Only those with this status.
        """
        rows = await self._store.read(lambda tx: tx.execute(_ALL, (self._config.id,)))
        return tuple(each for each in map(_draft, rows) if status in (None, each.status))

    async def approve(
        self,
        draft_id: str,
        *,
        template: RoleTemplate | None = None,
        allowed_spawners: Iterable[str] | None = None,
        by: str = USER,
    ) -> RoleTemplate:
        """Add the template of a draft to the workspace; returns it.

        It never allows more than its author may, also if a person changed it. `create_role` adds a template of a
        person's own.

        Args:
            draft_id: The draft.
            template: The template as the person changed it; by default that of the draft.
            allowed_spawners: The members that can use it; by default those of `template`, and none without one.
            by: The person.

        Raises:
            UnknownDraft: There is none with this id.
            InvalidArgument: It was decided already, or the workspace has a template with this id.
        """
        check_texts(draft_id=draft_id)
        check_id("by", by)

        def work(tx: Transaction) -> RoleTemplate:
            draft = self._pending(tx, draft_id)
            chosen = template or draft.template
            if allowed_spawners is not None:
                chosen = replace(chosen, allowed_spawners=tuple(allowed_spawners))
            self._check_free(tx, chosen)
            author = one_member(tx, self._config.id, draft.proposed_by)
            chosen = within(chosen, author)
            put_template(tx, self._config, chosen)
            self._decide(tx, replace(draft, template=chosen, status="active", decided_by=by))
            return chosen

        return await self._store.transact(work)

    async def reject(self, draft_id: str, *, by: str = USER, reason: str = "") -> RoleTemplateDraft:
        """Reject a draft; it is kept, and can never be used. Returns it.

        Args:
            draft_id: The draft.
            by: The person.
            reason: Why.

        Raises:
            UnknownDraft: There is none with this id.
            InvalidArgument: It was decided already.
        """
        check_texts(draft_id=draft_id)
        check_id("by", by)
        check_text("reason", reason, most=2000, empty=True)

        def work(tx: Transaction) -> RoleTemplateDraft:
            rejected = replace(self._pending(tx, draft_id), status="rejected", decided_by=by, decision_reason=reason)
            self._decide(tx, rejected)
            return rejected

        return await self._store.transact(work)

    def _get(self, tx: Transaction, draft_id: str) -> RoleTemplateDraft | None:
        rows = tx.execute(_ONE, (self._config.id, draft_id))
        return _draft(rows[0]) if rows else None

    def _pending(self, tx: Transaction, draft_id: str) -> RoleTemplateDraft:
        hold_members(tx, self._config.id)  # so that it is decided once
        draft = self._get(tx, draft_id) or _raise_unknown(draft_id)
        if draft.status != "pending_review":
            raise InvalidArgument(f"the draft {draft_id!r} is {draft.status} already", remedy="list those that wait")
        return draft

    def _decide(self, tx: Transaction, draft: RoleTemplateDraft) -> None:
        given = (draft.template.template_id, draft.status, _body(draft))
        tx.execute(_DECIDE, (*given, self._config.id, draft.id))

    def _check_free(self, tx: Transaction, template: RoleTemplate) -> None:
        if stored_template(tx, self._config, template.template_id) is not None:
            raise InvalidArgument(
                f"the workspace has a template {template.template_id!r} already", remedy="use another name or id"
            )


def template_of(given: Mapping[str, Any]) -> RoleTemplate:
    """Read a template from its JSON, such as one that a person changed.

    Raises:
        InvalidArgument: A field is missing, not known or invalid; the text names it.
    """
    unknown, problem = {*given} - {each.name for each in fields(RoleTemplate)}, ""
    if unknown:
        problem = f"has no {', '.join(map(repr, sorted(unknown)))}"
    else:
        try:
            found: RoleTemplate = read_as(RoleTemplate, dict(given))
            return found
        except ValidationError as failure:
            problem = f"is invalid: {describe_failure(failure)[:1000]}"
    raise InvalidArgument(f"the template {problem}", remedy="write it as `drafts show --json` shows it")


def within(template: RoleTemplate, author: Member | None) -> RoleTemplate:
    """A template that allows no more than its author may (A10).

    Args:
        template: The template.
        author: The member that proposes it; the World Agent, and one that was removed, have no ceiling of their own.
    """
    return template if author is None else narrowed(template, author.spec)


def proposed(
    author: str,
    name: str,
    soul: str,
    interface: InterfaceSpec | None = None,
    notes: str = "",
    untrusted: Iterable[str] = (),
) -> RoleTemplateDraft:
    """The draft of an agent that names only what a template is about. A person adds what its members may do.

    Words in braces in the name and the soul are the parameters; other braces are text.

    Args:
        author: The member that proposes it.
        name: The name of its members.
        soul: Who they are, and what they do.
        interface: How others ask them.
        notes: Whom they ask for which work; they become part of the soul.
        untrusted: The untrusted content that its author had read.

    Raises:
        InvalidArgument: A text is empty or too long, or the name makes no id.
    """
    check_text("name", name, most=200)
    check_text("soul", soul)
    texts = (name, f"{soul}\n\n{notes}" if notes.strip() else soul)
    template = RoleTemplate(
        template_id=id_of(_FIELD.sub("", name)),
        name_pattern=_pattern(texts[0]),
        soul_template=_pattern(texts[1]),
        domains=(),
        authority=AuthorityConfig(),
        operator_ids=(),
        parameters=tuple(dict.fromkeys(found for text in texts for found in _FIELD.findall(text))),
        interface_spec=interface,
    )
    return RoleTemplateDraft(
        proposed_by=author, intent=name, template=template, reasoning="", untrusted=tuple(untrusted)
    )


def _pattern(text: str) -> str:
    """A text as the pattern of a template: only braces around a word are those of a parameter."""
    parts = _FIELD.split(text)  # every second part is the name of a parameter
    return "".join(
        f"{{{part}}}" if place % 2 else part.replace("{", "{{").replace("}", "}}") for place, part in enumerate(parts)
    )


def _body(draft: RoleTemplateDraft) -> str:
    return canonical_json(to_json(draft))


def _draft(row: Sequence[Any]) -> RoleTemplateDraft:
    found: RoleTemplateDraft = read_as(RoleTemplateDraft, json.loads(row[1]))
    return found


def _raise_unknown(draft_id: str) -> RoleTemplateDraft:
    raise UnknownDraft(f"the workspace has no draft {str(draft_id)[:60]!r}", remedy="list the drafts for their ids")
