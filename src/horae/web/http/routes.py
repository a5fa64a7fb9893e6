"""Routing by path segments, each decoded by itself, so that a job's name may contain a slash."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from horae.web.http.problems import method_not_allowed, not_found
from horae.web.http.request_reader import segments

Endpoint: TypeAlias = Callable[[Request, dict[str, str]], Awaitable[Response]]
"""Answers a request. The second argument has the path's parameters."""


@dataclass(frozen=True, slots=True)
class Route:
    """A path with its endpoints by method. `pattern` has None for each parameter, `names` the parameters' names."""

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
        """Returns the parameters in the segments `parts`; None if they do not match or a parameter is empty. `parts`
        must be as many as the pattern has."""
        if any(wanted is not None and wanted != part for wanted, part in zip(self.pattern, parts, strict=True)):
            return None
        values = (part for wanted, part in zip(self.pattern, parts, strict=True) if wanted is None)
        found = dict(zip(self.names, values, strict=True))
        return found if all(found.values()) else None


class Router:
    """The routing table of a site, by the number of segments."""

    def __init__(self) -> None:
        self._places: defaultdict[int, list[Route]] = defaultdict(list)

    def add(self, path: str, name: str, endpoint: Endpoint, *methods: str) -> None:
        """Adds an endpoint for these methods of `path`, GET by default. GET includes HEAD."""
        wanted = methods or ("GET",)
        made = Route(name, path, dict.fromkeys(wanted, endpoint))
        if "GET" in made.endpoints:
            made.endpoints["HEAD"] = endpoint
        places = self._places[len(made.pattern)]
        # Fixed segments go before parameters: /secrets/rotate before /secrets/{name}.
        places.append(made)
        places.sort(key=lambda place: sum(part is None for part in place.pattern))

    def places(self) -> list[Route]:
        return [place for places in self._places.values() for place in places]

    def find(self, method: str, raw_path: bytes) -> tuple[Route, Endpoint, dict[str, str]]:
        """Returns the route, the endpoint and the path's parameters. Raises Refused for an unknown path, or a method
        that the path does not have."""
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
            return Route("options", "/", {}), _options(listed), {}
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
