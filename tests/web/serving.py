"""A real server for tests: an app with some jobs, its engine and its web, in a loop in a thread, on a loopback port."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any, TypeVar

import httpx

from horae import Cron, Every, Horae, Retry, Run, Window
from horae.api.api import Api, ApiContext, KnownSetting
from horae.app.process.calculator import ProcessCalculator
from horae.app.process.system_settings import system_settings
from horae.core.access import Principal
from horae.engine.limits import checked_system
from horae.security.passwords import HashCost, hashed
from horae.security.refusal_flood import RefusalLimiter
from horae.services.calculator import Calculator, ThreadCalculator
from horae.services.service import Service, ServiceCatalog
from horae.services.sessions import SessionService
from horae.version import __version__
from horae.web.connections.server import RunningServer, serve
from horae.web.site import ServerLimits, Site

Answer = TypeVar("Answer")
PASSWORD = "correct horse"  # noqa: S105 - of users who live for one test
CHEAP = HashCost(passes=1, memory=8, lanes=1)
PATIENCE = 60.0
"""Seconds after which something will never happen."""
AMPLE = ServerLimits(rate=5_000, burst=20_000, logins=1_000, failures=10_000, health=PATIENCE)


class Clock:
    """Seconds that stand until a test moves them."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def some_jobs(app: Horae) -> None:
    """Jobs of the kinds that the API tells apart; none comes due during a test, but at two in Brussels, and on Mondays
    at half past three, where those that do change nothing."""

    @app.job("nightly", Cron("0 2 * * *", tz="Europe/Brussels"), tags=["reports"], description="The nightly report")
    def nightly(run: Run) -> dict[str, int]:
        run.log.info("page 1")
        return {"rows": 42}

    @app.job("a/b é?", Every("1d"), window=Window.after("10m"))
    def odd() -> None: ...

    @app.job("failing", Cron("30 3 * * 1"), retry=Retry(1, "1h"))
    def failing() -> None:
        raise ValueError("no luck")

    etl = app.job("etl", Every("12h"), mode="parallel")

    @etl.task
    def extract() -> int:
        return 1

    @etl.task
    def load() -> int:
        return 2


class Served:
    """A server that runs. `url` is its address, `app` what it serves."""

    def __init__(
        self,
        app: Horae,
        site: Site,
        listening: RunningServer,
        loop: asyncio.AbstractEventLoop,
        calculator: ProcessCalculator,
    ) -> None:
        self.app = app
        self.calculator = calculator
        self.site = site
        self.listening = listening
        self.url = listening.address
        self._loop = loop

    def do(self, work: Callable[[], Awaitable[Answer]]) -> Answer:
        """Does something in the server's own loop."""

        async def there() -> Answer:
            return await work()

        return asyncio.run_coroutine_threadsafe(there(), self._loop).result(PATIENCE)

    def keep(self, work: Callable[[ServiceCatalog], Awaitable[Answer]]) -> Answer:
        """Does something with the server's own store."""

        async def there() -> Answer:
            return await work(await self.site.store())

        return self.do(there)

    def client(self, **given: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=PATIENCE, **given)

    def sql(self, text: str) -> Any:
        return self.do(lambda: self.app.sql(text))

    def user(self, name: str, *, password: str = PASSWORD, is_admin: bool = False) -> None:
        """A user whose password was cheap to hash."""
        kept = hashed(password, cost=CHEAP)
        self.keep(lambda store: store.create_user(name, password_hash=kept, is_admin=is_admin))
        self.site.porter.look_again()

    def token(self, user: str) -> str:
        """The secret of a new token, as the desk makes it."""
        from horae.api.requests import CreateToken

        async def made() -> str:
            from horae.core.access import LOCAL

            desk = self.site.desk(await self.site.store(), LOCAL, "local")
            return (await desk.create_token(CreateToken(user=user, label="test"))).secret

        secret = self.do(made)
        self.site.porter.look_again()
        return secret

    def trail(self, event: str) -> list[dict[str, Any]]:
        """Details of the audit rows of an event, the newest first."""
        rows = self.keep(lambda store: store.trail(event=event, limit=1_000))
        return [{"actor": row.actor, "outcome": row.outcome, **row.details} for row in rows]

    def run(self, job: str) -> str:
        """Triggers a job, and waits until the run has ended; its id."""
        with self.client() as client:
            answer = client.post(f"/api/v1/jobs/{job}/trigger")
            assert answer.status_code == 202, answer.text
            run_id: str = answer.json()["run_id"]

            def has_ended() -> bool:
                return not client.get(f"/api/v1/runs/{run_id}").json()["is_active"]

            eventually(has_ended)
        return run_id


def site_of(app: Horae, **given: Any) -> Site:
    """What the web is given, from an app, as `horae serve` gives it."""
    calculator: Calculator = given.pop("calculator", None) or ThreadCalculator()

    async def store() -> ServiceCatalog:
        return await app.home.store()

    def desk(kept: ServiceCatalog, who: Principal, sign_in: str) -> Api:
        service = Service(kept, who, keyring=app.toolbox.keyring, known=checked_system, sign_in=sign_in)
        known = tuple(KnownSetting(*each) for each in system_settings())
        return Api(service, ApiContext(__version__, sign_in, known, calculator=calculator))

    def node() -> dict[str, Any]:
        return {"state": "running" if app.engine is not None else "none", "name": app.node, "slots": app.slots}

    given.setdefault("porter", SessionService(store))
    if "limits" not in given:
        given["limits"] = AMPLE
        # Whoever is refused leaves a row in the trail, however many other tests were refused before.
        given["porter"]._flood = RefusalLimiter(AMPLE.failures, 1.0)
    return Site(store=store, desk=desk, events=app.events, scrape=app.scrape, node=node, **given)


@contextmanager
def serving(
    url: str,
    *,
    define: Callable[[Horae], None] = some_jobs,
    host: str = "127.0.0.1",
    settings: dict[str, Any] | None = None,
    is_running: bool = True,
    calculating: dict[str, Any] | None = None,
    **given: Any,
) -> Iterator[Served]:
    """A server over the catalog at `url`, as long as the block lasts. `given` goes to `Site`, and `calculating` to what
    calculates for users."""
    app = Horae(url, settings=settings)
    define(app)
    made: list[Served | BaseException] = []
    is_up = threading.Event()
    ends: list[Callable[[], object]] = []

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        ends.append(lambda: loop.call_soon_threadsafe(stop.set))
        calculator = ProcessCalculator(**(calculating or {}))
        try:
            if is_running:
                await app.open()
            else:
                app.home.settle_here()
            site = site_of(app, calculator=calculator, **given)
            listening = await serve(site, host, 0)
            made.append(Served(app, site, listening, loop, calculator))
            is_up.set()
            await stop.wait()
            await listening.stop()
        except BaseException as error:
            made.append(error)
            is_up.set()
            raise
        finally:
            await calculator.close()
            await (app.shut() if is_running else app.close())

    def run() -> None:
        asyncio.run(main())

    thread = threading.Thread(target=run, name="served")
    thread.start()
    assert is_up.wait(PATIENCE), "the server did not come up"
    try:
        if isinstance(made[0], BaseException):
            raise made[0]
        yield made[0]
    finally:
        for end in ends:
            end()
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the server did not stop"


def eventually(holds: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Waits until something holds, and answers it."""
    deadline = monotonic() + seconds
    while not (found := holds()):
        assert monotonic() < deadline, f"it did not come true within {seconds} s"
        sleep(0.02)
    return found


def defaults_of(made: type) -> dict[str, Any]:
    """What a class takes where nobody says otherwise, to be changed for a test."""
    found: dict[str, Any] = made.__init__.__kwdefaults__  # type: ignore[misc]  # of the class itself
    return found


def settings_with_key(folder: Path) -> dict[str, Any]:
    """Settings of an app that has a master key, so that it can keep secrets."""
    key = folder / "master.key"
    if not key.exists():
        from base64 import b64encode

        key.write_text(b64encode(bytes(range(32))).decode())
        key.chmod(0o600)
    configuration = folder / "horae.toml"
    configuration.write_text(f'[secrets]\nkey_file = "{key}"\n')
    return {"configuration": str(configuration)}
