"""Where a request goes: by the segments of its path, each decoded by itself, so that a job's name may have a slash."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from horae.web.problems import method_not_allowed, not_found
from horae.web.reading import segments

Endpoint: TypeAlias = Callable[[Request, dict[str, str]], Awaitable[Response]]
"""What answers a request, given what its path names."""


@dataclass(frozen=True, slots=True)
class Place:
    """One path and what answers there, by method. `pattern` has None for what the path names."""

    name: str
    path: str
    endpoints: dict[str, Endpoint]
    pattern: tuple[str | None, ...] = field(init=False)
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        parts = [part for part in self.path.split("/") if part]
        object.__setattr__(self, "pattern", tuple(None if part.startswith("{") else part for part in parts))
        object.__setattr__(self, "names", tuple(part.strip("{}") for part in parts if part.startswith("{")))

    def named(self, parts: tuple[str, ...]) -> dict[str, str] | None:
        """What `parts` stand for, if they are a path of this place."""
        if any(wanted is not None and wanted != part for wanted, part in zip(self.pattern, parts, strict=True)):
            return None
        values = (part for wanted, part in zip(self.pattern, parts, strict=True) if wanted is None)
        found = dict(zip(self.names, values, strict=True))
        return found if all(found.values()) else None


class Table:
    """All places of a site, in one table by the number of segments."""

    def __init__(self) -> None:
        self._places: defaultdict[int, list[Place]] = defaultdict(list)

    def add(self, path: str, name: str, endpoint: Endpoint, *methods: str) -> None:
        """Has `endpoint` answer these methods of `path` (GET, and HEAD with it, where none is given)."""
        wanted = methods or ("GET",)
        made = Place(name, path, dict.fromkeys(wanted, endpoint))
        if "GET" in made.endpoints:
            made.endpoints["HEAD"] = endpoint
        places = self._places[len(made.pattern)]
        # What says a segment outright goes before what names one: /secrets/rotate before /secrets/{name}.
        places.append(made)
        places.sort(key=lambda place: sum(part is None for part in place.pattern))

    def places(self) -> list[Place]:
        return [place for places in self._places.values() for place in places]

    def find(self, method: str, raw_path: bytes) -> tuple[Place, Endpoint, dict[str, str]]:
        """Raises Refused: nothing there, or nothing by that method."""
        parts = segments(raw_path)
        allowed: set[str] = set()
        for place in self._places.get(len(parts), ()):
            named = place.named(parts)
            if named is None:
                continue
            endpoint = place.endpoints.get(method)
            if endpoint is not None:
                return place, endpoint, named
            allowed.update(place.endpoints)
        if not allowed:
            raise not_found(raw_path.decode("ascii", "replace"))
        if method == "OPTIONS":
            listed = ", ".join(sorted(allowed | {"OPTIONS"}))
            return Place("options", "/", {}), _options(listed), {}
        raise method_not_allowed(method, ", ".join(sorted(allowed | {"OPTIONS"})))

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        place, endpoint, named = self.find(scope["method"], scope["raw_path"])
        scope["route"] = place
        scope["path_params"] = named
        request = Request(scope, receive, send)
        response = await endpoint(request, named)
        await response(scope, receive, send)


def _options(allowed: str) -> Endpoint:
    async def options(request: Request, named: dict[str, str]) -> Response:
        return Response(status_code=204, headers={"allow": allowed})

    return options
