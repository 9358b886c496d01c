"""Give a parser changed inputs, in a process of its own that the system ends when it hangs or takes all memory.

`python tests/security/attack.py PARSER FIRST COUNT SEED` is that process: a line of JSON for each failure. `failures`
starts it, and starts it again behind an input that it died of.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

CPU_S = 10.0
"""What one input may take of a processor; on a busy machine too, hence not by the clock."""
REAL_S = 60.0
"""What one input may take by the clock: a parser that waits for ever takes nothing of a processor."""
GROWTH_BYTES = 256 << 20
"""What the process may grow by on one input of some kilobytes."""
LEAK_BYTES = 512 << 20
"""What it may grow by in all."""
ADDRESS_BYTES = 4 << 30
"""What may be asked of the system at once, beyond what the process has."""
FAILURES = 8
"""After so many there is no need for more."""
BATCH = 20_000
INDEX = "DRAY_FUZZ_INDEX"
"""Where the process notes which input it is at."""

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Parser:
    """Something that reads bytes which it did not write just now."""

    inputs: Callable[[], Sequence[bytes]]
    """Real ones."""
    parse: Callable[[bytes], Any]
    """Reads one, as dray does, and returns what it read. Nothing but a DrayError may come of it."""
    right: Callable[[Any], bool]
    """Whether that is the reading of a real input: a parser that discards everything would pass without it."""
    structured: bool = False
    """The inputs are JSON, or lines of it."""
    seal: Callable[[bytes], bytes] | None = None
    """Gives a changed input the digest that it would have, so that what lies behind the digest is reached too."""
    cpu_s: float = CPU_S
    real_s: float = REAL_S


def find(name: str) -> Parser:
    """Return a parser by its name: module.name below parsers/."""
    module, _, parser = name.partition(".")
    return import_module(f"security.parsers.{module}").PARSERS[parser]  # type: ignore[no-any-return]


def failures(name: str, count: int, seed: int, most: int = FAILURES) -> list[str]:
    """Return what went wrong in `count` changed inputs, a text each that says how to see it again."""
    found: list[str] = []
    first = 0
    with tempfile.TemporaryDirectory(prefix="dray-fuzz-") as scratch:
        place = Path(scratch, "index")
        while first < count and len(found) < most:
            batch = min(BATCH, count - first)
            place.write_bytes(b"")
            process = _run([name, str(first), str(batch), str(seed)], scratch, place)
            told = [json.loads(line) for line in process.stdout.splitlines() if line.startswith(b'{"fuzz"')]
            found += [_text(name, seed, entry["fuzz"], entry["why"]) for entry in told]
            first += batch
            if process.returncode:
                reached = place.read_bytes().split()
                if not reached:
                    words = process.stderr.decode(errors="replace")[-3000:]
                    return [*found, f"{name} cannot read what is real: {words}"]
                found.append(_text(name, seed, int(reached[-1]), _death(process.returncode, process.stderr)))
                first = int(reached[-1]) + 1
    return found[:most]


def _run(arguments: list[str], scratch: str, index: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a batch; nothing that it started is left."""
    path = os.pathsep.join([str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    own = {"PYTHONPATH": path, "TMPDIR": scratch, "HOME": scratch, INDEX: str(index)}
    alone = {"OMP_NUM_THREADS": "1"}  # a process with threads cannot be forked by a parser
    command = [sys.executable, __file__, *arguments]
    with (
        Path(scratch, "out").open("w+b") as out,
        Path(scratch, "err").open("w+b") as err,
        subprocess.Popen(
            command,
            cwd=scratch,
            env={**os.environ, **own, **alone},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        ) as process,
    ):
        try:
            code = process.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        return subprocess.CompletedProcess(command, code, *(Path(file.name).read_bytes() for file in (out, err)))


def _death(code: int, stderr: bytes) -> str:
    words = stderr.decode(errors="replace")[-1500:]
    if -code in (signal.SIGPROF, signal.SIGALRM):
        return f"it hangs: no answer in time\n{words}"
    return f"the process died: {signal.Signals(-code).name if code < 0 else f'exit {code}'}\n{words}"


def _text(name: str, seed: int, index: int, why: str) -> str:
    again = f"python tests/security/attack.py {name} {index} 1 {seed}"
    return f"{name}, seed {seed}, input {index}: {why.strip()}\n  again: PYTHONPATH=tests {again}"


def run(name: str, first: int, count: int, seed: int) -> None:
    from dray.errors import DrayError
    from security.mutation import mutant

    parser = find(name)
    inputs = parser.inputs()
    for content in inputs:
        if not parser.right(read := parser.parse(content)):
            raise AssertionError(f"{content[:160]!r} was read as {read!r:.500}")
    _limit_address_space()
    begin = peak = _peak()
    told = 0
    status = os.open(os.environ.get(INDEX, os.devnull), os.O_WRONLY | os.O_CREAT, 0o600)
    for index in range(first, first + count):
        content = mutant(inputs, seed, name, index, structured=parser.structured)
        if parser.seal is not None and index % 2:
            content = parser.seal(content)
        os.write(status, b"%d\n" % index)
        signal.setitimer(signal.ITIMER_PROF, parser.cpu_s)
        signal.setitimer(signal.ITIMER_REAL, parser.real_s)
        why = None
        try:
            parser.parse(content)
        except DrayError as error:
            why = None if error.what and isinstance(error.what, str) else f"an error without words: {error!r}"
        except BaseException:
            why = traceback.format_exc(limit=-6)[-2500:]
        grown, peak = _peak() - peak, _peak()
        if grown > GROWTH_BYTES:
            why = f"it takes {grown >> 20} MiB for {len(content)} bytes"
        elif peak - begin > LEAK_BYTES:
            why, begin = f"it has grown by {(peak - begin) >> 20} MiB in {index - first} inputs", peak
        if why:
            _tell(index, f"{why}\n  input: {len(content)} bytes, {content[:160].hex()}")
            told += 1
        if told >= FAILURES:
            return


def _tell(index: int, why: str) -> None:
    print(json.dumps({"fuzz": index, "why": why}), flush=True)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _limit_address_space() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + ADDRESS_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    run(sys.argv[1], *map(int, sys.argv[2:]))
