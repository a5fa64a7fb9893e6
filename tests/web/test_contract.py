"""The API against its own description: requests made from the OpenAPI document, good and bad, each answer checked."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import httpx
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.web.serving import PATIENCE, Served, serving, settings_with_key

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
KNOWN, GOOD, BAD = 5, 4, 3
"""Requests made for each operation: about what is there, by the document alone, and against it."""
ENDLESS = "/api/v1/events"


def test_every_answer_is_one_that_the_document_tells_of(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path}/horae.db", settings=settings_with_key(tmp_path)) as served:
        faults = faults_of(served, KNOWN, GOOD, BAD)
    assert not faults, "\n\n".join(faults)


def faults_of(served: Served, about: int, good: int, bad: int) -> list[str]:
    """What was wrong with the answers to so many requests of each operation."""
    run_id = served.run("nightly")
    headers = {"authorization": f"Bearer {served.token('local')}"}
    with served.client(headers=headers) as client:
        document = client.get("/api/v1/openapi.json").json()
        hinted = hint(document, known(client, run_id))
        faults: list[str] = []
        passes = (
            (hinted, GenerationMode.POSITIVE, about),
            (document, GenerationMode.POSITIVE, good),
            (document, GenerationMode.NEGATIVE, bad),
        )
        for described, mode, count in passes:
            schema = schemathesis.openapi.from_dict(described)
            schema.config.update(base_url=served.url, request_timeout=PATIENCE)
            operations = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
            # What drops things comes last, while there is still something to be dropped.
            for operation in sorted(operations, key=lambda each: each.method == "delete"):
                if operation.path != ENDLESS:
                    attempt(operation, mode, count, headers, faults)
        assert client.get("/healthz").json()["status"] == "ok"
    return faults


def known(client: httpx.Client, run_id: str) -> dict[str, list[Any]]:
    """Values that mean something to this server, by the names of parameters: chance alone would find none of them."""
    report = client.get(f"/api/v1/runs/{run_id}/report").json()
    jobs = client.get("/api/v1/jobs").json()["jobs"]
    return {
        "name": [job["name"] for job in jobs] + ["scheduler.catch_up"],
        "job": [job["name"] for job in jobs],
        "run_id": [run_id],
        "before": [run_id],
        "attempt_id": [report["tasks"][0]["attempts"][0]["attempt_id"]],
        "text": ["0 2 * * *", "every 90s", "P3W", "@daily name=x command=true", "SELECT * FROM sys.jobs", "SHOW JOBS"],
        "timezone": ["Europe/Brussels", "UTC"],
        "state": ["enabled", "active", "failed,completed"],
        "sort": ["name", "state", "next_run_time"],
        "definition": [client.get(f"/api/v1/jobs/{job['name']}").json()["definition"] for job in jobs if job["tags"]],
        "value": ["last", None, 5],
        "lasts": ["90d", None, "1h"],
        "start": ["2026-01-01T00:00:00Z"],
        "end": ["2026-01-04T00:00:00Z", "2025-12-31T12:00:00+01:00"],
    }


def hint(document: dict[str, Any], values: dict[str, list[Any]]) -> dict[str, Any]:
    """The document with the values that mean something in the place of all that a parameter may be."""
    made = deepcopy(document)
    for path in made["paths"].values():
        for operation in path.values():
            for parameter in operation.get("parameters", ()):
                if parameter["name"] in values:
                    parameter["schema"] = _one_of(parameter["schema"], values[parameter["name"]])
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            for name in set(body.get("properties", ())) & set(values):
                body["properties"][name] = _one_of(body["properties"][name], values[name])
    return made


def _one_of(schema: dict[str, Any], values: list[Any]) -> dict[str, Any]:
    fitting = [value for value in values if schema.get("type") != "integer" or isinstance(value, int)]
    return {"enum": fitting} if fitting else schema


def attempt(operation: Any, mode: GenerationMode, count: int, headers: dict[str, str], faults: list[str]) -> None:
    @seed(7)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def call(case: Any) -> None:
        case.validate_response(case.call(headers=headers), checks=CHECKS)

    if mode is GenerationMode.NEGATIVE and not operation.definition.raw.get("parameters") and operation.method == "get":
        return  # there is nothing to be wrong about
    try:
        call()
    except BaseException as error:  # noqa: BLE001 - a group of all that failed, told together with the others'
        faults.append(f"{operation.method.upper()} {operation.path} ({mode.value}): {_text(error)}")


def _text(error: BaseException) -> str:
    inner = getattr(error, "exceptions", None)
    return "\n".join(_text(each) for each in inner) if inner else f"{type(error).__name__}: {error}"
