"""Build cache over HTTP: a worker fetches missing builds from the service and offers its own."""

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
from tuner.fleet.builds import check_cubin
from tuner.fleet.service_client import ServiceClient
from workers.build import Build

_log = logging.getLogger("gemmtune.agent")
#: Offers waiting to be sent; further ones are dropped, since any build can be compiled again.
_MOST_WAITING: Final = 256
#: After a failed call, the service is not called for this long: workers should compile, not wait.
_PAUSE_SECONDS: Final = 10.0
#: Waiting longer than this would take longer than compiling.
_CALL_SECONDS: Final = 5.0
_BUILDS: Final = "/v1/builds"


class HttpBuildCache:
    """The builds of a service, for one arch; implements `workers.builder.BuildCache`.

    Attributes:
        arch: arch of this worker's device; nothing is fetched while it is None.
        fetched, offered: builds received from and sent to the service.
    """

    def __init__(self, service: ServiceClient, arch: str | None = None) -> None:
        self._service, self.arch = service, arch
        self._silent_until = 0.0
        self._waiting: Queue[dict[str, Any]] = Queue(_MOST_WAITING)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="build-cache", daemon=True)
        self._thread.start()
        self.fetched = self.offered = 0

    def fetch(self, digest: str) -> Build | None:
        """The build with this digest; None if the service has none or can't be reached."""
        if self.arch is None or time.monotonic() < self._silent_until:
            return None
        try:
            found = self._service.call("GET", f"{_BUILDS}/{digest}/cubin", seconds=_CALL_SECONDS)
            build = self._checked(digest, self.arch, found)
        except Unreachable as error:
            self._pause(error)
            return None
        except BuildRefused as error:
            _log.error("build %s is rejected: %s", digest[:12], error)
            return None
        except TunerError:
            return None  # not offered yet
        self.fetched += 1
        return build

    def offer(self, problem: Problem, config: Config, arch: str, build: Build) -> None:
        """Queues a build that was compiled here; a background thread sends it."""
        body = {
            "digest": build.digest, "problem": problem.key, "config": config.key, "arch": arch, "nvrtc": build.nvrtc,
            "registers": build.registers, "warnings": list(build.warnings), "seconds": build.seconds,
            "cubin": base64.b64encode(build.cubin).decode(),
        }  # fmt: skip
        try:
            self._waiting.put_nowait(body)
        except Full:
            _log.info("build %s is not offered: the queue is full", build.digest[:12])

    def close(self) -> None:
        """Stops sending; queued offers are dropped."""
        self._stop.set()
        self._thread.join()

    def _checked(self, digest: str, arch: str, found: dict[str, Any]) -> Build:
        """The build in a response of the service.

        Raises:
            BuildRefused: the response is malformed, damaged, or for another digest or arch.
        """
        try:
            cubin = base64.b64decode(found["cubin"], validate=True)
            about = found["build"]
            if (about["digest"], about["arch"]) != (digest, arch):
                raise BuildRefused(f"the service returned {about['digest'][:12]} for {about['arch']}")
            if hashlib.sha256(cubin).hexdigest() != about["cubin_sha256"]:
                raise BuildRefused("the cubin does not match its SHA-256")
            check_cubin(cubin, arch)
            return Build(digest, cubin, int(about["registers"]), tuple(about["warnings"]), str(about["nvrtc"]), 0.0)
        except (KeyError, TypeError, ValueError, binascii.Error) as error:
            raise BuildRefused(f"the service's response is malformed ({error!r})") from error

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                body = self._waiting.get(timeout=0.2)
            except Empty:
                continue
            if time.monotonic() < self._silent_until:
                continue
            try:
                self._service.call("POST", _BUILDS, body, seconds=_CALL_SECONDS)
                self.offered += 1
            except Unreachable as error:
                self._pause(error)
            except TunerError as error:
                _log.warning("the service refused build %s: %s", body["digest"][:12], error)

    def _pause(self, error: Unreachable) -> None:
        self._silent_until = time.monotonic() + _PAUSE_SECONDS
        _log.info("build sharing is paused for %g s: %s", _PAUSE_SECONDS, error)
