"""PromQL as our alert rules use it, evaluated over two scrapes: parsed by promql-parser, so that typos don't pass."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
_SAMPLE = re.compile(r'^(\w+)(?:\{(.*)\})? (\S+)$')
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Scrapes:
    """Two scrapes of one service, some seconds apart."""

    before: str
    after: str
    seconds: float

    def value(self, expression: str) -> Vector:
        """What an expression yields at the second scrape."""
        import promql_parser

        found = self._value(promql_parser.parse(expression))
        assert isinstance(found, dict)
        return found

    def _value(self, node: Any) -> Any:  # noqa: ANN401  (promql-parser is untyped)
        match type(node).__name__:
            case "NumberLiteral":
                return node.val
            case "VectorSelector":
                return _selected(self.after, node)
            case "Call":
                return self._called(node)
            case "AggregateExpr":
                return _summed(self._value(node.expr), node)
            case "BinaryExpr":
                return _combined(node, self._value(node.lhs), self._value(node.rhs))
            case other:
                raise AssertionError(f"{other} is not evaluated here: teach tests/promql.py")

    def _called(self, node: Any) -> Vector:  # noqa: ANN401
        if node.func.name == "histogram_quantile":
            return _quantiles(self._value(node.args[0]), self._value(node.args[1]))
        selector = node.args[0].vector_selector
        after, before = _selected(self.after, selector), _selected(self.before, selector)
        per = {"rate": self.seconds, "delta": 1.0}[node.func.name]
        return {labels: (number - before.get(labels, 0.0)) / per for labels, number in after.items()}


def samples(text: str) -> list[tuple[str, dict[str, str], float]]:
    """Every sample of a scrape."""
    found = (_SAMPLE.match(line) for line in text.splitlines() if not line.startswith("#"))
    return [(one[1], dict(_LABEL.findall(one[2] or "")), float(one[3])) for one in found if one]


def _selected(text: str, selector: Any) -> Vector:  # noqa: ANN401
    found: Vector = {}
    for name, labels, number in samples(text):
        wanted = [_matches(labels.get(matcher.name, ""), matcher) for matcher in selector.matchers.matchers]
        if name == selector.name and all(wanted):
            found[frozenset(labels.items())] = number
    return found


def _matches(value: str, matcher: Any) -> bool:  # noqa: ANN401
    kind = str(matcher.op).rpartition(".")[2]
    if kind == "Equal":
        return bool(value == matcher.value)
    assert kind == "Re", kind
    return re.fullmatch(matcher.value, value) is not None


def _summed(vector: Vector, node: Any) -> Vector:  # noqa: ANN401
    kept = set(node.modifier.labels) if node.modifier else set()
    sums: Vector = defaultdict(float)
    for labels, number in vector.items():
        sums[frozenset(pair for pair in labels if pair[0] in kept)] += number
    return dict(sums)


def _combined(node: Any, left: Any, right: Any) -> Vector:  # noqa: ANN401
    if str(node.op) == "unless":
        on = set(node.modifier.matching.labels)
        taken = {frozenset(pair for pair in labels if pair[0] in on) for labels in right}
        return {labels: number for labels, number in left.items()
                if frozenset(pair for pair in labels if pair[0] in on) not in taken}  # fmt: skip
    if str(node.op) == "/":
        return {labels: number / right[labels] for labels, number in left.items() if right.get(labels)}
    holds = {">": lambda number: number > right, "==": lambda number: number == right}[str(node.op)]
    return {labels: number for labels, number in left.items() if holds(number)}


def _quantiles(share: float, buckets: Vector) -> Vector:
    """The upper edge of the bucket that holds the quantile, by all labels but `le`."""
    series: dict[Labels, list[tuple[float, float]]] = defaultdict(list)
    for labels, number in buckets.items():
        series[frozenset(pair for pair in labels if pair[0] != "le")].append((float(dict(labels)["le"]), number))
    found: Vector = {}
    for labels, counts in series.items():
        ordered = sorted(counts)
        if ordered[-1][1] > 0:
            found[labels] = next(edge for edge, number in ordered if number >= share * ordered[-1][1])
    return found
