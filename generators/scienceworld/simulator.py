"""The simulator: one JVM that holds one environment, with the settings that make it deterministic.

    with Simulator() as simulator:
        simulator.load(Variation("boil", 3))
        simulator.call("look around")      # Outcome(feedback="This room is called ...", score=0)

Needs `pip install 'stsr[scienceworld]'` and a Java runtime (`apt-get install -y openjdk-17-jre-headless`).

Release 1.2.3 gives different reference paths in two runs, for two reasons: its sets iterate in the order of
identity hashes, and a static cache keeps the first search through the rooms. So every JVM runs with one
identity hash for all objects, and `GoldSimulator` empties the cache before each path. With both, two builds
are identical.

Invariants: calls are counted here, since the simulator counts ticks (looking around costs none, waiting
eleven); its list of valid actions is never asked for (0.2 s a call, against 0.01 s); a JVM ends with its
process, however that ends; reference paths of official test variations cannot be made: `Simulator` can ask
for no path, and `GoldSimulator`, in a JVM of its own, refuses to load test variations at all.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import threading
import weakref
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from stsr.generators.files import file_sha256
from stsr.generators.scienceworld.states import Outcome, Seen
from stsr.generators.scienceworld.variations import Variation

JVM_FLAGS = ("-XX:+UseSerialGC", "-XX:+UnlockExperimentalVMOptions", "-XX:hashCode=2")
"""One identity hash for all objects: sets then iterate in order of insertion."""
FRUGAL_FLAGS = ("-XX:ReservedCodeCacheSize=32m", "-XX:CompileThresholdScaling=6")
"""Compile less: a JVM lives for minutes, so that saves memory and time. No answer depends on it."""
SIMPLIFICATION = ""
"""None of the simulator's simplifications. The paper names none, and its counts do not tell."""
JAR_SHA256 = "f4e1fdce0cdabe1bab7128a7e78ea820210d9db3c28d7272bcbbc3f3a1c5f0d7"
"""The jar of scienceworld 1.2.3, which the frozen catalogue was made with."""
CALL_SECONDS = 120.0
"""A call that takes longer counts as a hang. The slowest one seen, a cold load with its path, took 13 s."""
START_SECONDS = 120.0
INSTALL_JAVA = "apt-get install -y openjdk-17-jre-headless"
INSTALL_PACKAGE = "pip install 'stsr[scienceworld]'"

_ORDINARY = frozenset(
    {
        "load",
        "step",
        "getScore",
        "freeActionLook",
        "freeActionInventory",
        "getTaskDescription",
        "getPossibleActions",
        "getVariationsTrain",
        "getVariationsDev",
        "getVariationsTest",
    }
)
"""The simulator's functions that `Simulator` uses. Left out: `reset`, which makes a path whenever an earlier
load did, and everything that tells the right action."""


class SimulatorError(RuntimeError):
    """The simulator cannot be used. The message is one line that says what to do."""


class SimulatorDied(SimulatorError):
    """The JVM ended, or did not answer in time. Starting another one may help."""


class TestPathError(SimulatorError):
    """Something asked for the reference path of an official test variation."""

    __test__ = False  # not a test case, whatever its name suggests to pytest


def find_java() -> str:
    """The java command. Raises SimulatorError, with the command that installs one, if there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home, "bin", "java"))) if home else None
    if found := found or shutil.which("java"):
        return found
    raise SimulatorError(f"ScienceWorld needs Java and there is none here; install it with: {INSTALL_JAVA}")


def package_jar() -> Path:
    """The jar that the installed package scienceworld brings. Raises SimulatorError without the package."""
    try:
        from scienceworld.constants import JAR_PATH
    except ImportError as error:
        raise SimulatorError(
            f"the package {error.name} is missing; install it with: {INSTALL_PACKAGE}"
        ) from error
    return Path(JAR_PATH)


def package_version() -> str:
    """Version of the installed package scienceworld; "unknown" without one."""
    try:
        return version("scienceworld")
    except PackageNotFoundError:
        return "unknown"


class Simulator:
    """A JVM with one environment. Start more of them for more environments; never share one among threads."""

    heap = "-Xmx128m"
    """Most memory for objects; the JVM needs some 100 MB beside it."""
    allowed = _ORDINARY
    """Functions of the simulator that may be called."""

    def __init__(
        self,
        jar: Path | None = None,
        *,
        jar_sha256: str | None = JAR_SHA256,
        call_seconds: float = CALL_SECONDS,
    ) -> None:
        """Starts the JVM (2 s on a quiet machine). `jar` is the package's by default.

        Raises SimulatorError without Java, without the package, or if the jar's hash is not `jar_sha256`
        (None: any jar will do, for other releases); SimulatorDied if the JVM does not come up.
        """
        java, self.jar = find_java(), jar or package_jar()
        if not self.jar.is_file():
            raise SimulatorError(f"{self.jar} is not there; reinstall with: {INSTALL_PACKAGE}")
        self.jar_sha256 = file_sha256(self.jar)
        if jar_sha256 is not None and self.jar_sha256 != jar_sha256:
            raise SimulatorError(
                f"{self.jar} is another simulator (SHA-256 {self.jar_sha256[:12]}, not {jar_sha256[:12]}): "
                "its trajectories differ. Install scienceworld==1.2.3"
            )
        self.variation: Variation | None = None
        self.calls = 0
        """Calls since the last load."""
        self._call_seconds = call_seconds
        self._process, port, token = _launch(java, self.jar, self.heap)
        self._gateway = _connect(port, token, call_seconds)
        self._interface = self._first_answer()

    def _first_answer(self) -> Any:
        from py4j.protocol import Py4JError

        try:
            return self._gateway.jvm.scienceworld.runtime.pythonapi.PythonInterface()
        except (Py4JError, TypeError, OSError) as error:  # TypeError: the jar holds no such class
            self.close()
            raise SimulatorDied(f"{self.jar}: the JVM started but holds no working simulator") from error

    @property
    def pid(self) -> int:
        """Process id of the JVM."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the JVM runs."""
        return self._process.poll() is None

    @property
    def peak_memory(self) -> int:
        """Most memory that the JVM has held so far, in millions of bytes; 0 where /proc does not tell."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8")
        except OSError:
            return 0
        kib = re.search(r"VmHWM:\s+(\d+) kB", status)
        return round(int(kib[1]) * 1024 / 1e6) if kib else 0

    def load(self, variation: Variation) -> None:
        """Puts the simulator at the start of a task. Makes no reference path."""
        self._load(variation, False)

    def _load(self, variation: Variation, path: bool) -> None:
        _ = variation.official  # the simulator itself is silent about a variation that does not exist
        self.variation, self.calls = None, 0
        self._ask("load", variation.family, variation.number, SIMPLIFICATION, path)
        self.variation = variation

    def call(self, action: str) -> Outcome:
        """Takes one action. Any text is legal; the simulator answers what it doesn't understand."""
        feedback = str(self._ask("step", action))
        self.calls += 1
        return Outcome(feedback, round(100 * float(self._ask("getScore"))))

    def see(self) -> Seen:
        """The room and the inventory."""
        return Seen(str(self._ask("freeActionLook")), str(self._ask("freeActionInventory")))

    def description(self) -> str:
        """The task in words."""
        return str(self._ask("getTaskDescription"))

    def templates(self) -> list[str]:
        """The forms of actions, for example "open OBJ"."""
        return [str(form) for form in self._ask("getPossibleActions")]

    def official_variations(self) -> dict[str, list[int]]:
        """The official splits of the family that is loaded."""
        return {
            name: [int(number) for number in self._ask(f"getVariations{name.capitalize()}")]
            for name in ("train", "dev", "test")
        }

    def _ask(self, function: str, *arguments: Any) -> Any:
        if function not in self.allowed:
            raise SimulatorError(f"{function} of the simulator must not be called here")
        from py4j.protocol import Py4JError, Py4JJavaError

        try:
            return getattr(self._interface, function)(*arguments)
        except Py4JJavaError as error:
            said = _first_line(error)
            self.close()  # whatever state it is in now is nobody's
            raise SimulatorDied(f"{self._where}: {function} failed in the JVM: {said}") from error
        except (Py4JError, OSError) as error:  # a lost connection is either, a time-out too
            self.close()
            raise SimulatorDied(f"{self._where}: the JVM ended or did not answer to {function}") from error

    @property
    def _where(self) -> str:
        return self.variation.id if self.variation else "ScienceWorld"

    def close(self) -> None:
        """Ends the JVM. Twice is fine."""
        _end(self._process)
        self._gateway.close(keep_callback_server=False, close_callback_server_connections=False)
        # Or py4j would call the dead JVM's port for every object that Python forgets.
        self._gateway._gateway_client.is_connected = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.close()


class GoldSimulator(Simulator):
    """A simulator that also makes reference paths, of train and dev variations alone."""

    heap = "-Xmx200m"
    allowed = _ORDINARY | {"getGoldActionSequence"}

    def load(self, variation: Variation) -> None:
        """As Simulator's. Raises TestPathError for an official test variation."""
        _refuse_test(variation)
        super().load(variation)

    def load_path(self, variation: Variation) -> list[str]:
        """Puts the simulator at the start of a task and returns its reference path.

        Raises TestPathError for an official test variation.
        """
        _refuse_test(variation)
        self._gateway.jvm.scienceworld.goldagent.PathFinder.precomputedExhaustivePaths().clear()
        self._load(variation, True)
        return [str(action) for action in self._ask("getGoldActionSequence")]


def _refuse_test(variation: Variation) -> None:
    if variation.official == "test":
        raise TestPathError(f"{variation.id} is an official test variation: its reference path stays unknown")


def _first_line(error: Any) -> str:
    """What a Java exception says; asking for it is a call of the JVM, which may be beyond answering."""
    try:
        return str(error.java_exception).partition("\n")[0]
    except Exception as failure:
        return f"it could not say why ({type(failure).__name__})"


# -- the JVM's process

_PROCESSES: weakref.WeakSet[subprocess.Popen[bytes]] = weakref.WeakSet()


def _launch(java: str, jar: Path, heap: str) -> tuple[subprocess.Popen[bytes], int, str]:
    """A JVM that serves the jar on a free port of loopback: (process, port, token that its clients need).

    The JVM ends when its standard input does, so also when this process is killed.
    """
    from py4j.java_gateway import find_jar_path

    classpath = os.pathsep.join((find_jar_path(), str(jar)))
    command = [java, heap, *JVM_FLAGS, *FRUGAL_FLAGS, "-classpath", classpath, "py4j.GatewayServer"]
    command += ["--die-on-broken-pipe", "--enable-auth", "0"]
    # Options of the user's environment would come on top of ours.
    other = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
    environment = {name: value for name, value in os.environ.items() if name not in other}
    environment["MALLOC_ARENA_MAX"] = "1"  # or each of its threads takes memory of its own
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            cwd=jar.parent,
        )
        _PROCESSES.add(process)
        assert process.stdout is not None
        watchdog = threading.Timer(START_SECONDS, process.kill)
        watchdog.start()
        port, token = process.stdout.readline().strip(), process.stdout.readline().strip()
        watchdog.cancel()
        if not port.isdigit() or not token:
            _end(process)
            errors.seek(0)
            said = " ".join((port + b" " + errors.read()).decode(errors="replace").split())[-400:]
            raise SimulatorDied(f"the JVM did not start: {said or 'it said nothing'}")
    threading.Thread(target=_drain, args=(process.stdout,), daemon=True).start()
    return process, int(port), token.decode()


def _drain(stream: Any) -> None:
    """Reads what the JVM prints, or it would block once the pipe is full."""
    try:
        while stream.read1(1 << 16):
            pass
    except (OSError, ValueError):
        pass  # closed


def _connect(port: int, token: str, call_seconds: float) -> Any:
    from py4j.java_gateway import GatewayParameters, JavaGateway

    return JavaGateway(
        gateway_parameters=GatewayParameters(
            port=port, auth_token=token, auto_field=True, read_timeout=call_seconds
        )
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


def _let_go() -> None:
    """In a forked child: closes its copies of the pipes that JVMs of the parent live by."""
    for process in _PROCESSES:
        if process.stdin is not None and not process.stdin.closed:
            os.close(process.stdin.fileno())


os.register_at_fork(after_in_child=_let_go)
