"""The supervisor against children that answer, hang, crash or send garbage."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.fleet import eventually
from workers import supervisor as module
from workers.errors import ProcessError
from workers.supervisor import Died, Supervisor

CHILD = """
import os, sys, time
sys.path.insert(0, {root!r})
from workers.framing import receive, send
read_fd, write_fd = int(sys.argv[1]), int(sys.argv[2])
while True:
    question = receive(read_fd)
    match question["do"]:
        case "echo": send(write_fd, {{"said": question["what"], "pid": os.getpid()}})
        case "hang": time.sleep(60)
        case "exit": sys.exit("these are my last words")
        case "abort": os.abort()
        case "unnamed": os.kill(os.getpid(), 40)
        case "garbage": os.write(write_fd, b"\\x05\\x00\\x00\\x00hello")
        case "flood": os.write(write_fd, b"\\xff\\xff\\xff\\xff")
        case "chatter":
            print("noise on standard output", flush=True)
            send(write_fd, {{}})
"""


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    script = tmp_path / "child.py"
    script.write_text(CHILD.format(root=str(Path(__file__).resolve().parents[3])))
    opened = Supervisor([str(script)])
    yield opened
    opened.close()


def test_questions_are_answered_by_one_process(supervisor: Supervisor) -> None:
    first = supervisor.ask({"do": "echo", "what": 1}, 60)
    second = supervisor.ask({"do": "echo", "what": "two"}, 60)
    assert (first["said"], second["said"]) == (1, "two")
    assert first["pid"] == second["pid"]


def test_a_child_imports_what_its_parent_does_whatever_lies_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "workers").mkdir()
    (tmp_path / "workers" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    # Here imports skip what is no text.
    monkeypatch.setattr(sys, "path", [*sys.path, tmp_path])
    compiler = Supervisor(["-m", "workers.compilers"], "compiler")
    with contextlib.closing(compiler):
        assert compiler.ask({"source": "", "arch": "sm_90a"}, 60)


def test_a_child_outlives_the_thread_that_started_it() -> None:
    compiler, tasks = Supervisor(["-m", "workers.compilers"], "compiler"), list[int]()

    def ask() -> None:
        tasks.append(threading.get_native_id())
        compiler.ask({"source": "", "arch": "sm_90a"}, 60)

    asking = threading.Thread(target=ask)
    with contextlib.closing(compiler):
        asking.start()
        asking.join()
        eventually(lambda: not Path(f"/proc/self/task/{tasks[0]}").exists())
        assert compiler.ask({"source": "", "arch": "sm_90a"}, 60)


#: A program that forks once it has started a child: the forked one starts its own.
FORKED = """
import os
from workers.supervisor import Supervisor
def answer():
    return Supervisor(["-m", "workers.compilers"], "compiler").ask({"source": "", "arch": "sm_90a"}, 60)
assert answer()
if not (child := os.fork()):
    os._exit(0 if answer() else 1)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_program_starts_children_too() -> None:
    assert subprocess.run([sys.executable, "-c", FORKED], timeout=100, check=False).returncode == 0


#: A child that answers once and never looks whether it is still wanted, and a program that has it.
DEAF = 'import os, sys, time; os.write(int(sys.argv[2]), b"\\2\\0\\0\\0{}"); time.sleep(120)'
PROGRAM = """
import sys
from workers.supervisor import Supervisor
sys.path.append({folder!r})
supervisor = Supervisor(["-m", "deaf"])
supervisor.ask({{}}, 60)
print(supervisor._process.pid, flush=True)
sys.stdin.read()
"""


def test_a_child_ends_with_its_program_whatever_it_is_doing(tmp_path: Path) -> None:
    (tmp_path / "deaf.py").write_text(DEAF)
    program = [sys.executable, "-c", PROGRAM.format(folder=str(tmp_path))]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout
        child = os.pidfd_open(int(started.stdout.readline()))
        started.kill()
    ended = select.poll()
    ended.register(child, select.POLLIN)
    assert ended.poll(60_000)
    os.close(child)


def test_a_hang_is_killed_at_its_deadline_and_the_next_question_gets_a_fresh_process(supervisor: Supervisor) -> None:
    before = supervisor.ask({"do": "echo", "what": 0}, 60)["pid"]
    with pytest.raises(Died, match=r"0\.2 s") as death:
        supervisor.ask({"do": "hang"}, 0.2)
    assert death.value.hung
    assert not supervisor.alive
    assert supervisor.ask({"do": "echo", "what": 0}, 60)["pid"] != before


def test_what_is_closed_starts_no_process_again(supervisor: Supervisor) -> None:
    supervisor.ask({"do": "echo", "what": 0}, 60)
    supervisor.close()
    with pytest.raises(ProcessError, match="was closed: open the device again"):
        supervisor.ask({"do": "echo", "what": 0}, 60)


def test_who_waits_while_another_thread_closes_is_told(supervisor: Supervisor) -> None:
    supervisor.tell({"do": "hang"}, 60)
    closing = threading.Timer(0.2, supervisor.close)
    closing.start()
    with pytest.raises(Died, match="ended"):
        supervisor.hear(60)
    closing.join()
    assert not supervisor.alive


def test_a_process_that_is_being_started_while_another_thread_closes_is_ended(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing, start = threading.Thread(target=supervisor.close), subprocess.Popen

    def started(*of: Any, **options: Any) -> Any:  # noqa: ANN401
        closing.start()
        eventually(lambda: supervisor._closed)
        time.sleep(0.2)
        return start(*of, **options)

    monkeypatch.setattr("subprocess.Popen", started)
    began = time.monotonic()
    with pytest.raises(Died, match="is not running"):
        supervisor.ask({"do": "hang"}, 20)
    closing.join()
    assert time.monotonic() - began < 10
    assert not supervisor.alive


def test_a_process_that_does_not_read_a_long_question_is_killed_too(supervisor: Supervisor) -> None:
    long = {"do": "echo", "what": "x" * 2**20}
    assert supervisor.ask(long, 60)["said"] == long["what"]
    supervisor.tell({"do": "hang"})
    with pytest.raises(Died, match=r"0\.2 s") as death:
        supervisor.ask(long, 0.2)
    assert death.value.hung
    assert not supervisor.alive


def test_an_exit_is_told_with_its_last_words(supervisor: Supervisor) -> None:
    with pytest.raises(Died, match=r"exit status 1.*last words") as death:
        supervisor.ask({"do": "exit"}, 60)
    assert not death.value.hung


@pytest.mark.parametrize(("do", "told"), [("abort", "signal SIGABRT"), ("unnamed", "signal 40")])
def test_a_crash_is_told_with_its_signal(supervisor: Supervisor, do: str, told: str) -> None:
    with pytest.raises(Died, match=rf"\({told};"):
        supervisor.ask({"do": do}, 60)


@pytest.mark.parametrize("do", ["garbage", "flood"])
def test_nonsense_on_the_pipe_costs_the_process_and_nothing_else(supervisor: Supervisor, do: str) -> None:
    with pytest.raises(Died):
        supervisor.ask({"do": do}, 60)
    assert supervisor.ask({"do": "echo", "what": 3}, 60)["said"] == 3


def test_a_death_leaves_no_file_open_and_no_words_to_the_next_process(supervisor: Supervisor) -> None:
    with pytest.raises(Died, match="last words"):
        supervisor.ask({"do": "exit"}, 60)
    before = os.listdir("/proc/self/fd")
    for _ in range(2):
        with pytest.raises(Died) as death:
            supervisor.ask({"do": "abort"}, 60)
        assert "last words" not in str(death.value)
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_standard_output_is_not_the_protocol(supervisor: Supervisor) -> None:
    assert supervisor.ask({"do": "chatter"}, 60) == {}


def test_a_process_that_no_signal_ends_is_an_error_and_no_hang(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor.ask({"do": "echo", "what": 0}, 60)
    held = supervisor._process
    assert held
    # As one that waits in a driver's call, which no test can make.
    with monkeypatch.context() as patch:
        patch.setattr(module, "END_SECONDS", 0.1)
        patch.setattr("os.killpg", lambda *_: None)
        supervisor.tell({"do": "hang"})
        with pytest.raises(ProcessError, match=rf"process {held.pid}, was killed and does not end"):
            supervisor.hear(0.2)
    held.kill()
    held.wait()
    assert supervisor.ask({"do": "echo", "what": 4}, 60)["said"] == 4


@contextlib.contextmanager
def files_left(count: int) -> Iterator[None]:
    """This process may open this many more files."""
    limits, held = resource.getrlimit(resource.RLIMIT_NOFILE), list[int]()
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, limits[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(count):
            os.close(held.pop())
        yield
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_process_that_lacks_files_is_an_error_and_starts_once_there_are_some(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise FileNotFoundError(2, "No usable temporary directory found")

    with monkeypatch.context() as patch:
        patch.setattr("tempfile.TemporaryFile", full)
        with pytest.raises(ProcessError, match=r"can't be started \(No usable temporary directory found\)"):
            supervisor.ask({"do": "echo", "what": 0}, 60)
    with monkeypatch.context() as patch:
        patch.setattr(module, "_STARTER", ThreadPoolExecutor(1))
        patch.setattr("threading.Thread.start", lambda _: (_ for _ in ()).throw(RuntimeError("can't start new thread")))
        with pytest.raises(ProcessError, match=r"can't be started \(can't start new thread\)"):
            supervisor.ask({"do": "echo", "what": 0}, 60)
    before = len(os.listdir("/proc/self/fd"))
    # Neither pipe, one, both of them.
    for count in (0, 2, 3, 4):
        with files_left(count), pytest.raises(ProcessError, match=r"can't be started \(Too many open files\)"):
            supervisor.ask({"do": "echo", "what": 0}, 60)
    assert len(os.listdir("/proc/self/fd")) == before
    assert supervisor.ask({"do": "echo", "what": 5}, 60)["said"] == 5
