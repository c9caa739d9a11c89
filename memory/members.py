"""The tables of a society: members, contacts and messages."""

from __future__ import annotations

from typing import Final

from ..storage import Schema

SOCIETY: Final = Schema(
    "society",
    (
        (
            # One row a workspace, held while a member is added or its life changes: it counts members and steps.
            """CREATE TABLE wa_society(
                 workspace TEXT PRIMARY KEY,
                 members BIGINT NOT NULL,
                 last BIGINT NOT NULL,
                 steps BIGINT NOT NULL)""",
            """CREATE TABLE wa_member(
                 workspace TEXT NOT NULL,
                 id TEXT NOT NULL,
                 place BIGINT NOT NULL,
                 name TEXT NOT NULL,
                 status TEXT NOT NULL,
                 parent TEXT NOT NULL,
                 spec TEXT NOT NULL,
                 interface TEXT,
                 life TEXT NOT NULL,
                 trust TEXT NOT NULL,
                 soul_version BIGINT NOT NULL,
                 expires DOUBLE PRECISION,
                 PRIMARY KEY(workspace, id))""",
            "CREATE INDEX wa_member_expires ON wa_member(workspace, expires) WHERE expires IS NOT NULL",
            # Each state that a member reached after its first. The numbers are those of the workspace.
            """CREATE TABLE wa_member_step(
                 workspace TEXT NOT NULL,
                 number BIGINT NOT NULL,
                 member TEXT NOT NULL,
                 status TEXT NOT NULL,
                 at DOUBLE PRECISION NOT NULL,
                 reason TEXT NOT NULL,
                 PRIMARY KEY(workspace, number))""",
            "CREATE INDEX wa_member_step_of ON wa_member_step(workspace, member, number)",
            # What is still to be done with the memory of members that began or ended.
            """CREATE TABLE wa_memory_due(
                 workspace TEXT NOT NULL,
                 number BIGINT NOT NULL,
                 member TEXT NOT NULL,
                 parent TEXT NOT NULL,
                 work TEXT NOT NULL,
                 tags TEXT NOT NULL,
                 PRIMARY KEY(workspace, number))""",
            "CREATE INDEX wa_member_place ON wa_member(workspace, place)",
            "CREATE INDEX wa_member_parent ON wa_member(workspace, parent)",
            """CREATE TABLE wa_template(
                 workspace TEXT NOT NULL,
                 id TEXT NOT NULL,
                 body TEXT NOT NULL,
                 PRIMARY KEY(workspace, id))""",
            # Templates that members propose. One is a template once a person approved it.
            """CREATE TABLE wa_draft(
                 workspace TEXT NOT NULL,
                 id TEXT NOT NULL,
                 template TEXT NOT NULL,
                 status TEXT NOT NULL,
                 body TEXT NOT NULL,
                 at DOUBLE PRECISION NOT NULL,
                 PRIMARY KEY(workspace, id))""",
            "CREATE INDEX wa_draft_template ON wa_draft(workspace, template, status)",
            """CREATE TABLE wa_recommendation(
                 workspace TEXT NOT NULL,
                 member TEXT NOT NULL,
                 template TEXT NOT NULL,
                 signal TEXT NOT NULL,
                 body TEXT NOT NULL,
                 at DOUBLE PRECISION NOT NULL,
                 PRIMARY KEY(workspace, member, template, signal))""",
            """CREATE TABLE wa_person(
                 workspace TEXT NOT NULL,
                 id TEXT NOT NULL,
                 body TEXT NOT NULL,
                 PRIMARY KEY(workspace, id))""",
            """CREATE TABLE wa_member_domain(
                 workspace TEXT NOT NULL,
                 domain TEXT NOT NULL,
                 place BIGINT NOT NULL,
                 member TEXT NOT NULL,
                 PRIMARY KEY(workspace, domain, place))""",
            """CREATE TABLE wa_contact(
                 workspace TEXT NOT NULL,
                 owner TEXT NOT NULL,
                 id TEXT NOT NULL,
                 role TEXT NOT NULL,
                 introduced_by TEXT NOT NULL,
                 interface TEXT,
                 note TEXT NOT NULL,
                 reason TEXT NOT NULL,
                 since DOUBLE PRECISION NOT NULL,
                 expires DOUBLE PRECISION,
                 marks TEXT NOT NULL,
                 PRIMARY KEY(workspace, owner, id))""",
            "CREATE INDEX wa_contact_id ON wa_contact(workspace, id)",
            # One row a receiver, held while a message is added: it numbers and counts those that wait, and has its last
            # task.
            """CREATE TABLE wa_mailbox(
                 workspace TEXT NOT NULL,
                 member TEXT NOT NULL,
                 waiting BIGINT NOT NULL,
                 last BIGINT NOT NULL,
                 task TEXT NOT NULL DEFAULT '',
                 PRIMARY KEY(workspace, member))""",
            """CREATE TABLE wa_mail(
                 workspace TEXT NOT NULL,
                 id TEXT NOT NULL,
                 place BIGINT NOT NULL,
                 sender TEXT NOT NULL,
                 receiver TEXT NOT NULL,
                 kind TEXT NOT NULL,
                 content TEXT NOT NULL,
                 payload TEXT NOT NULL,
                 answers TEXT NOT NULL,
                 chain BIGINT NOT NULL,
                 opening TEXT,
                 marks TEXT NOT NULL,
                 sent DOUBLE PRECISION NOT NULL,
                 state TEXT NOT NULL,
                 answered BIGINT NOT NULL,
                 prepared TEXT,
                 PRIMARY KEY(workspace, id))""",
            """CREATE TABLE wa_outcome(
                 workspace TEXT NOT NULL,
                 episode TEXT NOT NULL,
                 member TEXT NOT NULL,
                 place BIGINT NOT NULL,
                 turn TEXT NOT NULL,
                 capability TEXT NOT NULL,
                 succeeded BIGINT NOT NULL,
                 feedback TEXT,
                 at DOUBLE PRECISION NOT NULL,
                 PRIMARY KEY(workspace, episode))""",
            "CREATE UNIQUE INDEX wa_outcome_place ON wa_outcome(workspace, member, place)",
            "CREATE INDEX wa_outcome_turn ON wa_outcome(workspace, turn) WHERE turn <> ''",
            "CREATE INDEX wa_mail_receiver ON wa_mail(workspace, receiver, state, place)",
            "CREATE INDEX wa_mail_received ON wa_mail(workspace, receiver, sent, id)",
            "CREATE INDEX wa_mail_sent ON wa_mail(workspace, sender, sent, id)",
            "CREATE INDEX wa_mail_pair ON wa_mail(workspace, sender, receiver, answered)",
            "CREATE INDEX wa_mail_answers ON wa_mail(workspace, answers) WHERE answers <> ''",
            # One row a workspace, held while one of its events changes: it numbers and counts those that are open.
            """CREATE TABLE wa_occurrence_count(
                 workspace TEXT PRIMARY KEY,
                 waiting BIGINT NOT NULL,
                 last BIGINT NOT NULL)""",
            """CREATE TABLE wa_occurrence(
                 workspace TEXT NOT NULL,
                 id TEXT NOT NULL,
                 place BIGINT NOT NULL,
                 member TEXT NOT NULL,
                 named BIGINT NOT NULL,
                 state TEXT NOT NULL,
                 trail TEXT NOT NULL,
                 event TEXT NOT NULL,
                 decision TEXT,
                 result TEXT,
                 code TEXT NOT NULL,
                 posted DOUBLE PRECISION NOT NULL,
                 ended DOUBLE PRECISION,
                 PRIMARY KEY(workspace, id))""",
            "CREATE INDEX wa_occurrence_place ON wa_occurrence(workspace, place)",
            "CREATE INDEX wa_occurrence_open ON wa_occurrence(workspace, member, place) WHERE state <> 'done'",
            # What a gateway looks for at each poll. Without it, SQLite reads all events that are over.
            "CREATE INDEX wa_occurrence_order ON wa_occurrence(workspace, place) WHERE state <> 'done'",
        ),
        (
            # The lines of events, without those that wait for people.
            "DROP INDEX wa_occurrence_open",
            """CREATE INDEX wa_occurrence_line ON wa_occurrence(workspace, member, place)
               WHERE state <> 'done' AND state <> 'paused'""",
            """CREATE INDEX wa_occurrence_turn ON wa_occurrence(workspace, place)
               WHERE state <> 'done' AND state <> 'paused'""",
            # A page of members, without those that are terminated.
            "CREATE INDEX wa_member_there ON wa_member(workspace, place) WHERE status <> 'terminated'",
            "CREATE INDEX wa_member_draft ON wa_member(workspace, place) WHERE status='draft'",
            "CREATE INDEX wa_member_domain_of ON wa_member_domain(workspace, member)",
        ),
        (
            # What the outcomes that are no longer kept did to the trust of their member, in hundredths: a replay of the
            # others begins with it.
            """CREATE TABLE wa_outcome_sum(
                 workspace TEXT NOT NULL,
                 member TEXT NOT NULL,
                 capability TEXT NOT NULL,
                 shift BIGINT NOT NULL,
                 low BIGINT NOT NULL,
                 high BIGINT NOT NULL,
                 PRIMARY KEY(workspace, member, capability))""",
            "CREATE INDEX wa_outcome_at ON wa_outcome(workspace, at)",
            "CREATE INDEX wa_occurrence_over ON wa_occurrence(workspace, ended, id) WHERE state='done'",
            "CREATE INDEX wa_mail_all ON wa_mail(workspace, sent, id)",
        ),
        (
            # How the id and the name of each person, and of each member that is not terminated, look. It is filled with
            # those that are there when somebody joins for the first time.
            """CREATE TABLE wa_look(
                 workspace TEXT NOT NULL,
                 look TEXT NOT NULL,
                 id TEXT NOT NULL,
                 PRIMARY KEY(workspace, look, id))""",
            "CREATE INDEX wa_look_of ON wa_look(workspace, id)",
        ),
        (
            # Which event, message of a person, or turn a message follows from (A17); empty in earlier versions.
            "ALTER TABLE wa_mail ADD COLUMN case_id TEXT NOT NULL DEFAULT ''",
            "CREATE INDEX wa_mail_case ON wa_mail(workspace, case_id, sent, id) WHERE case_id <> ''",
        ),
        (
            # Until when the turn on messages of a message's sender waits for the reply, and the message that it is on.
            "ALTER TABLE wa_mail ADD COLUMN waits DOUBLE PRECISION",
            # Of a reply that was taken for a group which still waits: the turn of the group.
            "ALTER TABLE wa_mail ADD COLUMN during TEXT",
            "CREATE INDEX wa_mail_taken ON wa_mail(workspace) WHERE during IS NOT NULL AND waits IS NULL",
            "CREATE INDEX wa_mail_waits ON wa_mail(workspace, sender, waits) WHERE waits IS NOT NULL",
        ),
        (
            # When the last decision about an event was made, and when a person rated an episode: a replay of the
            # events needs their order.
            "ALTER TABLE wa_occurrence ADD COLUMN decided DOUBLE PRECISION",
            "ALTER TABLE wa_outcome ADD COLUMN rated DOUBLE PRECISION",
        ),
        (
            # What was sent to remote agents, by the messages that led to it.
            """CREATE TABLE wa_remote(
                 workspace TEXT NOT NULL,
                 letter TEXT NOT NULL,
                 place BIGINT NOT NULL,
                 member TEXT NOT NULL,
                 peer TEXT NOT NULL,
                 context TEXT NOT NULL,
                 task TEXT NOT NULL,
                 stage TEXT NOT NULL,
                 text TEXT NOT NULL,
                 asked TEXT NOT NULL,
                 PRIMARY KEY(workspace, letter))""",
            "CREATE INDEX wa_remote_pair ON wa_remote(workspace, member, peer, place)",
            "CREATE INDEX wa_remote_open ON wa_remote(workspace, place) WHERE stage <> 'over'",
            # What callers over A2A asked of members, by the first message of each task.
            """CREATE TABLE wa_offered(
                 workspace TEXT NOT NULL,
                 id TEXT NOT NULL,
                 place BIGINT NOT NULL,
                 member TEXT NOT NULL,
                 caller TEXT NOT NULL,
                 context TEXT NOT NULL,
                 cancelled BIGINT NOT NULL,
                 PRIMARY KEY(workspace, id))""",
            "CREATE INDEX wa_offered_caller ON wa_offered(workspace, member, caller, place)",
        ),
        (
            # The board: each brief that was given, and how far it is. `message` is that with which its member has it;
            # empty where it went back to its giver. `unmet` counts the briefs before it that are not done. `due` is its
            # deadline until its giver was told.
            """CREATE TABLE wa_brief(
                 workspace TEXT NOT NULL,
                 id TEXT NOT NULL,
                 member TEXT NOT NULL,
                 giver TEXT NOT NULL,
                 state TEXT NOT NULL,
                 message TEXT NOT NULL,
                 body TEXT NOT NULL,
                 marks TEXT NOT NULL,
                 note TEXT NOT NULL,
                 note_marks TEXT NOT NULL,
                 attempt BIGINT NOT NULL,
                 most BIGINT NOT NULL,
                 unmet BIGINT NOT NULL,
                 due DOUBLE PRECISION,
                 case_id TEXT NOT NULL,
                 given DOUBLE PRECISION NOT NULL,
                 changed DOUBLE PRECISION NOT NULL,
                 PRIMARY KEY(workspace, id))""",
            "CREATE INDEX wa_brief_member ON wa_brief(workspace, member, state, given, id)",
            "CREATE INDEX wa_brief_giver ON wa_brief(workspace, giver, state, given, id)",
            "CREATE INDEX wa_brief_state ON wa_brief(workspace, state, given, id)",
            "CREATE INDEX wa_brief_due ON wa_brief(workspace, due, id) WHERE due IS NOT NULL",
            "CREATE INDEX wa_brief_over ON wa_brief(workspace, changed, id) WHERE state IN ('done', 'failed')",
            """CREATE TABLE wa_brief_after(
                 workspace TEXT NOT NULL,
                 brief TEXT NOT NULL,
                 needs TEXT NOT NULL,
                 PRIMARY KEY(workspace, brief, needs))""",
            "CREATE INDEX wa_brief_needed ON wa_brief_after(workspace, needs, brief)",
        ),
        (
            # Budgets (A16). A holder is a member, a brief or a case. What is counted is what was spent and what is
            # reserved, by windows of the holder's period; costs are in billionths of a dollar.
            """CREATE TABLE wa_limit(
                 workspace TEXT NOT NULL,
                 holder TEXT NOT NULL,
                 member TEXT NOT NULL,
                 limits TEXT NOT NULL,
                 PRIMARY KEY(workspace, holder))""",
            """CREATE TABLE wa_budget(
                 workspace TEXT NOT NULL,
                 holder TEXT NOT NULL,
                 span TEXT NOT NULL,
                 turns BIGINT NOT NULL,
                 calls BIGINT NOT NULL,
                 tokens BIGINT NOT NULL,
                 cost BIGINT NOT NULL,
                 PRIMARY KEY(workspace, holder, span))""",
            # What is reserved, and where it is counted: for a model call under way, or the share of a dispatch.
            """CREATE TABLE wa_reserved(
                 workspace TEXT NOT NULL,
                 id TEXT NOT NULL,
                 work TEXT NOT NULL,
                 member TEXT NOT NULL,
                 debits TEXT NOT NULL,
                 turns BIGINT NOT NULL,
                 calls BIGINT NOT NULL,
                 tokens BIGINT NOT NULL,
                 cost BIGINT NOT NULL,
                 at DOUBLE PRECISION NOT NULL,
                 PRIMARY KEY(workspace, id))""",
            "CREATE INDEX wa_reserved_work ON wa_reserved(workspace, work)",
            # Work that waits because a budget is reached.
            """CREATE TABLE wa_held(
                 workspace TEXT NOT NULL,
                 work TEXT NOT NULL,
                 member TEXT NOT NULL,
                 case_id TEXT NOT NULL,
                 holder TEXT NOT NULL,
                 needs TEXT NOT NULL,
                 since DOUBLE PRECISION NOT NULL,
                 PRIMARY KEY(workspace, work))""",
        ),
    ),
)
