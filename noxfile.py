"""`nox -s NAME` does one of these; arguments after `--` are passed on."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import nox
from nox.command import CommandFailed

ROOT = Path(__file__).parent.resolve()
LOCKS = ROOT / "harness/environments"
# Environment -> the file that says what it has. They are made in .envs/ when first
# needed. Builds for a GPU depend on the machine's driver: a group of pyproject.toml.
RECIPES = {
    "core": LOCKS / "core.txt",  # torch, TensorFlow, pytest
    "site": LOCKS / "site.txt",  # MkDocs, matplotlib; no framework
    "oracle": LOCKS / "oracle.txt",  # TensorFlow 1.15 under Python 3.7
    "gpu_torch": ROOT / "pyproject.toml",
    "gpu_tf": ROOT / "pyproject.toml",
    "oldest": ROOT / "pyproject.toml",
}

TORCH = "torch==2.13.0"
# Where torch has no CUDA, and the only index that it may come from; set the variable to
# another one, or to nothing for pip's own.
TORCH_INDEX = os.environ.get(
    "LOCKSTEP_TORCH_INDEX",
    "https://download.pytorch.org/whl/cpu"
    if sys.platform == "linux"
    else "https://pypi.org/simple",
)
# Where Python 3.7 is, for TensorFlow 1.15.
PYTHON37 = "LOCKSTEP_PYTHON37"
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
    for name in ("core", "site"):
        python_of(session, name)
    parts = (lint, unit, parity, site, browser)
    run_parts(session, {part.__name__: part for part in parts})


@nox.session
def reproduce(session: nox.Session) -> None:
    """Run experiments and benchmarks, draw plots, build the site; say how to see it.

    With arguments (experiments, options of `harness run`) it runs no benchmark.
    """
    options = ["--scale", "quick", *session.posargs]
    parts = {"runs": lambda session: run(session, "core", "harness", "run", *options)}
    if not session.posargs:
        parts["bench"] = lambda session: run(
            session, "core", "harness", "bench", "--quick"
        )
    run_parts(session, {**parts, "site": site})
    session.log(
        f"The site is in {ROOT / 'site'}; to look at it: .venv/bin/nox -s serve"
    )


def run_parts(
    session: nox.Session, parts: dict[str, Callable[[nox.Session], None]]
) -> None:
    """Run all parts, then print which passed, and how long each took."""
    lines, failed = [], []
    for name, part in parts.items():
        session.log(f"---- {name} ----")
        start, result = time.perf_counter(), "passed"
        try:
            part(session)
        except CommandFailed:
            result = "FAILED"
            failed.append(name)
        lines.append(f"  {name:<10}{result}{time.perf_counter() - start:9.1f} s")
    lines.append(f"parts: {len(parts) - len(failed)} passed, {len(failed)} failed")
    print("\n".join(lines), flush=True)
    if failed:
        raise CommandFailed(f"failed: {', '.join(failed)}; the reasons stand above")


# -- the parts -----------------------------------------------------------------------


@nox.session
def lint(session: nox.Session) -> None:
    """Check format (ruff), rules (ruff) and types (mypy)."""
    parts = {
        "format": lambda session: run(
            session, "core", "ruff", "format", "--check", "."
        ),
        "rules": lambda session: run(session, "core", "ruff", "check", "."),
        "types": lambda session: run(session, "core", "mypy"),
    }
    run_parts(session, parts)


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
    if python37() is None:
        session.skip(f"no Python 3.7 on PATH or among pyenv's; set {PYTHON37} to one")
    python_of(session, "oracle")
    run(session, "core", "harness", "oracle", *session.posargs)


@nox.session
def slow(session: nox.Session) -> None:
    """Run what `tests` leaves out: failures, clusters, all scripts of pages."""
    by_framework(session, "-m", "slow and not soak", *session.posargs)
    if not session.posargs:
        site(session)
        browser_tests(session, "-m", "slow")


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
def gpu(session: nox.Session) -> None:
    """On a machine with an NVIDIA GPU: parity, its tests, throughput; -- pytorch or tf.

    What is measured goes to results/local/, which Git ignores.
    """
    backend = session.posargs[0] if session.posargs else "pytorch"
    tested = {"pytorch": ["pytorch"], "tf": ["tf", "keras3"]}
    if backend not in tested or shutil.which("nvidia-smi") is None:
        session.error(
            f"gpu: expected pytorch or tf and nvidia-smi on PATH, got {backend} and "
            f"{shutil.which('nvidia-smi')}; on the CPU: nox -s unit parity"
        )
    name = "gpu_torch" if backend == "pytorch" else "gpu_tf"
    options = ["--backend", backend, "--device", "cuda"]
    report = ROOT / f"results/local/parity_{name}.json"
    run(session, name, "harness", "parity", *options, "--report", str(report))
    folders = [f"impls/lockstep/{folder}" for folder in tested[backend]]
    run(session, name, "pytest", "-m", "gpu", *folders)
    experiments = ["training_throughput"]
    if backend == "pytorch":
        experiments += ["gpu_steps", "throughput"]
    run(session, name, "harness", "run", *experiments, *options, "--scale", "std")


@nox.session
def site(session: nox.Session) -> None:
    """Build the site from recorded results: strict, offline, without a framework."""
    run(session, "site", "harness", "pages")
    run(session, "site", "mkdocs", "build", "--strict")


@nox.session
def serve(session: nox.Session) -> None:
    """Show the built site on this machine, e.g. nox -s serve -- 8080."""
    port = session.posargs[0] if session.posargs else "8000"
    if not (ROOT / "site" / "index.html").exists():
        site(session)
    session.log(f"The site is at http://127.0.0.1:{port}/ (stop with Ctrl-C).")
    where = ["--bind", "127.0.0.1", "--directory", "site", port]
    try:
        with contextlib.suppress(KeyboardInterrupt):
            run(session, "site", "http.server", *where)
    except CommandFailed:
        session.error(f"serve: port {port} cannot be used; name another one")


@nox.session
def browser(session: nox.Session) -> None:
    """Open the built site in a browser and check what a reader would see."""
    browser_tests(session, *session.posargs)


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
    for name in session.posargs or ("core", "site"):
        python_of(session, name)


@nox.session
def lock(session: nox.Session) -> None:
    """Write the hashed lock files anew; -- --upgrade takes the newest versions."""
    options = ["--generate-hashes", "--no-emit-index-url", "--no-header", "--quiet"]
    options += session.posargs
    for name in ("core", "data", "site", "nox", "oracle"):
        target = f"harness/environments/{name}.txt"
        # The originals have one Python, and none that uv could resolve for all systems.
        python = ["3.7"] if name == "oracle" else ["3.11", "--universal"]
        group = ["--group", name, "-o", target, "--python-version", *python]
        # Packages that are read as data.
        group += ["--no-deps"] if name == "data" else []
        session.run(uv(session), "pip", "compile", *options, *group, silent=True)
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


def browser_tests(session: nox.Session, *args: str) -> None:
    """Run the tests of the built site.

    Each process has its browser; what is left of one's pages another takes over.
    """
    parallel = [*PROCESSES, "--dist", "worksteal"]
    run(session, "site", "pytest", "harness/site_tests", *parallel, *args)


# -- environments --------------------------------------------------------------------


def python_of(session: nox.Session, name: str) -> Path:
    """The interpreter of the environment `name`, made unless its stamp is current."""
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        session.error(
            f"Python must be 3.11, 3.12 or 3.13, got {sys.version.split()[0]}; "
            "make .venv anew with one of them, e.g. python3.13 -m venv --clear .venv"
        )
    if name not in RECIPES:
        session.error(f"environments: expected {' or '.join(RECIPES)}, got {name!r}")
    home = ROOT / ".envs" / name
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    recipe = f"{sys.version} {home} {TORCH}".encode() + RECIPES[name].read_bytes()
    if name == "core":
        recipe += (LOCKS / "torch.txt").read_bytes() + (LOCKS / "data.txt").read_bytes()
    stamp, current = home / "stamp", hashlib.sha256(recipe).hexdigest()
    if not (stamp.exists() and stamp.read_text() == current and python.exists()):
        build(session, name, python)
        # Written last: an install that was killed has no stamp and is made anew.
        stamp.write_text(current)
    return python


def build(session: nox.Session, name: str, python: Path) -> None:
    """Make the environment `name` from nothing."""
    home, start = ROOT / ".envs" / name, time.perf_counter()
    if home.resolve() != home:
        session.error(
            f"environments: expected .envs/{name} in this checkout, got a link to "
            f"{home.resolve()}, which was made for another one and stays as it is; "
            "remove the link and run the same command again"
        )
    base = python37() if name == "oracle" else sys.executable
    if base is None:
        session.error(f"environments: expected Python 3.7, got none; set {PYTHON37}")
    session.log(f"Making .envs/{name}; this is done once and takes a few minutes.")
    (home / "stamp").unlink(missing_ok=True)
    pip = [uv(session), "pip", "install", "--quiet", "--python", str(python)]
    pip += ["--compile-bytecode"]
    hashed = [*pip, "--require-hashes", "-r"]
    commands = [[base, "-m", "venv", "--clear", str(home)]]
    if name == "core":
        # torch alone, and from its index alone; without dependencies no resolver meets
        # its CUDA packages. Where the lock has a hash the second command does nothing.
        torch = [str(python), "-m", "pip", "install", "--quiet", "--no-deps"]
        torch += ["--retries", "1"]
        torch += ["--index-url", TORCH_INDEX] if TORCH_INDEX else []
        commands += [[*torch, "--require-hashes", "-r", str(LOCKS / "torch.txt")]]
        commands += [[*torch, TORCH]]
    if RECIPES[name].name == "pyproject.toml":
        commands += [[*pip, "--group", f"{RECIPES[name]}:{name}"]]
    else:
        commands += [[*hashed, str(RECIPES[name])]]
    if name == "core":
        commands += [[*hashed, str(LOCKS / "data.txt"), "--no-deps"]]
        commands += [[str(python), "-c", "import torch"]]
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


def uv(session: nox.Session) -> str:
    """The path of uv, which is installed beside nox."""
    return UV or session.error("uv is missing; make .venv as README.md says")


def python37() -> str | None:
    """A Python 3.7: of the variable, on PATH, or of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    names = [os.environ.get(PYTHON37, ""), "python3.7"]
    names += map(str, sorted(pyenv.glob("versions/3.7*/bin/python3.7")))
    ask = "import sys; sys.exit(sys.version_info[:2] != (3, 7))"
    for path in filter(None, map(shutil.which, names)):
        # A shim of pyenv may be there and not work.
        if subprocess.run([path, "-c", ask], capture_output=True).returncode == 0:
            return path
    return None
