"""Counts, and writes the Prometheus text format.

prometheus-client keeps the ordinary metrics; children are cached here, because its `labels()` costs two thirds of an
increment. Per-pod and per-node series ("wide") are plain dictionaries whose text is made once: a hundred thousand of them
through the library would block the event loop for seconds at every scrape.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import prometheus_client
from prometheus_client.core import SummaryMetricFamily
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector, CollectorRegistry

from kubewright.metrics.table import QUANTILES, TABLE, Kind, Metric, for_provider

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
CHUNK = 5000
"""Wide series written without a pause; about 5 ms."""
SUMMARY_SAMPLES = 1000
"""A summary's quantiles are those of so many last observations."""

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]


class Registry:
    """The metrics of one process (or of one simulated operator: nothing is global).

    A metric appears when it is first written: what nothing writes yet is not shown as a zero.
    """

    def __init__(self, table: Sequence[Metric] = TABLE) -> None:
        self._metrics = {metric.name: metric for metric in table}
        self._registry = CollectorRegistry(auto_describe=False)
        self._library: dict[str, MetricWrapperBase] = {}
        self._summaries: dict[str, _Summary] = {}
        self._wide: dict[str, _Wide] = {}
        self._children: dict[tuple[str, tuple[str, ...]], Any] = {}
        for metric in table:
            if metric.wide:
                self._wide[metric.name] = _Wide(metric)
            elif metric.kind is Kind.SUMMARY:
                self._summaries[metric.name] = summary = _Summary(metric)
                self._registry.register(summary)

    def inc(self, name: str, amount: float = 1.0, /, **labels: str) -> None:
        """Count `amount` on a counter."""
        self._child(name, labels, Kind.COUNTER).inc(amount)

    def set(self, name: str, value: float, /, **labels: str) -> None:
        """Let a gauge be `value`."""
        wide = self._wide.get(name)
        if wide is None:
            self._child(name, labels, Kind.GAUGE).set(value)
        else:
            wide.set(self._values(name, labels), value)

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        """Add `value` to a histogram or a summary."""
        summary = self._summaries.get(name)
        if summary is None:
            self._child(name, labels, Kind.HISTOGRAM).observe(value)
        else:
            summary.observe(self._values(name, labels), value)

    def remove(self, name: str, /, **labels: str) -> None:
        """Forget the series with all these labels (some of the metric's, or all); none is fine."""
        metric = self._metric(name)
        unknown = sorted(labels.keys() - set(metric.labels))
        if unknown:
            raise ValueError(f"metric {name} has labels {list(metric.labels)}, not {unknown}")
        wanted = [(metric.labels.index(label), value) for label, value in labels.items()]
        wide = self._wide.get(name)
        keys = list(wide.series) if wide else [values for of, values in self._children if of == name]
        for values in keys:
            if all(values[index] == value for index, value in wanted):
                if wide:
                    del wide.series[values]
                else:
                    del self._children[name, values]
                    self._library[name].remove(*values)

    def replace(self, name: str, series: Mapping[tuple[str, ...], float] | Iterable[tuple[tuple[str, ...], float]]) -> None:
        """Let a wide gauge have exactly these series: label values in the table's order → value."""
        wide = self._wide.get(name)
        if wide is None:
            raise ValueError(f"metric {name} is not a wide gauge; use set and remove")
        before, wide.series = wide.series, {}
        for values, value in series.items() if isinstance(series, Mapping) else series:
            if len(values) != len(wide.metric.labels):
                raise ValueError(f"metric {name} has {len(wide.metric.labels)} labels, got {len(values)} values")
            known = before.get(values)
            wide.series[values] = (known[0] if known else wide.text(values), value)

    def derive(self, name: str, source: Callable[[], Iterable[tuple[tuple[str, ...], float]]]) -> None:
        """Let a wide gauge have the series that `source` gives each time it is written out; nothing of them is kept.

        `source` yields label values in the table's order, and is read in pieces: what it reads must not change meanwhile.
        """
        wide = self._wide.get(name)
        if wide is None:
            raise ValueError(f"metric {name} is not a wide gauge; use set and remove")
        wide.source = source

    def has(self, name: str) -> bool:
        """Whether the table has a metric of this name."""
        return name in self._metrics

    def widen(self, labels: Sequence[str]) -> None:
        """Put a provider's labels onto the metrics of nodes, see `table.for_provider`; before any of them is written."""
        for metric in for_provider(tuple(labels), tuple(self._metrics.values())):
            self._metrics[metric.name] = metric
            if metric.name in self._wide:
                self._wide[metric.name].metric = metric

    def value(self, name: str, /, **labels: str) -> float | None:
        """The value of a counter or gauge, or the count of a histogram or summary; None if there is no such series."""
        values = self._values(name, labels)
        if name in self._wide:
            source = self._wide[name].source
            if source is not None:
                return dict(source()).get(values)
            found = self._wide[name].series.get(values)
            return found[1] if found else None
        if name in self._summaries:
            state = self._summaries[name].states.get(values)
            return None if state is None else float(state.count)
        suffix = "_count" if self._metric(name).kind is Kind.HISTOGRAM else ""
        return self._registry.get_sample_value(f"{name}{suffix}", labels)

    def chunks(self) -> Iterator[bytes]:
        """The text format in pieces, none of which takes long to make."""
        yield prometheus_client.generate_latest(self._registry)
        for name in sorted(self._wide):
            yield from self._wide[name].chunks()

    def expose(self) -> bytes:
        return b"".join(self.chunks())

    def _metric(self, name: str) -> Metric:
        try:
            return self._metrics[name]
        except KeyError:
            raise ValueError(f"no metric is called {name!r}: add it to kubewright.metrics.table") from None

    def _values(self, name: str, labels: Mapping[str, str]) -> tuple[str, ...]:
        metric = self._metric(name)
        if len(labels) != len(metric.labels):
            raise ValueError(f"metric {name} has labels {list(metric.labels)}, got {sorted(labels)}")
        try:
            return tuple([labels[label] for label in metric.labels])
        except KeyError:
            raise ValueError(f"metric {name} has labels {list(metric.labels)}, got {sorted(labels)}") from None

    def _child(self, name: str, labels: Mapping[str, str], kind: Kind) -> Any:
        values = self._values(name, labels)
        child = self._children.get((name, values))
        if child is None:
            if self._metrics[name].kind is not kind or name in self._wide or name in self._summaries:
                raise ValueError(f"metric {name} is a {self._metrics[name].kind}, not a {kind}")
            metric = self._library.get(name)
            if metric is None:
                metric = self._library[name] = _make(self._metrics[name], self._registry)
            child = self._children[name, values] = metric.labels(*values) if values else metric
        elif self._metrics[name].kind is not kind:
            raise ValueError(f"metric {name} is a {self._metrics[name].kind}, not a {kind}")
        return child


def _make(metric: Metric, registry: CollectorRegistry) -> MetricWrapperBase:
    match metric.kind:
        case Kind.COUNTER:
            return prometheus_client.Counter(metric.name, metric.help, metric.labels, registry=registry)
        case Kind.GAUGE:
            return prometheus_client.Gauge(metric.name, metric.help, metric.labels, registry=registry)
        case _:
            return prometheus_client.Histogram(metric.name, metric.help, metric.labels, registry=registry, buckets=metric.buckets)


class _Wide:
    """A gauge with very many series."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.series: dict[tuple[str, ...], tuple[str, float]] = {}
        """Label values → the series' text up to the value, and the value."""
        self.source: Callable[[], Iterable[tuple[tuple[str, ...], float]]] | None = None
        """Where the series come from instead, each time they are asked for."""

    def set(self, values: tuple[str, ...], value: float) -> None:
        known = self.series.get(values)
        self.series[values] = (known[0] if known else self.text(values), value)

    def text(self, values: tuple[str, ...]) -> str:
        labels = ",".join(f'{label}="{_escape(value)}"' for label, value in zip(self.metric.labels, values, strict=True))
        return f"{self.metric.name}{{{labels}}} "

    def chunks(self) -> Iterator[bytes]:
        if self.source is not None:
            yield from self._derived(self.source())
            return
        if not self.series:
            return
        yield f"# HELP {self.metric.name} {self.metric.help}\n# TYPE {self.metric.name} gauge\n".encode()
        # A copy of the values: the caller may pause between chunks, and the world goes on meanwhile.
        rest = iter(list(self.series.values()))
        while part := list(islice(rest, CHUNK)):
            yield "".join([f"{text}{value}\n" for text, value in part]).encode()

    def _derived(self, found: Iterable[tuple[tuple[str, ...], float]]) -> Iterator[bytes]:
        rest = iter(found)
        head = f"# HELP {self.metric.name} {self.metric.help}\n# TYPE {self.metric.name} gauge\n"
        while part := list(islice(rest, CHUNK)):
            yield (head + "".join([f"{self.text(values)}{value}\n" for values, value in part])).encode()
            head = ""


def _escape(value: str) -> str:
    if '"' in value or "\\" in value or "\n" in value:
        return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return value


class _State:
    def __init__(self) -> None:
        self.count = 0
        self.sum = 0.0
        self.last: deque[float] = deque(maxlen=SUMMARY_SAMPLES)


class _Summary(Collector):
    """A summary with quantiles, which prometheus-client does not have; exact over the last observations."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self.states: dict[tuple[str, ...], _State] = {}

    def observe(self, values: tuple[str, ...], value: float) -> None:
        state = self.states.setdefault(values, _State())
        state.count += 1
        state.sum += value
        state.last.append(value)

    def collect(self) -> Iterator[SummaryMetricFamily]:
        family = SummaryMetricFamily(self._metric.name, self._metric.help)
        for values, state in self.states.items():
            labels = dict(zip(self._metric.labels, values, strict=True))
            ordered = sorted(state.last)
            for quantile in QUANTILES:
                index = min(int(quantile * len(ordered)), len(ordered) - 1)
                family.add_sample(self._metric.name, labels | {"quantile": f"{quantile:g}"}, ordered[index])
            family.add_sample(f"{self._metric.name}_sum", labels, state.sum)
            family.add_sample(f"{self._metric.name}_count", labels, state.count)
        if self.states:
            yield family
