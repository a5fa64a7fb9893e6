"""The command that gives the master key: what needs the key waits for it, and nothing else does."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.engine.world import GUARD, until

from horae import Horae
from horae.app.process.node_tools import KEY_RETRY_SECONDS, Toolbox
from horae.config import parse_configuration
from horae.errors import SecretError
from horae.security.keys import KEY_BYTES, Keyring

CONFIGURATION = parse_configuration('[secrets]\nkey_command = ["give", "the-key"]\ndebuggable = true\n', environment={})
KEYS = Keyring(b"k" * KEY_BYTES)


class Command:
    """What stands for the command: it hangs until it may answer, with the key or a refusal."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, refuses: bool = False) -> None:
        self.asked = threading.Event()
        self.may_answer = threading.Event()
        self.answered: list[bool] = []
        """For each time it was asked: whether it was let answer."""
        self.refuses = refuses
        monkeypatch.setattr("horae.app.process.node_tools.load_keyring", self.run)

    def run(self, **sources: Any) -> Keyring:
        self.asked.set()
        self.answered.append(self.may_answer.wait(GUARD))
        if self.refuses:
            raise SecretError("the vault is closed", hint="Open it.")
        return KEYS


def test_a_command_that_hangs_keeps_its_node_from_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = Command(monkeypatch)
    settings = {"sweep_every": "10ms", "tee": False, "configuration": CONFIGURATION}
    app = Horae(f"sqlite:///{tmp_path / 'horae.db'}", settings=settings)

    async def main() -> None:
        async with app:
            await until(command.asked.is_set)
            # That this is reached is the point: the loop goes on.
            command.may_answer.set()
            engine = app.engine
            assert engine is not None
            await until(lambda: engine.maintenance._digested is not None)

    asyncio.run(main())
    assert command.answered == [True]


def test_all_who_need_the_key_at_once_ask_for_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    command = Command(monkeypatch)
    toolbox = Toolbox(CONFIGURATION)

    async def main() -> None:
        asking = [asyncio.ensure_future(toolbox.keyring()) for _ in range(3)]
        await until(command.asked.is_set)
        asking[0].cancel()
        command.may_answer.set()
        assert await asyncio.gather(*asking[1:]) == [KEYS, KEYS]

    asyncio.run(main())
    assert asyncio.run(toolbox.keyring()) is KEYS
    assert command.answered == [True]


def test_a_command_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    command = Command(monkeypatch)
    monkeypatch.setattr("horae.app.process.node_tools.KEY_READ_SECONDS", 0.01)

    async def main() -> None:
        toolbox = Toolbox(CONFIGURATION)
        with pytest.raises(SecretError, match=r"could not be read within 0.01 s"):
            await toolbox.keyring()
        command.may_answer.set()

    asyncio.run(main())


def test_a_command_that_gave_no_key_is_asked_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    command = Command(monkeypatch, refuses=True)
    command.may_answer.set()
    now = [1000.0]
    toolbox = Toolbox(CONFIGURATION, clock=lambda: now[0])

    async def main() -> None:
        for passed, asked in ((0.0, 1), (0.0, 1), (KEY_RETRY_SECONDS - 1, 1), (1.0, 2), (0.0, 2)):
            now[0] += passed
            with pytest.raises(SecretError, match="the vault is closed") as refused:
                await toolbox.keyring()
            assert refused.value.hint == "Open it."
            assert len(command.answered) == asked
        command.refuses = False
        now[0] += KEY_RETRY_SECONDS
        assert await toolbox.keyring() is KEYS

    asyncio.run(main())
