"""The OpenAPI 3.1 document, generated from the list of operations: parameters, bodies, responses, statuses."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec

from horae.api.operations import OPERATIONS, PREFIX, Operation
from horae.version import __version__
from horae.web.http.health import Health
from horae.web.http.problems import MEDIA_TYPE, TITLES, Problem

REFERENCE = "#/components/schemas/{name}"
GROUPS = {
    "jobs": "Jobs: what runs when, and what is done to them",
    "runs": "Runs, their reports and what they printed",
    "schedules": "Schedules by themselves",
    "system": "The whole: overview, nodes, settings, SQL",
    "audit": "Who did what",
    "people": "Users, roles, tokens, secrets",
    "service": "The server itself",
}
_ALWAYS = (400, 401, 403, 421, 429, 500, 503)
_WITH_BODY = (408, 413, 415)
_ABOUT = (
    "Every answer is JSON; every refusal is a problem document (RFC 9457) with a stable `code` and `number`. "
    "Send `Authorization: Bearer TOKEN`; sessions of the dashboard send their cookie and, to change anything, "
    "`X-CSRF-Token`. A server without any credential serves its own machine alone, and needs neither. "
    "Times are RFC 3339. `Idempotency-Key` makes any POST that changes something safe to repeat. A slash in a name is "
    "written %2F."
)


def document() -> dict[str, Any]:
    """Returns the whole document as plain values."""
    answers = [operation.answers for operation in OPERATIONS]
    references, components = msgspec.json.schema_components([*answers, Problem, Health], ref_template=REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for operation, answer in zip(OPERATIONS, references, strict=False):
        paths.setdefault(PREFIX + operation.path, {})[operation.method.lower()] = _operation(operation, answer)
    paths.update(_service_paths(references[-1]))
    return {
        "openapi": "3.1.0",
        "info": {"title": "Horae", "version": __version__, "description": _ABOUT},
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": text} for name, text in GROUPS.items()],
        "security": [{"bearer": []}, {"session": []}, {}],
        "paths": paths,
        "components": {
            "schemas": {name: _clean_description(schema) for name, schema in sorted(components.items())},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "A token of `horae token create`."},
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "horae_session",
                    "description": "Got at /login; changes need the header X-CSRF-Token.",
                },
            },
            "responses": {
                f"Problem{status}": {
                    "description": title,
                    "content": {MEDIA_TYPE: {"schema": {"$ref": REFERENCE.format(name="Problem")}}},
                }
                for status, title in TITLES.items()
            },
        },
    }


def _operation(operation: Operation, answer: dict[str, Any]) -> dict[str, Any]:
    asked = _request_schema(operation)
    made: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.group],
        "parameters": _parameters(operation, asked),
        "responses": {
            **{str(status): _response_schema(operation, status, answer) for status in statuses(operation)},
            **{str(status): {"$ref": f"#/components/responses/Problem{status}"} for status in refusals(operation)},
        },
    }
    if operation.has_body:
        left = {name: each for name, each in asked["properties"].items() if name not in operation.in_path}
        required = [name for name in asked["required"] if name not in operation.in_path]
        schema = {"type": "object", "properties": left, "required": required, "additionalProperties": False}
        made["requestBody"] = {"required": bool(required), "content": {"application/json": {"schema": schema}}}
    description = _own_docstring(operation.asks)
    if description:
        made["description"] = description
    return made


def statuses(operation: Operation) -> tuple[int, ...]:
    """Returns the statuses of success."""
    return (200, 201) if operation.name == "put_job" else (operation.status,)


def refusals(operation: Operation) -> tuple[int, ...]:
    """Returns the statuses of refusal."""
    # 404 is always possible: a query parameter or SQL may name something that does not exist.
    found = {*_ALWAYS, 404, 409}
    if operation.has_body:
        found.update(_WITH_BODY)
    if operation.is_once:
        found.add(422)
    if operation.name == "put_job":
        found.add(412)
    return tuple(sorted(found))


def _response_schema(operation: Operation, status: int, answer: dict[str, Any]) -> dict[str, Any]:
    words = {200: "Done", 201: "Created", 202: "Accepted"}[status]
    made: dict[str, Any] = {"description": words, "content": {"application/json": {"schema": answer}}}
    headers: dict[str, Any] = {}
    if operation.name in ("get_job", "put_job"):
        headers["ETag"] = {"description": "The job's version, for If-Match", "schema": {"type": "string"}}
    if any(each.name in ("next_offset", "next_before") for each in msgspec.structs.fields(operation.answers)):
        headers["Link"] = {"description": 'The next page, as rel="next"', "schema": {"type": "string"}}
    if operation.is_once:
        headers["Idempotency-Replayed"] = {
            "description": "true: this was answered before, to the same key",
            "schema": {"type": "string"},
        }
    return {**made, "headers": headers} if headers else made


def _parameters(operation: Operation, asked: dict[str, Any]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for name, schema in asked["properties"].items():
        if name in operation.in_path:
            # A path with an empty segment does not match the operation.
            made.append({"name": name, "in": "path", "required": True, "schema": {**schema, "minLength": 1}})
        elif not operation.has_body:
            needed = name in asked["required"]
            made.append({"name": name, "in": "query", "required": needed, "schema": _in_query(schema)})
    if operation.is_once:
        made.append(_header("Idempotency-Key", "A key of your own: whoever repeats it gets the same answer.", 255))
    if operation.name == "put_job":
        made.append(_header("If-Match", "The ETag of the job as it was read.", 40))
        made.append(_header("If-None-Match", "`*`: there must be no such job yet.", 40))
    return made


def _header(name: str, description: str, longest: int) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1, "maxLength": longest}
    return {"name": name, "in": "header", "required": False, "description": description, "schema": schema}


def _request_schema(operation: Operation) -> dict[str, Any]:
    (_,), components = msgspec.json.schema_components([operation.asks], ref_template=REFERENCE)
    found: dict[str, Any] = components[operation.asks.__name__]
    return found


def _in_query(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns a parameter's schema without null, which a query cannot express: the parameter is left out instead."""
    choices = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    made = {name: each for name, each in schema.items() if not (name == "default" and each is None)}
    if len(choices) == 1:
        del made["anyOf"]
        made = {**choices[0], **made}
    return made


def _clean_description(schema: dict[str, Any]) -> dict[str, Any]:
    text = schema.get("description")
    return {**schema, "description": inspect.cleandoc(text)} if text else schema


def _own_docstring(kind: type) -> str:
    own = kind.__dict__.get("__doc__")
    return inspect.cleandoc(own) if own else ""


def _service_paths(health: dict[str, Any]) -> dict[str, dict[str, Any]]:
    def get(name: str, summary: str, media: str, schema: dict[str, Any], *extra: int, **more: Any) -> dict[str, Any]:
        refused = {str(status): {"$ref": f"#/components/responses/Problem{status}"} for status in extra}
        answer = {"description": summary, "content": {media: {"schema": schema}}}
        made = {
            "operationId": name,
            "summary": summary,
            "tags": ["service"],
            "responses": {"200": answer, **refused},
            **more,
        }
        return {"get": made}

    red = {"description": "Red", "content": {"application/json": {"schema": health}}}
    checked = (400, 421, 429, 500)
    healthz = get("healthz", "Whether all is well", "application/json", health, *checked, security=[{}])
    readyz = get("readyz", "Whether requests may be sent here", "application/json", health, *checked, security=[{}])
    for each in (healthz, readyz):
        each["get"]["responses"]["503"] = red
    anything = {"type": "object"}
    overview = {"name": "overview", "in": "query", "required": False, "schema": {"type": "integer", "enum": [0, 1]}}
    text = {"type": "string"}
    open_document = get("openapi", "This document", "application/json", anything, 400, 421, 429, 500, security=[{}])
    job_schema = get(
        "job_schema", "The JSON Schema of jobs.toml", "application/schema+json", anything, *checked, security=[{}]
    )
    events = get(
        "events",
        "What changes, as server-sent events: hello, change, overview",
        "text/event-stream",
        text,
        *_ALWAYS,
        parameters=[overview],
    )
    return {
        f"{PREFIX}/openapi.json": open_document,
        f"{PREFIX}/jobs.schema.json": job_schema,
        f"{PREFIX}/events": events,
        "/metrics": get("metrics", "Metrics for Prometheus", "text/plain", text, *_ALWAYS),
        "/healthz": healthz,
        "/readyz": readyz,
    }
