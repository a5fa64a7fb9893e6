"""Operations over HTTP: the request becomes a question, the desk answers it, the answer becomes a response.

A POST that changes something and comes with an Idempotency-Key is answered once: whoever repeats it gets the answer
that was given. What was refused changed nothing and is not kept, so that it may be tried again under the same key; the
statements of `sql` may have been carried out in part, so of these the refusal is kept too, unless all of them read.
The answer is kept in the transaction that does what was asked, so that a server that is killed leaves both or neither.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from horae.control.service import Kept
from horae.control.visiting import Begun, busy_error
from horae.ddl.session import READING_VERBS
from horae.ddl.text import only_reads
from horae.desk import asking, persons, shapes, sights
from horae.desk.asking import Asked
from horae.desk.operations import PREFIX, Operation
from horae.desk.shapes import Shape
from horae.errors import AlreadyExists, HoraeError, InvalidInput, VersionConflict, shown
from horae.web.entering import Entrance
from horae.web.live import Hub
from horae.web.problems import Refused, problem, status_of
from horae.web.reading import asked_by_body, asked_by_query, body_of, query
from horae.web.routing import Endpoint
from horae.web.site import Visit

KEY_HEADER = "idempotency-key"
REPLAYED = "idempotency-replayed"
JSON = "application/json"
_NEXT = {"next_offset": "offset", "next_before": "before"}
"""What of an answer goes on to the next page, and under which name it is asked for."""
_LETS_IN = frozenset({"create_user", "alter_user", "create_token", "sql"})
"""What may give somebody a way in."""

_MOST_KEPT = 256 * 1024
"""Bytes of an answer to statements that is kept for those who ask again; beyond it, without its rows."""
_NO_ROWS = " (answered before: its rows were too many to keep)"

_encoder = msgspec.json.Encoder(decimal_format="string", uuid_format="canonical")


def operation_endpoint(operation: Operation, entrance: Entrance, hub: Hub) -> Endpoint:
    """What answers the requests of one operation."""

    async def endpoint(request: Request, named: dict[str, str]) -> Response:
        visit = await entrance.visit(request)
        if not operation.has_body:
            asked = asked_by_query(operation, named, request.scope["query_string"])
            is_shared = operation.name == "overview"
            answer = await (hub.overview(visit) if is_shared else visit.desk.answer(operation, asked))
            return _response(operation, answer, request)
        await visit.desk.admit(operation)
        body = await body_of(request)
        asked = asked_by_body(operation, named, request.scope["query_string"], body)
        key = _key(request) if operation.is_once else None
        if key is None:
            return _response(operation, await _answer(operation, visit, asked, request), request)
        return await _once(operation, visit, asked, request, key, body)

    async def watched(request: Request, named: dict[str, str]) -> Response:
        response = await endpoint(request, named)
        if operation.is_change:
            if operation.name in _LETS_IN:
                request.scope["state"]["visit"].site.porter.look_again()
            hub.note(named.get("name") if operation.group == "jobs" else None, named.get("run_id"))
        return response

    return watched


async def _answer(operation: Operation, visit: Visit, asked: Asked, request: Request) -> Shape:
    if not isinstance(asked, asking.PutJob):
        return await visit.desk.answer(operation, asked)
    expected = _expected(request)
    if expected is None:
        return await visit.desk.answer(operation, asked)
    if asked.version not in (None, expected):
        raise InvalidInput("The body's version and the If-Match header disagree", hint="Give one of them.")
    try:
        return await visit.desk.answer(operation, msgspec.structs.replace(asked, version=expected))
    except (AlreadyExists, VersionConflict) as error:
        raise Refused(error, 412) from None


def _expected(request: Request) -> int | None:
    """The version that a job must be at, by the request's headers; 0: there must be none."""
    if request.headers.get("if-none-match", "").strip() == "*":
        return 0
    given = request.headers.get("if-match", "").strip()
    if given in ("", "*"):
        return None
    digits = given.removeprefix("W/").strip('"')
    if not digits.isascii() or not digits.isdecimal() or len(digits) > 15:
        raise InvalidInput(f"Invalid If-Match {shown(given)}", hint='Send the ETag of the job as it was read: "3".')
    return int(digits)


# ---- once, however often it is asked ---------------------------------------------------------------------------------


def _key(request: Request) -> str | None:
    given = request.headers.get(KEY_HEADER)
    # As the standard writes it, a key is a string in quotes; most people leave them out.
    return given.strip().strip('"') if given is not None else None


async def _once(operation: Operation, visit: Visit, asked: Asked, request: Request, key: str, body: bytes) -> Response:
    porter = visit.site.porter
    path = request.scope["raw_path"].decode("ascii", "replace")
    begun = await porter.begin(visit.who, operation.method, path, key, body)
    is_trigger = isinstance(asked, asking.TriggerJob)
    if isinstance(asked, asking.TriggerJob) and asked.key is None:
        # By its own key a trigger need not wait for another who is at it.
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
        if await _let_go(asked, receipt, error, request, visit) or not isinstance(error, HoraeError):
            raise
    else:
        await porter.forget()
        return _response(operation, answer, request)
    # It was answered, by another who took this server for gone or by a commit whose answer was lost.
    begun = await porter.begin(visit.who, operation.method, path, key, body)
    if begun.status is not None:
        return _replayed(begun)
    if not begun.busy:
        await porter.drop(begun)
    raise _busy()


def _busy() -> Refused:
    return Refused(busy_error(), 409, {"retry-after": "1"})


class _Receipt:
    """How the answer to one request is kept: a `Receipt` of the desk."""

    def __init__(self, begun: Begun, status: int) -> None:
        self.begun = begun
        self.noted = begun.body
        self._status = status
        self._next = begun.body

    async def note(self, store: Kept, answer: Shape) -> None:
        self._next = _to_keep(answer) or b""
        begun = self.begun
        if not await store.note_answer(begun.key, begun.fingerprint, self._next, was=self.noted):
            raise busy_error()

    def settle(self) -> None:
        self.noted = self._next

    async def finish(self, store: Kept, answer: Shape) -> None:
        begun, kept = self.begun, _to_keep(answer)
        if kept is None:
            await store.drop_answer(begun.key, begun.begun_at)
        elif not await store.finish_answer(begun.key, begun.fingerprint, self._status, kept, was=self.noted):
            raise busy_error()


async def _let_go(asked: Asked, receipt: _Receipt, error: BaseException, request: Request, visit: Visit) -> bool:
    """Lets others answer what this server could not. False where it is answered, or another is at it."""
    porter, begun = visit.site.porter, receipt.begun
    is_sql = isinstance(asked, asking.RunSql) and not only_reads(asked.text)
    if is_sql and isinstance(error, HoraeError) and status_of(error) < 500:
        instance = request.scope["raw_path"].decode("ascii", "replace")
        told = problem(Refused(error), instance=instance, request_id=request.scope["state"]["request_id"])
        return await porter.finish(begun, told.status, msgspec.json.encode(told), was=receipt.noted)
    return await porter.drop(begun)


def _to_keep(answer: Shape) -> bytes | None:
    """The answer as the catalog may keep it, None where it is not to: what only read may be read again, and is not what
    it was a day later. A token's secret is told once, and written down nowhere."""
    if isinstance(answer, persons.NewToken):
        return _encoded(msgspec.structs.replace(answer, secret=""))
    if isinstance(answer, sights.SqlAnswer):
        if all(each.statement in READING_VERBS for each in answer.results):
            return None
        body = _encoded(answer)
        return body if len(body) <= _MOST_KEPT else _encoded(_without_rows(answer))
    return _encoded(answer)


def _without_rows(answer: sights.SqlAnswer) -> sights.SqlAnswer:
    """Whoever repeats the request must not do it twice, and is told what it came to."""
    shorter = [
        msgspec.structs.replace(each, columns=None, rows=None, cut=True, message=f"{each.message}{_NO_ROWS}")
        if each.rows
        else each
        for each in answer.results
    ]
    return sights.SqlAnswer(results=shorter)


def _replayed(begun: Begun) -> Response:
    assert begun.status is not None
    media = JSON if begun.status < 400 else "application/problem+json"
    return Response(begun.body, begun.status, {REPLAYED: "true"}, media)


# ---- responses -------------------------------------------------------------------------------------------------------


def _response(operation: Operation, answer: Shape, request: Request) -> Response:
    headers: dict[str, str] = {}
    if isinstance(answer, shapes.WholeJob | shapes.Defined):
        headers["etag"] = f'"{answer.version}"'
    following = _following(answer, request)
    if following is not None:
        headers["link"] = f'<{following}>; rel="next"'
    if operation.name == "put_job" and isinstance(answer, shapes.Defined) and answer.change == "created":
        return Response(_encoded(answer), 201, headers, JSON)
    return Response(_encoded(answer), operation.status, headers, JSON)


def _encoded(answer: Any) -> bytes:
    return _encoder.encode(answer)


def _following(answer: Shape, request: Request) -> str | None:
    for field, name in _NEXT.items():
        value = getattr(answer, field, None)
        if value is not None:
            given = {**query(request.scope["query_string"]), name: str(value)}
            return f"{request.scope['raw_path'].decode('ascii')}?{urlencode(given)}"
    return None


def api_path(operation: Operation) -> str:
    return PREFIX + operation.path
