"""The head of the audit trail in a real file and at a real server: what is kept there, and what fails."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.cli.inside import inside
from tests.engine.world import until

from horae import Horae
from horae.engine import audit_publisher
from horae.engine.audit_publisher import HeadPublisher, post_head
from horae.engine.limits import checked_system, parse_tuning
from horae.errors import InvalidInput, InvalidPolicy
from horae.events import HeadUnpublished, TrailSealed
from horae.security.audit.head_file import SeenHead, append_heads, read_heads

PATIENCE = 60.0
FIRST, SECOND = SeenHead("2026-01-01T00:00:00Z", 1, "a1" * 32), SeenHead("2026-01-01T00:00:10Z", 2, "b2" * 32)
SECRET = "t0k3n-42"  # noqa: S105 - a part of an address that must not be told


class Receiver:
    """A server on a loopback port that keeps what it is sent, and answers with `status`."""

    def __init__(self) -> None:
        self.got: list[tuple[str, object]] = []
        self.status = 204
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                assert self.headers["content-type"] == "application/json"
                receiver.got.append((self.path, json.loads(body)))
                self.send_response(receiver.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


def published(file: Path | None, webhook: str | None, *heads: SeenHead, deadline: float = PATIENCE) -> list[str]:
    """Publishes them one after the other; what failed, in words."""
    failed: list[HeadUnpublished] = []

    async def work() -> None:
        publisher = HeadPublisher(None if file is None else str(file), webhook, failed.append, deadline)
        for head in heads:
            await publisher.publish([head])

    asyncio.run(work())
    return [f"{each.where}: {each.error}" for each in failed]


def test_each_head_is_a_line_of_a_file_that_its_owner_alone_may_read(tmp_path: Path) -> None:
    file = tmp_path / "heads"
    assert published(file, None, FIRST, FIRST, SECOND) == []
    assert file.read_text() == "".join(f"{each.time} {each.seal} {each.digest}\n" for each in (FIRST, SECOND))
    assert file.stat().st_mode & 0o777 == 0o600
    assert read_heads(str(file)) == [FIRST.digest, SECOND.digest]


def test_heads_that_the_file_could_not_take_are_written_with_the_next_one(tmp_path: Path) -> None:
    file = tmp_path / "mounted" / "heads"
    failed: list[HeadUnpublished] = []

    async def work() -> None:
        publisher = HeadPublisher(str(file), None, failed.append, PATIENCE)
        going = asyncio.ensure_future(publisher.run())
        publisher.offer(FIRST)
        await until(lambda: bool(failed))
        file.parent.mkdir()
        publisher.offer(SECOND)
        await until(file.exists)
        await until(lambda: len(file.read_text().splitlines()) == 2 or len(failed) > 1)
        going.cancel()

    asyncio.run(work())
    assert len(failed) == 1
    assert read_heads(str(file)) == [FIRST.digest, SECOND.digest]


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_neither_written_nor_read(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "heads"
    append_heads(str(file), [FIRST])
    file.chmod(mode)
    (failed,) = published(file, None, SECOND)
    assert f"can be written by other users (mode {mode:04o})" in failed
    assert "b2" not in file.read_text()
    with pytest.raises(InvalidInput, match="can be written by other users"):
        read_heads(str(file))


def test_a_folder_in_which_others_may_put_another_file_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    append_heads(str(folder / "heads"), [FIRST])
    folder.chmod(0o777)
    (failed,) = published(folder / "heads", None, SECOND)
    assert "where heads lies, can be written by other users" in failed
    with pytest.raises(InvalidInput, match="where heads lies"):
        read_heads(str(folder / "heads"))


def test_a_link_and_what_is_no_file_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").touch(0o600)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    assert len(published(tmp_path / "link", None, FIRST)) == 1
    assert (tmp_path / "elsewhere").read_text() == ""
    assert len(published(tmp_path, None, FIRST)) == 1
    assert "No such file" in published(tmp_path / "gone" / "heads", None, FIRST)[0]


def test_a_line_that_was_cut_off_or_changed_is_named(tmp_path: Path) -> None:
    file = tmp_path / "heads"
    file.touch(0o600)
    file.write_text(f"{FIRST.time} {FIRST.seal} {FIRST.digest[:20]}")
    append_heads(str(file), [SECOND])
    assert file.read_text().splitlines()[1].endswith(SECOND.digest)
    with pytest.raises(InvalidInput, match="line 1: is no head"):
        read_heads(str(file))
    file.write_text("")
    with pytest.raises(InvalidInput, match="has no heads"):
        read_heads(str(file))


def test_the_webhook_gets_seal_digest_and_time(receiver: Receiver) -> None:
    assert published(None, f"{receiver.address}/heads/{SECRET}?key=1", FIRST, SECOND) == []
    assert receiver.got == [
        (f"/heads/{SECRET}?key=1", {"seal": each.seal, "digest": each.digest, "time": each.time})
        for each in (FIRST, SECOND)
    ]


def test_a_webhook_that_refuses_is_told_without_its_path_and_tried_again_with_the_next_head(receiver: Receiver) -> None:
    failed = []
    for receiver.status in (500, 302, 204):
        failed += published(None, f"{receiver.address}/{SECRET}", FIRST)
    assert failed == [f"{receiver.address}: the answer was 500", f"{receiver.address}: the answer was 302"]
    assert len(receiver.got) == 3


def test_a_webhook_that_is_away_fails(receiver: Receiver) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        (failed,) = published(None, f"http://127.0.0.1:{taken.getsockname()[1]}/{SECRET}", FIRST)
    assert SECRET not in failed


def test_a_webhook_that_never_answers_is_given_up_and_keeps_the_file_from_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "heads"
    # The deadline is the file's too, which may be slow: only the webhook's own is brief.
    monkeypatch.setattr(audit_publisher, "post_head", lambda url, head, timeout: post_head(url, head, 0.1))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        failed = published(file, f"{address}/{SECRET}", FIRST, SECOND)
    assert len(failed) == 2
    assert all(each.startswith(f"{address}: ") for each in failed)
    assert read_heads(str(file)) == [FIRST.digest, SECOND.digest]


def test_a_try_that_never_ends_is_given_up_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        failed = published(None, f"{address}/{SECRET}", FIRST, SECOND, deadline=0.5)
    assert len(failed) == 2
    assert all(each.startswith(f"{address}: ") for each in failed)


@pytest.mark.parametrize(
    "given",
    [
        {"audit_head_file": "heads"},
        {"audit_head_file": 3},
        {"audit_head_webhook": f"ftp://{SECRET}"},
        {"audit_head_webhook": f"https://me:{SECRET}@example.com/"},
        {"audit_head_webhook": f"https://example.com/ {SECRET}"},
        {"audit_head_webhook": f"https:///{SECRET}"},
        {"audit_head_webhook": f"https://example.com:99999/{SECRET}"},
    ],
)
def test_a_setting_that_cannot_be_is_refused_without_its_secret(given: dict[str, object]) -> None:
    with pytest.raises(InvalidPolicy, match="audit_head") as refused:
        parse_tuning(given)
    assert SECRET not in str(refused.value)
    assert SECRET not in repr(parse_tuning({"audit_head_webhook": f"https://example.com/{SECRET}"}))


def test_no_statement_makes_nodes_write_a_file_or_send_anything() -> None:
    for name in ("audit_head_file", "audit_head_webhook"):
        with pytest.raises(InvalidPolicy, match="Unknown setting"):
            checked_system(f"scheduler.{name}", "/etc/cron.d/x")


def test_a_node_publishes_every_head_and_the_verification_asks_for_them(
    tmp_path: Path, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    file, url = tmp_path / "heads", f"sqlite:///{tmp_path}/horae.db"
    receiver.status = 500
    app = Horae(
        url,
        settings={
            "sweep_every": 0.05,
            "audit_head_file": str(file),
            "audit_head_webhook": f"{receiver.address}/{SECRET}",
        },
    )
    told: list[TrailSealed] = []
    failed = threading.Event()
    app.events.listen(told.append, TrailSealed)
    app.events.listen(lambda _: failed.set(), HeadUnpublished)

    async def until(there: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not await there():
                await asyncio.sleep(0.02)

    async def live() -> None:
        async with app:
            store = await app.home.store()
            for turn in range(3):
                await store.note("LOGIN", by="ann", outcome="OK", details={"turn": turn})
                sealed = len(told)

                async def published_next(sealed: int = sealed) -> bool:
                    return len(told) > sealed and file.exists() and told[-1].head in file.read_text()

                await until(published_next)

            async def refused() -> bool:
                return failed.is_set()

            await until(refused)

    with caplog.at_level(logging.WARNING, "horae"):
        asyncio.run(live())
    found = read_heads(str(file))
    assert len(found) >= 3
    assert found == [each.head for each in told][: len(found)]
    assert {path for path, _ in receiver.got} == {f"/{SECRET}"}
    assert app.metrics.snapshot()["scheduler_audit_head_failures_total"][0]["value"] >= 1
    assert f"not published to {receiver.address}: the answer was 500" in caplog.text
    assert SECRET not in caplog.text

    asked = ("audit", "verify", "--store", url, "--head-file", str(file))
    assert inside(*asked).code == 0
    append_heads(str(file), [SECOND])
    done = inside(*asked)
    assert (done.code, f"no seal has the digest {SECOND.digest}" in done.out) == (1, True)
    # The head of a trail that was written anew is the newest line: the ones before it tell.
    app_again = inside("audit", "verify", "--store", url, "--head", found[-1], "--head-file", str(file))
    assert app_again.code == 1
    file.chmod(0o666)
    assert inside(*asked).code == 2
