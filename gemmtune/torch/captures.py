"""Captures: tells when this process begins and ends capturing a CUDA graph.

`torch.cuda.graph`, `make_graphed_callables`, and the graphs of `torch.compile` and of engines all call
`CUDAGraph.capture_begin` and `capture_end`; both are wrapped once, when the first table is installed.
"""

from __future__ import annotations

import functools
from typing import Any, Final, Protocol

import torch


class Follower(Protocol):
    """A listener to captures."""

    def begins(self, graph: int) -> None:
        """A capture begins; it may still load and allocate. Must not raise."""

    def ended(self, graph: int) -> None:
        """It has ended or failed, or never began. Must not raise."""


class _Following:
    current: Follower | None = None


_FOLLOWING: Final = _Following()
#: The follower that was told of a graph's capture.
_BEGUN: Final[dict[int, Follower]] = {}
#: Marks a wrapped class.
_MARK: Final = "_gemmtune_follows"


def follow(follower: Follower | None, graphs: Any = torch.cuda.CUDAGraph) -> None:  # noqa: ANN401
    """Tells `follower`, and no other, of captures from now on.

    Args:
        graphs: the class of graphs.
    """
    _FOLLOWING.current = follower
    if follower is not None and not hasattr(graphs, _MARK):
        _wrap(graphs)


def followed() -> Follower | None:
    """The follower of captures."""
    return _FOLLOWING.current


def _wrap(graphs: Any) -> None:  # noqa: ANN401
    begin, end = graphs.capture_begin, graphs.capture_end

    @functools.wraps(begin)
    def capture_begin(self: object, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        follower = _FOLLOWING.current
        if follower is None:
            begin(self, *args, **kwargs)
            return
        _BEGUN[id(self)] = follower
        follower.begins(id(self))
        try:
            begin(self, *args, **kwargs)
        except BaseException:
            _ended(id(self))
            raise

    @functools.wraps(end)
    def capture_end(self: object, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        try:
            end(self, *args, **kwargs)
        finally:
            _ended(id(self))

    graphs.capture_begin, graphs.capture_end = capture_begin, capture_end
    setattr(graphs, _MARK, True)


def _ended(graph: int) -> None:
    follower = _BEGUN.pop(graph, None)
    if follower is not None:
        follower.ended(graph)
