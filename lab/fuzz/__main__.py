"""``python -m lab.fuzz [TARGET …] --seconds 60``: new inputs for the decoders, led by the code that they reach.

Needs atheris (``make fuzz`` installs it). Each target has its own process. A fault is reported once: its input is in
``--findings``, next to what it raised; ends with 1 if there was any. ``--replay FILE`` runs one input, without atheris.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from random import Random

from lab.fuzz.bounds import SECONDS, in_time
from lab.fuzz.findings import Findings, tried
from lab.fuzz.mutations import LONGEST, grafted
from lab.fuzz.target import CORPUS

_GOES_ON = (70, 71, 77)  # of libFuzzer: too slow, too large, another fault; the input is kept, and the rest goes on
_GRAFTED = 0.5
_SLOWER = 4  # how many times longer instrumented code takes


def fuzz(name: str, seconds: int, findings: Path, kept: Path) -> None:
    """Never returns: libFuzzer ends the process."""
    import atheris  # noqa: PLC0415  # not installed but by ``make fuzz``

    with atheris.instrument_imports(include=["app", "lab.fuzz"]):
        from lab.fuzz.targets import TARGETS  # noqa: PLC0415  # what is imported here is instrumented
    target, noted = TARGETS[name], Findings(findings / name)
    kept.mkdir(parents=True, exist_ok=True)
    words = kept.with_suffix(".words")
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words))
    with target.opened() as run:

        def one(body: bytes) -> None:
            error = tried(target, run, body)
            if error is not None and (path := noted.add(error, body)):
                path.with_suffix(".txt").write_text("".join(traceback.format_exception(error)))

        def other(body: bytes, longest: int, seed: int) -> bytes:
            """What libFuzzer makes of an input, or, of JSON, what stays JSON every other time."""
            random = Random(seed)
            made = grafted(body, target.words, random)[:longest] if random.random() < _GRAFTED else body
            return made if made != body else atheris.Mutate(body, longest)

        options = [
            f"-max_total_time={seconds}",
            f"-timeout={_SLOWER * SECONDS}",
            "-rss_limit_mb=4096",
            f"-max_len={LONGEST}",
        ]
        options += [f"-dict={words}"] if target.words else []
        options += [f"-artifact_prefix={findings / name}-", "-print_final_stats=1", "-verbosity=1"]
        atheris.Setup([sys.argv[0], *options, str(kept), str(CORPUS / name)], one, custom_mutator=other)
        atheris.Fuzz()


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


def replay(name: str, path: Path) -> None:
    """One input, within the bounds of the suite. Raises what it raises."""
    from lab.fuzz.targets import TARGETS  # noqa: PLC0415  # as in ``fuzz``

    target = TARGETS[name]
    with target.opened() as run, in_time():
        error = tried(target, run, path.read_bytes())
    if error is not None:
        raise error


def _each(names: list[str], wanted: argparse.Namespace) -> int:
    """How many targets had faults."""
    faulty = 0
    for name in names:
        _forget(name, Path(wanted.findings))
        began = time.monotonic()
        while (left := int(wanted.seconds - (time.monotonic() - began))) > 0:
            command = [sys.executable, "-m", "lab.fuzz", name, "--one", "--seconds", str(left)]
            command += ["--findings", wanted.findings, "--kept", wanted.kept]
            with open(Path(wanted.findings, f"{name}.log"), "a") as log:
                ended = subprocess.run(command, check=False, stdout=log, stderr=log)
            if ended.returncode == 0:
                break
            if ended.returncode not in _GOES_ON:
                sys.exit(f"{name}: the fuzzer ended with {ended.returncode}; see {log.name}")
        paths = [*Path(wanted.findings).glob(f"{name}-*"), *Path(wanted.findings, name).glob("*.txt")]
        sys.stdout.write(f"{name}: {len(paths)} found {' '.join(map(str, sorted(paths)))}\n")
        sys.stdout.flush()
        faulty += bool(paths)
    return faulty


def _forget(name: str, findings: Path) -> None:
    """What an earlier run found may be mended by now."""
    shutil.rmtree(findings / name, ignore_errors=True)
    for path in (*findings.glob(f"{name}-*"), findings / f"{name}.log"):
        path.unlink(missing_ok=True)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(_names())}; without one all")
    parser.add_argument("--seconds", type=int, default=60, help="of each target")
    parser.add_argument("--findings", default=str(Path(tempfile.gettempdir(), "keyfold-fuzz", "findings")))
    parser.add_argument(
        "--kept", default=str(Path(tempfile.gettempdir(), "keyfold-fuzz", "kept")), help="inputs that lead further"
    )
    parser.add_argument("--replay", help="one input")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    names = wanted.targets or _names()
    if unknown := set(names) - set(_names()):
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(_names())}")
    Path(wanted.findings).mkdir(parents=True, exist_ok=True)
    if wanted.replay:
        replay(names[0], Path(wanted.replay))
    elif wanted.one:
        fuzz(names[0], wanted.seconds, Path(wanted.findings), Path(wanted.kept, names[0]))
    else:
        sys.exit(1 if _each(names, wanted) else 0)


def _names() -> list[str]:
    """The targets, without importing what they read: that is to be instrumented."""
    return sorted(path.name for path in CORPUS.iterdir())


if __name__ == "__main__":
    main()
