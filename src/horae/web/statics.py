"""The package's static files, read once at the start, each with its digest and compressed in advance."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from mimetypes import guess_type
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from horae.web.http.problems import not_found
from horae.web.http.request_reader import query

FOLDER = Path(__file__).parent / "static"
FOR_EVER = "public, max-age=31536000, immutable"
_TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".svg": "image/svg+xml", ".woff2": "font/woff2"}
_SMALL = 1024


@lru_cache
def digest() -> str:
    """Returns one digest for all static files, which their URLs carry. It is shared because a JavaScript module imports
    others with its own digest, and a module under two URLs would run twice."""
    read = sha256()
    for path in sorted(FOLDER.glob("*")):
        if path.is_file():
            read.update(path.name.encode() + b"\0" + path.read_bytes())
    return read.hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class StaticFile:
    body: bytes
    compressed: bytes | None
    digest: str
    media_type: str


class StaticFiles:
    """The files in one folder by name. No path can lead to any other file."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._files = {path.name: _read(path) for path in sorted(folder.glob("*")) if path.is_file()}

    async def endpoint(self, request: Request, named: dict[str, str]) -> Response:
        found = self._files.get(named["file"])
        if found is None:
            raise not_found(request.scope["raw_path"].decode("ascii", "replace"))
        tag = f'"{found.digest}"'
        is_exact = query(request.scope["query_string"]).get("v") == digest()
        headers = {"etag": tag, "cache-control": FOR_EVER if is_exact else "no-cache", "vary": "accept-encoding"}
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        body = found.body
        if found.compressed is not None and "gzip" in request.headers.get("accept-encoding", ""):
            body = found.compressed
            headers["content-encoding"] = "gzip"
        return Response(body, 200, headers, found.media_type)


def _read(path: Path) -> StaticFile:
    body = path.read_bytes()
    media_type = _TYPES.get(path.suffix) or guess_type(path.name)[0] or "application/octet-stream"
    is_text = media_type.startswith("text/") or media_type in ("image/svg+xml", "application/json")
    compressed = gzip.compress(body, 9, mtime=0) if is_text and len(body) > _SMALL else None
    return StaticFile(body, compressed, sha256(body).hexdigest(), media_type)
