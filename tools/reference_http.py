"""docs/http-operations.md: every operation of the HTTP API with what it takes and what it answers."""

from __future__ import annotations

from typing import Any

import msgspec

from horae.api import requests
from horae.api.operations import OPERATIONS, PREFIX, Operation
from horae.api.responses import catalog_responses, job_responses, people_responses, plan_responses
from horae.api.responses import version_responses as sayings
from horae.api.responses.job_responses import ApiResponse
from horae.web.http.openapi import GROUPS, refusals, statuses
from horae.web.http.problems import TITLES
from tools.writing import cell, code, field_words, own_words, page, slug, table

_NULL = ", or null"
_REFERENCE = "#{name}"
_INTRO = """
What [http.md](http.md) explains, operation by operation; the same for programs is served at `/api/v1/openapi.json`.
What a path names stands in the path; the rest are query parameters of GET and DELETE, and the JSON object that is the
body of POST, PUT and PATCH. A parameter without a default must be given: **bold**.
"""
_USUAL = frozenset.intersection(*(frozenset(refusals(operation)) for operation in OPERATIONS))


def http_page() -> str:
    usual = ", ".join(f"{status} {TITLES[status].lower()}" for status in sorted(_USUAL))
    parts = [_INTRO, f"Every operation may be refused with {usual}; which others, each says."]
    for group, about in GROUPS.items():
        operations = [each for each in OPERATIONS if each.group == group]
        if not operations:
            continue
        title, _, rest = about.partition(": ")
        parts.append(f"## {title}")
        if rest:
            parts.append(f"{rest[0].upper()}{rest[1:]}.")
        rows = [
            [code(each.method), code(PREFIX + each.path), f"[{each.summary}](#{slug(each.summary)})"]
            for each in operations
        ]
        parts.append(table(["method", "path", ""], rows))
        parts += [part for each in operations for part in _operation(each)]
    parts += _answers()
    return page("HTTP operations", *parts)


def _operation(operation: Operation) -> list[str]:
    made = [f"### {operation.summary}", f"```\n{operation.method} {PREFIX}{operation.path}\n```"]
    about = own_words(operation.asks)
    if about and operation.asks is not requests.EmptyRequest:
        made.append(about)
    said = field_words(operation.asks)
    rows = [_parameter(operation, each, said.get(each.name, "")) for each in msgspec.structs.fields(operation.asks)]
    if rows:
        made.append(table(["parameter", "in", "is", "default", ""], rows))
    given = ", ".join(map(str, statuses(operation)))
    others = sorted(set(refusals(operation)) - _USUAL)
    refused = f" May also be refused with {', '.join(map(str, others))}." if others else ""
    made.append(f"Answers {given} with {_linked(operation.answers)}.{refused}")
    return made


def _parameter(operation: Operation, field: msgspec.structs.FieldInfo, said: str) -> list[str]:
    place = "path" if field.name in operation.in_path else "body" if operation.has_body else "query"
    name = f"**`{field.name}`**" if field.required else code(field.name)
    is_left_out = not field.required and field.default is None
    kind = in_words(msgspec.json.schema(field.type))
    default = "" if field.required else "none" if is_left_out else code(_plain(field.default))
    # To say null is to leave it out, which a default of none says already.
    return [name, place, kind.removesuffix(_NULL) if is_left_out else kind, default, cell(said)]


def _plain(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def in_words(schema: dict[str, Any]) -> str:
    """What a value is, for people. Types of answers are links to where those are."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{slug(name)})"
    if "anyOf" in schema:
        said = [in_words(each) for each in schema["anyOf"] if each != {"type": "null"}]
        return " or ".join(said) + (_NULL if {"type": "null"} in schema["anyOf"] else "")
    kind = schema.get("type")
    if kind == "array":
        return f"list of {in_words(schema['items'])}" if schema.get("items") else "list"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"object of {in_words(values)}" if isinstance(values, dict) and values else "object"
    if schema.get("format") == "date-time":
        return "time"
    if kind == "integer":
        return "whole number" + _bounds(schema, "minimum", "maximum", "")
    if kind == "number":
        return "seconds" if schema.get("description") == "seconds" else "number"
    if kind == "string":
        return "text" + _bounds(schema, "minLength", "maxLength", " characters")
    return {"boolean": "true or false"}.get(str(kind), "anything")


def _bounds(schema: dict[str, Any], least: str, most: str, unit: str) -> str:
    if most not in schema:
        return ""
    if schema[most] == 2**53 - 1:
        return f" from {schema[least]}"
    if unit and not schema.get(least):
        return f", up to {schema[most]:,}{unit}"
    return f", {schema.get(least, 0):,} to {schema[most]:,}{unit}"


# ---- what is answered ------------------------------------------------------------------------------------------------


def _linked(kind: type[ApiResponse]) -> str:
    return f"[{kind.__name__}](#{slug(kind.__name__)})"


def _answers() -> list[str]:
    """Every shape that an operation answers with, or that stands in one, by name."""
    about = "What stands in answers, by name. Times are RFC 3339 text in UTC."
    _, found = msgspec.json.schema_components([each.answers for each in OPERATIONS], ref_template=_REFERENCE)
    kinds = {
        kind.__name__: kind
        for module in (job_responses, catalog_responses, people_responses, plan_responses, sayings)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, ApiResponse) and kind is not ApiResponse
    }
    parts = ["## Answers", about]
    for name in sorted(found):
        kind = kinds[name]
        parts.append(f"### {name}")
        if own_words(kind):
            parts.append(own_words(kind))
        said = field_words(kind)
        rows = [
            [code(field), in_words(schema), cell(said.get(field, ""))]
            for field, schema in found[name]["properties"].items()
        ]
        parts.append(table(["field", "is", ""], rows))
    return parts
