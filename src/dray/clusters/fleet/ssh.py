"""SSH to the machines of a fleet: connections, the agent on each of them, tunnels. The only place with asyncssh.

Host keys are checked against known_hosts, always. Nothing is put together for a shell but the path of a Python, quoted.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from dray.clusters.fleet.checks import Problem
from dray.clusters.fleet.file import FleetFile
from dray.clusters.fleet.host.sending import MARK, boot, modules
from dray.errors import ClusterError, ConfigError

_CONNECT_S = 10.0
_ANSWER_S = 120.0
_ALIVE_S = 5.0
_TIMEOUTS = {"keepalive_interval": _ALIVE_S, "connect_timeout": _CONNECT_S, "login_timeout": _CONNECT_S}
_LONGEST_LINE = 64 << 20
"""Logs of a node, in one answer, are a hundredth of it."""
T = TypeVar("T")


class HostError(Exception):
    """One machine cannot do its part."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem


def load_asyncssh() -> Any:
    """Return asyncssh, or say which extra brings it."""
    try:
        return import_module("asyncssh")
    except ImportError as error:
        raise ConfigError(
            f"Machines by SSH need asyncssh, which is not installed ({error}).", fix="pip install 'dray[fleet]'."
        ) from error


class Reached:
    """A machine with a connection and an agent on it. Requests go one after another."""

    def __init__(self, host: str, connection: Any, process: Any) -> None:
        self.host = host
        self.connection = connection
        self._process = process
        self._turn = asyncio.Lock()
        self._read = ""
        self._asked = 0

    async def ask(
        self, do: str, *, told: Callable[[str], None] | None = None, timeout_s: float = _ANSWER_S, **values: Any
    ) -> Any:
        """Have the agent do something and return its answer; HostError with its words otherwise."""
        async with self._turn:
            self._asked += 1
            try:
                self._process.stdin.write(json.dumps({"do": do, "id": self._asked, **values}) + "\n")
                answer = await asyncio.wait_for(self._answer(self._asked, told), timeout_s)
            except TimeoutError:
                raise self._trouble("unreachable", f"no answer within {timeout_s:g} s") from None
            except (OSError, load_asyncssh().Error) as error:
                raise self._trouble("unreachable", f"the connection was lost: {error}") from error
        if "error" in answer:
            raise self._trouble("not usable", str(answer["error"]))
        return answer["answer"]

    async def _answer(self, number: int, told: Callable[[str], None] | None) -> dict[str, Any]:
        while line := await self._line():
            # What a shell's start-up file prints comes before the first answer.
            if not line.startswith(MARK):
                continue
            message = _message(line[len(MARK) :])
            if message.get("id") != number:
                continue  # to a request whose caller no longer waits
            if "answer" in message or "error" in message:
                return message
            if told and "tell" in message:
                told(str(message["tell"]))
        words = (await self._process.stderr.read()).strip().splitlines()
        raise self._trouble("not usable", words[-1] if words else "its Python ended")

    async def _line(self) -> str:
        """Return the next line, however long: asyncssh's own reader stops at what fits its window."""
        while "\n" not in self._read:
            chunk: str = await self._process.stdout.read(1 << 16)
            if not chunk:
                return ""
            self._read += chunk
            if len(self._read) > _LONGEST_LINE:
                raise self._trouble("not usable", f"it sent {len(self._read):,} characters without a line's end")
        line, _, self._read = self._read.partition("\n")
        return line + "\n"

    def _trouble(self, reason: Any, words: str) -> HostError:
        return HostError(Problem(self.host, reason, words))

    async def copy(self, path: Path, target: str) -> None:
        async with self.connection.start_sftp_client() as sftp:
            await sftp.makedirs(str(Path(target).parent), exist_ok=True)
            await sftp.put(str(path), target)

    async def close(self) -> None:
        with suppress(Exception):
            self._process.stdin.write_eof()
        self.connection.close()
        with suppress(Exception):
            await asyncio.wait_for(self.connection.wait_closed(), 2)


def _message(text: str) -> dict[str, Any]:
    """Return what an agent says; nothing if it is none of its messages."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


async def reach(fleet: FleetFile, host: str) -> Reached:
    """Connect to a machine and start an agent there."""
    connection = await connect(fleet, host)
    command = f"{shlex.quote(fleet.python)} -c {shlex.quote(boot('agent'))}"
    try:
        process = await connection.create_process(command)
        process.stdin.write(modules("agent") + "\n")
    except (OSError, load_asyncssh().Error) as error:
        connection.close()
        raise HostError(Problem(host, "login", f"no command may be run there: {error}")) from error
    return Reached(host, connection, process)


async def connect(fleet: FleetFile, host: str) -> Any:
    """Return a connection. What ~/.ssh/config says of the machine holds, unless the fleet file says otherwise."""
    asyncssh = load_asyncssh()
    spec = fleet.machine(host)
    user, port, key = spec.user or fleet.user, spec.port or fleet.port, spec.key or fleet.key
    options: dict[str, Any] = dict(_TIMEOUTS)
    if user:
        options["username"] = user
    if port:
        options["port"] = port
    if key:
        if not Path(key).expanduser().is_file():
            raise HostError(Problem(host, "login", f"there is no key {key}", "change key:"))
        options["client_keys"] = [str(Path(key).expanduser())]
    if fleet.known_hosts:
        options["known_hosts"] = str(Path(fleet.known_hosts).expanduser())
    try:
        settings = await asyncio.to_thread(_settings, host, **options)
        if settings.known_hosts is None:
            words = "the SSH configuration here has its check switched off (UserKnownHostsFile none)"
            fix = f"remove that line for {host} from ~/.ssh/config, or name the file with its key: known_hosts:"
            raise HostError(Problem(host, "host key", words, fix))
        if jump := await asyncio.to_thread(_unchecked_jump, settings.tunnel):
            words = f"the SSH configuration here has the check of {jump}, on the way, switched off"
            fix = f"remove the line UserKnownHostsFile none for {jump} from ~/.ssh/config"
            raise HostError(Problem(host, "host key", words, fix))
        return await _open(host, options)
    except asyncssh.ConfigParseError as error:
        raise ConfigError(
            f"The SSH configuration here cannot be read: {error}.",
            fix=f"Correct ~/.ssh/config until `ssh -G {host}` works.",
        ) from error
    except asyncssh.HostKeyNotVerifiable as error:
        scan = f"ssh-keyscan {f'-p {port} ' if port else ''}{host} >> {fleet.known_hosts or '~/.ssh/known_hosts'}"
        fix = f"compare its key with the one that its administrator gives you, then {scan}"
        raise HostError(Problem(host, "host key", str(error), fix)) from error
    except asyncssh.PermissionDenied as error:
        fix = f"check user: and key:, with `ssh {f'{user}@' if user else ''}{host}`"
        raise HostError(Problem(host, "login", f"{user or 'the user here'} is refused", fix)) from error
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        fix = "change key:, or load it into ssh-agent if it has a passphrase"
        raise HostError(Problem(host, "login", f"the key cannot be used: {error}", fix)) from error
    except (OSError, TimeoutError, asyncssh.Error) as error:
        number = getattr(error, "errno", None)
        words = (os.strerror(number) if number and number > 0 else str(error)) or f"no answer within {_CONNECT_S:g} s"
        fix = f"check that `ssh {host}` works, or take it out: dray cluster remove {host} --cluster {fleet.name}"
        raise HostError(Problem(host, "unreachable", words, fix)) from error


def _settings(host: str, **options: Any) -> Any:
    """Return what the SSH configuration says of a host, also in its second pass (`Match final`)."""
    settings = load_asyncssh().SSHClientConnectionOptions(config=(), host=host, **options)
    if settings.config.has_match_final():
        settings.update(host=host, reload=True, canonical=False, final=True)
    return settings


async def _open(host: str, options: dict[str, Any], way: tuple[str, ...] = ()) -> Any:
    """Connect to a host, through those of its ProxyJump, each with its key checked.

    asyncssh reads the configuration again while it connects, and opens jumps by itself: the files with the host keys
    and the way are given to it, so that nothing read later changes them.
    """
    settings = await asyncio.to_thread(_settings, host, **options)
    via = None
    try:
        for jump, user, port in _jumps(settings.tunnel):
            if jump in (*way, host):
                raise ConfigError(
                    f"The SSH configuration here leads to {jump} through {jump} itself.",
                    fix=f"Remove ProxyJump for {jump} from ~/.ssh/config.",
                )
            given = {"username": user, "port": port, "tunnel": via}
            via = await _open(jump, _TIMEOUTS | {name: value for name, value in given.items() if value}, (*way, host))
        fixed = {"known_hosts": settings.known_hosts or [], "tunnel": via or options.get("tunnel")}
        connection = await load_asyncssh().connect(host, config=(), **(options | fixed))
    except BaseException:
        if via is not None:
            via.close()
        raise
    connection.set_tunnel(fixed["tunnel"])  # which it closes with itself
    return connection


def _jumps(tunnel: object) -> Iterator[tuple[str, str, int | None]]:
    """Yield host, user and port of each host of a ProxyJump."""
    for jump in tunnel.split(",") if isinstance(tunnel, str) else ():
        user, _, place = jump.rpartition("@")
        host, _, port = place.rpartition(":") if ":" in place else (place, "", "")
        if port and not port.isdecimal():
            raise ConfigError(
                f'The SSH configuration here has the ProxyJump "{jump}", whose port is not a number.',
                fix="Correct it in ~/.ssh/config: user@host:port.",
            )
        yield host, user, int(port) if port else None


def _unchecked_jump(tunnel: object, seen: frozenset[str] = frozenset()) -> str:
    """Return the first host of a ProxyJump, or of those on the way to it, whose key would not be checked."""
    for host, _, _ in _jumps(tunnel):
        if host in seen:
            continue
        seen |= {host}
        settings = _settings(host)
        found = host if settings.known_hosts is None else _unchecked_jump(settings.tunnel, seen)
        if found:
            return found
    return ""


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end, also where an event loop runs already (a notebook)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    result: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            result.append(asyncio.run(work))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="dray-fleet")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return result[0]


@contextmanager
def tunnel(fleet: FleetFile, host: str, target: str, port: int) -> Iterator[int]:
    """Give a port of this machine (127.0.0.1 alone) that leads to `target` as `host` sees it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="dray-tunnel", daemon=True)
    thread.start()

    def call(work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result(timeout_s)

    async def open_() -> tuple[Any, int]:
        connection = await connect(fleet, host)
        listener = await connection.forward_local_port("127.0.0.1", 0, target, port)
        return connection, listener.get_port()

    async def close(connection: Any) -> None:
        connection.close()
        with suppress(Exception):
            await asyncio.wait_for(connection.wait_closed(), 2)

    try:
        try:
            connection, here = call(open_(), 3 * _CONNECT_S)
        except HostError as error:
            raise ClusterError(
                f"The head of the cluster {fleet.name} does not answer: {error.problem}.", fix=error.problem.fix
            ) from error
        try:
            yield here
        finally:
            call(close(connection), 5)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()
