"""Operations over HTTP: reads the request, calls the API, writes the response, and honours idempotency keys.

A POST that changes something and has an Idempotency-Key is carried out once: a client that repeats it gets the stored
answer. A refusal changed nothing and is not stored, so the request may be tried again under the same key. The
statements of `sql` may have been carried out in part, so their refusal is stored too, unless all of them only read.
The answer is stored in the transaction of the change, so that a server that is killed leaves both or neither.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from horae.api import requests
from horae.api.operations import PREFIX, Operation
from horae.api.requests import ApiRequest
from horae.api.responses import catalog_responses, job_responses, people_responses
from horae.api.responses.job_responses import ApiResponse
from horae.errors import AlreadyExists, HoraeError, InvalidInput, VersionConflict, shown
from horae.formats.sql.tokens import only_reads
from horae.services.service import ServiceCatalog
from horae.services.sessions import KeyedRequest, busy_error
from horae.services.sql.session import READING_VERBS
from horae.web.http.authentication import Authenticator
from horae.web.http.problems import ProblemError, problem, status_of
from horae.web.http.request_reader import body_of, query, request_from_body, request_from_query
from horae.web.http.routes import Endpoint
from horae.web.live.events import Hub
from horae.web.site import Visit

KEY_HEADER = "idempotency-key"
REPLAYED = "idempotency-replayed"
JSON = "application/json"
_NEXT = {"next_offset": "offset", "next_before": "before"}
"""The response fields that lead to the next page, each with its query parameter."""
_CREDENTIAL_OPERATIONS = frozenset({"create_user", "alter_user", "create_token", "sql"})
"""The operations that may create the first password or token, and so close an open catalog."""

_MOST_KEPT = 256 * 1024
"""The most bytes of a stored answer to SQL statements; a larger one is stored without its rows."""
_NO_ROWS = " (answered before: its rows were too many to keep)"

_encoder = msgspec.json.Encoder(decimal_format="string", uuid_format="canonical")


def operation_endpoint(operation: Operation, entrance: Authenticator, hub: Hub) -> Endpoint:
    """Returns the endpoint of one operation."""

    async def endpoint(request: Request, named: dict[str, str]) -> Response:
        visit = await entrance.visit(request)
        if not operation.has_body:
            asked = request_from_query(operation, named, request.scope["query_string"])
            is_shared = operation.name == "overview"
            answer = await (hub.overview(visit) if is_shared else visit.desk.answer(operation, asked))
            return _response(operation, answer, request)
        await visit.desk.admit(operation)
        body = await body_of(request)
        asked = request_from_body(operation, named, request.scope["query_string"], body)
        key = _key(request) if operation.is_once else None
        if key is None:
            return _response(operation, await _answer(operation, visit, asked, request), request)
        return await _once(operation, visit, asked, request, key, body)

    async def watched(request: Request, named: dict[str, str]) -> Response:
        response = await endpoint(request, named)
        if operation.is_change:
            if operation.name in _CREDENTIAL_OPERATIONS:
                request.scope["state"]["visit"].site.porter.look_again()
            hub.note(named.get("name") if operation.group == "jobs" else None, named.get("run_id"))
        return response

    return watched


async def _answer(operation: Operation, visit: Visit, asked: ApiRequest, request: Request) -> ApiResponse:
    if not isinstance(asked, requests.PutJob):
        return await visit.desk.answer(operation, asked)
    expected = _expected(request)
    if expected is None:
        return await visit.desk.answer(operation, asked)
    if asked.version not in (None, expected):
        raise InvalidInput("The body's version and the If-Match header disagree", hint="Give one of them.")
    try:
        return await visit.desk.answer(operation, msgspec.structs.replace(asked, version=expected))
    except (AlreadyExists, VersionConflict) as error:
        raise ProblemError(error, 412) from None


def _expected(request: Request) -> int | None:
    """Returns the version that the job must be at by the request's headers; 0 if the job must not exist; None for
    any."""
    if request.headers.get("if-none-match", "").strip() == "*":
        return 0
    given = request.headers.get("if-match", "").strip()
    if given in ("", "*"):
        return None
    digits = given.removeprefix("W/").strip('"')
    if not digits.isascii() or not digits.isdecimal() or len(digits) > 15:
        raise InvalidInput(f"Invalid If-Match {shown(given)}", hint='Send the ETag of the job as it was read: "3".')
    return int(digits)


# ---- idempotency -----------------------------------------------------------------------------------------------------


def _key(request: Request) -> str | None:
    given = request.headers.get(KEY_HEADER)
    # The standard puts the key in quotes, but most clients leave them out.
    return given.strip().strip('"') if given is not None else None


async def _once(
    operation: Operation, visit: Visit, asked: ApiRequest, request: Request, key: str, body: bytes
) -> Response:
    porter = visit.site.porter
    path = request.scope["raw_path"].decode("ascii", "replace")
    begun = await porter.begin(visit.who, operation.method, path, key, body)
    is_trigger = isinstance(asked, requests.TriggerJob)
    if isinstance(asked, requests.TriggerJob) and asked.key is None:
        # The trigger's own key makes it idempotent too, so it need not wait for another server that has the request.
        asked = msgspec.structs.replace(asked, key=key)
    if begun.status is not None:
        return _replayed(begun)
    if begun.busy and not is_trigger:
        raise _busy()
    if begun.busy:
        return _response(operation, await visit.desk.answer(operation, asked), request)
    receipt = _Receipt(begun, operation.status)
    try:
        answer = await visit.desk.answer_once(operation, asked, receipt)
    except BaseException as error:
        if await _release_request(asked, receipt, error, request, visit) or not isinstance(error, HoraeError):
            raise
    else:
        await porter.forget()
        return _response(operation, answer, request)
    # The request is answered already: by another server that took this one for dead, or by a commit of this one whose
    # confirmation was lost.
    begun = await porter.begin(visit.who, operation.method, path, key, body)
    if begun.status is not None:
        return _replayed(begun)
    if not begun.busy:
        await porter.drop(begun)
    raise _busy()


def _busy() -> ProblemError:
    return ProblemError(busy_error(), 409, {"retry-after": "1"})


class _Receipt:
    """Stores the answer to one request; it is a `Receipt` of the API."""

    def __init__(self, begun: KeyedRequest, status: int) -> None:
        self.begun = begun
        self.noted = begun.body
        self._status = status
        self._next = begun.body

    async def note(self, store: ServiceCatalog, answer: ApiResponse) -> None:
        self._next = _stored_answer(answer) or b""
        begun = self.begun
        if not await store.note_answer(begun.key, begun.fingerprint, self._next, was=self.noted):
            raise busy_error()

    def settle(self) -> None:
        self.noted = self._next

    async def finish(self, store: ServiceCatalog, answer: ApiResponse) -> None:
        begun, kept = self.begun, _stored_answer(answer)
        if kept is None:
            await store.drop_answer(begun.key, begun.begun_at)
        elif not await store.finish_answer(begun.key, begun.fingerprint, self._status, kept, was=self.noted):
            raise busy_error()


async def _release_request(
    asked: ApiRequest, receipt: _Receipt, error: BaseException, request: Request, visit: Visit
) -> bool:
    """Gives up the request after an error, so that it may be tried again, or stores the refusal of SQL statements.
    Returns False if the request is answered already, or another server has it."""
    porter, begun = visit.site.porter, receipt.begun
    is_sql = isinstance(asked, requests.RunSql) and not only_reads(asked.text)
    if is_sql and isinstance(error, HoraeError) and status_of(error) < 500:
        instance = request.scope["raw_path"].decode("ascii", "replace")
        told = problem(ProblemError(error), instance=instance, request_id=request.scope["state"]["request_id"])
        return await porter.finish(begun, told.status, msgspec.json.encode(told), was=receipt.noted)
    return await porter.drop(begun)


def _stored_answer(answer: ApiResponse) -> bytes | None:
    """Returns the answer as the catalog may store it, without a token's secret. None if it is not stored: statements
    that only read can be repeated."""
    if isinstance(answer, people_responses.NewToken):
        return _encoded(msgspec.structs.replace(answer, secret=""))
    if isinstance(answer, catalog_responses.SqlAnswer):
        if all(each.statement in READING_VERBS for each in answer.results):
            return None
        body = _encoded(answer)
        return body if len(body) <= _MOST_KEPT else _encoded(_without_rows(answer))
    return _encoded(answer)


def _without_rows(answer: catalog_responses.SqlAnswer) -> catalog_responses.SqlAnswer:
    """Returns the answer with its results' messages but without their rows, for an answer too large to store."""
    shorter = [
        msgspec.structs.replace(each, columns=None, rows=None, cut=True, message=f"{each.message}{_NO_ROWS}")
        if each.rows
        else each
        for each in answer.results
    ]
    return catalog_responses.SqlAnswer(results=shorter)


def _replayed(begun: KeyedRequest) -> Response:
    assert begun.status is not None
    media = JSON if begun.status < 400 else "application/problem+json"
    return Response(begun.body, begun.status, {REPLAYED: "true"}, media)


# ---- responses -------------------------------------------------------------------------------------------------------


def _response(operation: Operation, answer: ApiResponse, request: Request) -> Response:
    headers: dict[str, str] = {}
    if isinstance(answer, job_responses.WholeJob | job_responses.Defined):
        headers["etag"] = f'"{answer.version}"'
    following = _following(answer, request)
    if following is not None:
        headers["link"] = f'<{following}>; rel="next"'
    if operation.name == "put_job" and isinstance(answer, job_responses.Defined) and answer.change == "created":
        return Response(_encoded(answer), 201, headers, JSON)
    return Response(_encoded(answer), operation.status, headers, JSON)


def _encoded(answer: Any) -> bytes:
    return _encoder.encode(answer)


def _following(answer: ApiResponse, request: Request) -> str | None:
    for field, name in _NEXT.items():
        value = getattr(answer, field, None)
        if value is not None:
            given = {**query(request.scope["query_string"]), name: str(value)}
            return f"{request.scope['raw_path'].decode('ascii')}?{urlencode(given)}"
    return None


def api_path(operation: Operation) -> str:
    return PREFIX + operation.path
