"""The shelf over HTTP: a worker asks the service for builds that it lacks, and offers those that it made."""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import threading
import time
from queue import Empty, Full, Queue
from typing import Any, Final

from space.config import Config
from space.problem import Problem
from tuner.errors import BuildRefused, TunerError, Unreachable
from tuner.fleet.agent.service import Service
from tuner.fleet.builds import check_cubin
from workers.build import Build

_log = logging.getLogger("gemmtune.agent")
#: Offers that wait for the service; more are forgotten, because each can be made again.
_MOST_WAITING: Final = 256
#: After a call that failed, the service is left alone for so long: compiling is what we are here for.
_PAUSE_SECONDS: Final = 10.0
#: A build is not worth waiting longer for than compiling it takes.
_CALL_SECONDS: Final = 5.0
_OFFER: Final = "/v1/builds"


class HttpShelf:
    """Builds of a service, for one arch.

    Attributes:
        arch: of this worker's device; what is for another arch is not taken, and nothing before it is known.
        fetched, offered: how many went each way.
    """

    def __init__(self, service: Service, arch: str | None = None) -> None:
        self._service, self.arch = service, arch
        self._silent_until = 0.0
        self._waiting: Queue[dict[str, Any]] = Queue(_MOST_WAITING)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shelf", daemon=True)
        self._thread.start()
        self.fetched = self.offered = 0

    def fetch(self, digest: str) -> Build | None:
        """The build with this digest; None when there is none, or it can't be had now."""
        if self.arch is None or time.monotonic() < self._silent_until:
            return None
        try:
            found = self._service.call("GET", f"{_OFFER}/{digest}/cubin", seconds=_CALL_SECONDS)
            build = self._checked(digest, self.arch, found)
        except Unreachable as error:
            self._pause(error)
            return None
        except BuildRefused as error:
            _log.error("build %s is not used: %s", digest[:12], error)
            return None
        except TunerError:
            return None  # it was never offered
        self.fetched += 1
        return build

    def offer(self, problem: Problem, config: Config, arch: str, build: Build) -> None:
        """Takes a build that was made here; it is sent by and by."""
        body = {
            "digest": build.digest, "problem": problem.key, "config": config.key, "arch": arch, "nvrtc": build.nvrtc,
            "registers": build.registers, "warnings": list(build.warnings), "seconds": build.seconds,
            "cubin": base64.b64encode(build.cubin).decode(),
        }  # fmt: skip
        try:
            self._waiting.put_nowait(body)
        except Full:
            _log.info("build %s is not offered: too many wait", build.digest[:12])

    def close(self) -> None:
        """Sends no more."""
        self._stop.set()
        self._thread.join()

    def _checked(self, digest: str, arch: str, found: dict[str, Any]) -> Build:
        """What the service gave, if it is what it should be.

        Raises:
            BuildRefused: it is not.
        """
        try:
            cubin = base64.b64decode(found["cubin"], validate=True)
            about = found["build"]
            if (about["digest"], about["arch"]) != (digest, arch):
                raise BuildRefused(f"the service gave {about['digest'][:12]} for {about['arch']}")
            if hashlib.sha256(cubin).hexdigest() != about["cubin_sha256"]:
                raise BuildRefused("its bytes were damaged on the way")
            check_cubin(cubin, arch)
            return Build(digest, cubin, int(about["registers"]), tuple(about["warnings"]), str(about["nvrtc"]), 0.0)
        except (KeyError, TypeError, ValueError, binascii.Error) as error:
            raise BuildRefused(f"the service's answer is none ({error!r})") from error

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                body = self._waiting.get(timeout=0.2)
            except Empty:
                continue
            if time.monotonic() < self._silent_until:
                continue
            try:
                self._service.call("POST", _OFFER, body, seconds=_CALL_SECONDS)
                self.offered += 1
            except Unreachable as error:
                self._pause(error)
            except TunerError as error:
                _log.warning("build %s was not taken: %s", body["digest"][:12], error)

    def _pause(self, error: Unreachable) -> None:
        self._silent_until = time.monotonic() + _PAUSE_SECONDS
        _log.info("builds are not shared for a while: %s", error)
