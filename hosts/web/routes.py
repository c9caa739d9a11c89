"""The endpoints: a table of paths, each with the operation that answers it, and the OpenAPI document of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from ..service.arguments import WorkspaceArguments
from ..service.operation import Operation, Run
from ..service.operations import OPERATIONS, Operations
from ..service.records import ErrorAnswer, EventsAnswer
from ..sidecar.tools import run_of
from .turns import MessageArguments, read_events

_PATHS: Final = """
POST   /threads/{thread:path}/messages      converse
GET    /threads/{thread:path}/messages      history
POST   /threads/{thread:path}/tasks         task
POST   /threads/{thread:path}/skills        run_skill
POST   /threads/{thread:path}/resume        resume
GET    /threads/{thread:path}/pauses        pauses
POST   /threads/{thread:path}/cancel        cancel
POST   /threads/{thread:path}/background/{task}/steer background_steer
POST   /threads/{thread:path}/steer         thread_steer
POST   /threads/{thread:path}/queue         thread_queue
GET    /threads/{thread:path}/queue         thread_queued
PUT    /threads/{thread:path}/queue         thread_reorder
DELETE /threads/{thread:path}/queue/{message} thread_withdraw
POST   /threads/{thread:path}/queue/{message}/release thread_release
GET    /threads/{thread:path}/background    background_list
POST   /threads/{thread:path}/background    background_start
DELETE /threads/{thread:path}/background/{task} background_cancel
POST   /threads/{thread:path}/fork          fork
PUT    /threads/{thread:path}/title         thread_rename
PUT    /threads/{thread:path}/archived      thread_archive
PUT    /threads/{thread:path}/speaker       thread_hand_over
DELETE /threads/{thread:path}/speaker       thread_hand_back
PUT    /threads/{thread:path}/role          thread_role_set
DELETE /threads/{thread:path}/role          thread_role_clear
POST   /threads/{thread:path}/role/explain  explain_role
POST   /threads/{thread:path}/distil        memory_distil
GET    /threads                             threads
GET    /roles                               stored_role_list
PUT    /roles/{tier}                        stored_role_set
DELETE /roles/{tier}                        stored_role_clear
GET    /turns/{turn_id}/events              events
PUT    /turns/{turn_id}/feedback            turn_feedback
GET    /turns/{turn_id}/trace               turn_trace
GET    /skills                              skill_list
GET    /skills/{skill}                      skill_show
GET    /functions                           function_list
GET    /schedules                           schedule_list
POST   /schedules                           schedule_add
GET    /schedules/{schedule}                schedule_show
DELETE /schedules/{schedule}                schedule_remove
PUT    /schedules/{schedule}/paused         schedule_pause
POST   /schedules/{schedule}/run            schedule_run
GET    /schedules/{schedule}/runs           schedule_history
GET    /memory                              memory_list
POST   /memory                              memory_add
GET    /memory/search                       memory_search
POST   /memory/forget                       memory_forget
GET    /memory/{entry}                      memory_show
PATCH  /memory/{entry}                      memory_edit
GET    /members                             society_members
GET    /members/graph                       society_graph
GET    /members/stalls                      society_stalls
GET    /members/waiting                     society_spawns
GET    /members/{member}                    society_member
POST   /members/{member}/approve            society_approve
POST   /members/{member}/reject             society_reject
POST   /members/{member}/withdraw           society_withdraw
PUT    /members/{member}/state              society_state
POST   /members/{member}/terminate          society_terminate
GET    /members/{member}/outcomes           society_outcomes
POST   /members/{to}/messages               society_send
GET    /contacts                            society_contacts
GET    /inbox                               society_inbox
POST   /inbox/read                          society_read
PUT    /outcomes/{episode}/feedback         society_feedback
GET    /cases/{id}                          case_show
GET    /briefs                              board_list
POST   /briefs/{brief}/move                 board_move
GET    /budgets                             budget_list
POST   /budgets/extend                      budget_extend
POST   /budgets/end                         budget_end
GET    /drafts                              draft_list
GET    /drafts/{draft}                      draft_show
POST   /drafts/{draft}/approve              draft_approve
POST   /drafts/{draft}/reject               draft_reject
GET    /events                              event_list
POST   /events                              event_post
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One method of one path.

    Attributes:
        method: The HTTP method.
        path: The path, with the names of arguments in braces.
        operation: The operation that answers.
        arguments: The model of the arguments of the path, the query and the body together.
        run: Answers a plain call.
    """

    method: str
    path: str
    operation: Operation
    arguments: type[WorkspaceArguments]
    run: Run

    @property
    def in_path(self) -> list[str]:
        """The names of the arguments in its path."""
        return [part[1:-1].partition(":")[0] for part in self.path.split("/") if part.startswith("{")]

    @property
    def has_body(self) -> bool:
        """Whether arguments come as a JSON body; otherwise they come in the query."""
        return self.method not in ("GET", "DELETE")


def _endpoint(method: str, path: str, operation: Operation) -> Endpoint:
    name = operation.name
    return Endpoint(
        method=method,
        path=path,
        operation=operation,
        arguments=MessageArguments if name == "converse" else operation.arguments,
        run=read_events if name == "events" else run_of(operation),
    )


def endpoints_of(operations: Operations) -> tuple[Endpoint, ...]:
    """Return the endpoints of operations. One that the table of paths does not have is at `/operations/NAME`."""
    lines = [line.split() for line in _PATHS.strip().splitlines()]
    left = operations.keys() - {name for _, _, name in lines}
    lines += [["POST", f"/operations/{name}", name] for name in operations if name in left]
    return tuple(
        _endpoint(method, path, operations[name])
        for method, path, name in lines
        if "web" not in operations[name].absent
    )


ENDPOINTS: Final = endpoints_of(OPERATIONS)


# --- OpenAPI ----------------------------------------------------------------------------------------------------------

_REFERENCE: Final = "#/components/schemas/{model}"
_STREAM_NOTE: Final = (
    "With `Accept: text/event-stream` the turn's events come as they happen, each with its number as the id, and then "
    "the answer with the type `turn`."
)


@cache
def openapi() -> dict[str, Any]:
    """Return the OpenAPI document of the endpoints."""
    models = {one for each in ENDPOINTS for one in (each.arguments, each.operation.answer)} | {
        ErrorAnswer,
        EventsAnswer,
    }
    wanted: Any = [(model, "validation") for model in sorted(models, key=lambda model: model.__name__)]
    made, definitions = models_json_schema(wanted, ref_template=_REFERENCE)
    schemas: dict[Any, Any] = {model: schema for (model, _), schema in made.items()}
    parts: dict[str, Any] = definitions.get("$defs", {})
    paths: dict[str, dict[str, Any]] = {}
    for each in ENDPOINTS:
        operation = _operation(each, parts[_name(schemas[each.arguments])], schemas)
        paths.setdefault(each.path.replace(":path", ""), {})[each.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "worldagent", "version": version("worldagent")},
        "paths": paths,
        "components": {
            "schemas": parts,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _name(schema: Mapping[str, Any]) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def _operation(
    endpoint: Endpoint, arguments: Mapping[str, Any], schemas: Mapping[type[BaseModel], Any]
) -> dict[str, Any]:
    fields: dict[str, Any] = arguments["properties"]
    required = arguments.get("required", ())
    in_path = endpoint.in_path
    parameters = [_parameter("path", name, fields[name], required=True) for name in in_path]
    rest = {name: one for name, one in fields.items() if name not in in_path}
    made: dict[str, Any] = {
        "operationId": endpoint.operation.name,
        "summary": endpoint.operation.title,
        "description": endpoint.operation.description,
        "parameters": parameters,
        "responses": {
            "200": {
                "description": "The answer",
                "content": {"application/json": {"schema": schemas[endpoint.operation.answer]}},
            },
            "default": {
                "description": "An error",
                "content": {"application/json": {"schema": schemas[ErrorAnswer]}},
            },
        },
    }
    if endpoint.operation.kind != "call":
        made["description"] = f"{endpoint.operation.description} {_STREAM_NOTE}"
        made["responses"]["200"]["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    if endpoint.has_body:
        body = {"type": "object", "properties": rest, "additionalProperties": False}
        wanted = [name for name in required if name in rest]
        schema = {**body, "required": wanted} if wanted else body
        made["requestBody"] = {"required": bool(wanted), "content": {"application/json": {"schema": schema}}}
    else:
        parameters += [_parameter("query", name, one, required=name in required) for name, one in rest.items()]
    return made


def _parameter(place: str, name: str, schema: Mapping[str, Any], *, required: bool) -> dict[str, Any]:
    shown = {key: value for key, value in schema.items() if key != "description"}
    made = {"name": name, "in": place, "required": required, "schema": shown}
    return {**made, "description": schema["description"]} if "description" in schema else made
