"""What tracing costs: CPU of a message that is sent and of a run, without any service.

    scripts/bench tracing [--rounds N]

Spans go through the SDK's own batches to an exporter that drops them. All of the process's CPU
counts, so that of the SDK's thread, too.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler, SamplingResult

from benchmarks.measuring import seconds_of, tasks_of
from benchmarks.report import print_table
from feedback.tracing.spans import Spans
from processing.worker.traced_runs import TracedRuns, untraced

TIMES = 2_000
"""In one measurement; fewer than the SDK keeps before it drops spans."""


class Dropping(SpanExporter):
    """Sends nothing anywhere."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:  # noqa: ARG002
        """They are gone."""
        return SpanExportResult.SUCCESS


class AllOrNone(Sampler):
    """Takes every trace, or none: a tracer keeps its sampler."""

    def __init__(self) -> None:
        self.chosen: Sampler = ALWAYS_ON

    def should_sample(self, *given: Any, **named: Any) -> SamplingResult:
        """As the chosen one does."""
        return self.chosen.should_sample(*given, **named)

    def get_description(self) -> str:
        """Its name."""
        return "AllOrNone"


class TracingCosts:
    """Work, measured with every trace sampled or with none."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self._sampler = AllOrNone()
        self._provider = TracerProvider(sampler=self._sampler, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(Dropping()))
        trace.set_tracer_provider(self._provider)

    def of(self, work: Callable[[], object], sampler: Sampler) -> float:
        """Microseconds of one call: the median."""
        self._sampler.chosen = sampler
        found = [seconds_of(lambda: self._many(work), 1) for _ in range(self._rounds)]
        return statistics.median(found) / TIMES * 1e6

    def _many(self, work: Callable[[], object]) -> None:
        for _ in range(TIMES):
            work()
        self._provider.force_flush()


def main() -> None:
    """Measures and prints."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=7)
    costs = TracingCosts(max(1, arguments.parse_args().rounds))
    spans, task = Spans(), tasks_of(1)[0]
    runs, headers = TracedRuns(spans, "group"), [("ce_id", b"id-0"), ("ce_type", b"pay")]

    def send() -> None:
        spans.sending("t", "id-0", "pay", b"k", headers).reported(None)

    def run() -> None:
        with runs.run(task):
            pass

    def transaction() -> None:
        with untraced((), ()):
            pass

    samplers = ALWAYS_ON, ALWAYS_OFF
    print_table(
        "CPU of tracing, microseconds",
        ("", "sampled", "left out", "off"),
        [
            ("a message sent", *(round(costs.of(send, one), 1) for one in samplers), ""),
            ("a run", *(round(costs.of(run, one), 1) for one in samplers), ""),
            ("a transaction", "", "", round(costs.of(transaction, ALWAYS_ON), 2)),
        ],
    )


if __name__ == "__main__":
    main()
