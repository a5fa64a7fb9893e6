"""A server process: the web beside the engine in one event loop, and notifications to systemd."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from horae.app.process.calculator import ProcessCalculator
from horae.app.process.checkup import surroundings
from horae.app.process.service import Companion
from horae.app.process.store_reach import StoreProbe
from horae.app.process.system_settings import system_settings
from horae.cli.systemd import Notifier, bound_host, handed_sockets
from horae.config import ServerSettings
from horae.errors import HoraeError, InvalidConfiguration
from horae.services.doctor.doctor import DoctorReport, examine
from horae.version import __version__

if TYPE_CHECKING:
    from horae.api.api import Api, ApiContext
    from horae.app.horae import Horae
    from horae.services.service import ServiceCatalog
    from horae.web.connections.server import RunningServer

_log = logging.getLogger("horae")


@dataclass(frozen=True, slots=True)
class StartupFacts:
    """Facts about a process that has started. `address` is None if it does not listen, `node` is None if it runs no
    jobs. `slots` is its concurrency limit. With `is_open`, no sign-in is required."""

    address: str | None
    node: str | None
    slots: int
    jobs: int
    is_open: bool


class ServerCompanion(Companion):
    """The web server and the notifications to systemd, beside the engine of `app`."""

    reloads = True

    def __init__(
        self,
        app: Horae,
        settings: ServerSettings,
        *,
        reload: Callable[[], Awaitable[str]] | None = None,
        told: Callable[[StartupFacts], None] = lambda began: None,
    ) -> None:
        """`reload` reads the targets again and returns what changed as text. `told` is called once everything runs."""
        self.app = app
        self.settings = settings
        self.has_begun = False
        self._reload = reload
        self._told = told
        self._notifier = Notifier()
        self._reach = StoreProbe(app)
        self._calculator = ProcessCalculator()
        self._listening: RunningServer | None = None
        self._state = "starting"
        self._known: tuple[str, int] = "", app.slots
        self._tasks: list[asyncio.Task[None]] = []

    # ---- lifecycle ---------------------------------------------------------------------------------------------------

    def waiting(self, seconds: float) -> None:
        self._notifier.waiting(seconds)

    async def prepare(self) -> None:
        """Opens the store and the address before the engine starts. Raises StoreError, Conflict for an address in use,
        InvalidConfiguration for an address that must not be served or if the web's packages are not installed."""
        store = await self.app.home.store()
        if self.settings.http.is_off:
            return
        if find_spec("uvicorn") is None or find_spec("starlette") is None or find_spec("jinja2") is None:
            raise InvalidConfiguration(
                "Cannot serve HTTP: what it takes is not installed",
                hint='Run: pip install "horae[server]"; or run without it: horae worker.',
            )
        # Imported here: a worker does not need the web.
        from horae.web.connections.server import check_binding, is_loopback, serve

        address = self.settings.http
        handed = handed_sockets()
        hosts = [bound_host(each) for each in handed] or [str(address) if address.path is not None else address.host]
        for host in hosts:
            check_binding(host, is_closed=await store.is_closed())
            if not is_loopback(host) and not self._is_secure:
                _log.warning(
                    "serves %s without TLS: passwords, tokens and sessions can be read by whoever sits between. Set "
                    "tls_certificate and tls_key of [server], or secure = true behind a proxy that speaks https.",
                    host,
                )
        self._listening = await serve(
            self._site(is_loopback=all(map(is_loopback, hosts))),
            hosts[0],
            address.port,
            certificate=self.settings.tls_certificate,
            key=self.settings.tls_key,
            handed=handed,
            share_port=self.settings.share_port,
        )

    async def begin(self, engine: Any) -> None:
        self._known = ("", 0) if engine is None else (str(engine.node), engine.ledger.slots)
        self._state = "running"
        store = await self.app.home.store()
        totals = await store.totals()
        is_open = not await store.is_closed()
        address = None if self._listening is None else self._listening.address
        began = StartupFacts(
            address,
            (self.app.node or self._known[0]) if engine is not None else None,
            self._known[1],
            totals.jobs_enabled + totals.jobs_paused + totals.jobs_disabled,
            is_open,
        )
        self.has_begun = True
        self._notifier.ready(self._status(began))
        if self._notifier.watchdog is not None:
            self._tasks.append(asyncio.create_task(self._signs_of_life(self._notifier.watchdog)))
        self._told(began)

    def _status(self, began: StartupFacts) -> str:
        serves = "" if began.address is None else f", serves {began.address}"
        if began.node is None:
            return f"Serves {began.address}; {began.jobs} jobs run elsewhere"
        return f"Node {began.node} runs {began.jobs} jobs in {began.slots} slots{serves}"

    async def failed(self) -> None:
        if self._listening is None:
            await super().failed()
        else:
            await self._listening.failed()
            raise RuntimeError("The web server ended by itself")

    async def reload(self) -> None:
        self._notifier.reloading()
        try:
            said = "there are no targets to reload" if self._reload is None else await self._reload()
            _log.info("reloaded: %s", said)
        except HoraeError as error:
            _log.error("not reloaded, nothing changes: %s%s", error, f" {error.hint}" if error.hint else "")
            said = f"Not reloaded: {error.message}"
        except Exception:  # noqa: BLE001 - any error in a target must not stop running jobs
            _log.exception("not reloaded, nothing changes")
            said = "Not reloaded"
        self._notifier.ready(said)

    def stopping(self, failed: bool) -> None:  # noqa: FBT001 - its only argument
        self._state = "failed" if failed else "stopping"
        self._notifier.stopping()

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._listening is not None:
            await self._listening.stop()
        await self._calculator.close()
        self._reach.close()

    async def _signs_of_life(self, seconds: float) -> None:
        """Notifies the watchdog every `seconds` while the event loop runs and the engine has not failed."""
        while self._state != "failed":
            self._notifier.alive()
            await asyncio.sleep(seconds)

    # ---- what the web gets -------------------------------------------------------------------------------------------

    @property
    def _is_secure(self) -> bool:
        """Whether all clients use https, to this server or to a proxy before it."""
        return self.settings.secure or self.settings.tls_certificate is not None

    def _site(self, *, is_loopback: bool) -> Any:
        from horae.services.sessions import SessionService
        from horae.web.site import ServerLimits, Site

        settings = self.settings
        return Site(
            store=self._reach.store,
            desk=self._desk,
            porter=SessionService(self._reach.store, session=timedelta(seconds=settings.session_length)),
            events=self.app.events,
            scrape=self.app.scrape,
            node=self._node,
            is_loopback=is_loopback,
            hosts=frozenset(each.lower() for each in settings.hosts),
            is_secure=self._is_secure,
            proxies=frozenset(settings.proxies),
            limits=ServerLimits(
                body=settings.body_limit,
                rate=settings.rate,
                burst=settings.burst,
                viewers=settings.viewers,
                logins=settings.logins,
                connections_per_address=settings.connections_per_address,
                undecided=settings.undecided,
            ),
        )

    def _desk(self, store: ServiceCatalog, who: Any, sign_in: str) -> Api:
        from horae.api.api import Api

        return Api(self.app.service(store, who, sign_in), self._about(sign_in))

    @cache  # noqa: B019 - one for each way to sign in, and it lives as long as the process
    def _about(self, sign_in: str) -> ApiContext:
        from horae.api.api import ApiContext, KnownSetting

        known = tuple(KnownSetting(*each) for each in system_settings())
        return ApiContext(__version__, sign_in, known, partial(_examined, self.app), self._calculator)

    def _node(self) -> dict[str, Any]:
        engine = self.app.engine
        if self.settings.http_only:
            return {"state": self._state, "process": os.getpid()}
        node, slots = self._known
        return {
            "node": node if engine is None else str(engine.node),
            "name": self.app.node,
            "running": 0 if engine is None else engine.ledger.working,
            "slots": slots if engine is None else engine.ledger.slots,
            "state": self._state,
            "process": os.getpid(),
        }


async def _examined(app: Horae, store: Any) -> DoctorReport:
    around = None
    with suppress(HoraeError):
        around = await surroundings(store, app.configuration)
    return await examine(store, around)
