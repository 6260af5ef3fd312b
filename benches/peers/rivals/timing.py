"""How long one operation takes."""

import gc
import math
import statistics
import time

# A sample lasts at least this long, in seconds, so that reading the clock costs nothing beside it.
MIN_SAMPLE_S = 1e-3
MIN_SAMPLES = 3


def measure(operation, seconds):
    """Repeats `operation` for about `seconds` seconds.

    Returns the median processor time of a single operation, in seconds; how many were carried out;
    and the share of the time that the process had the processor. The operations run on one thread,
    so that processor time is what a clock shows on a core that is idle otherwise, and on a busy one
    a rival is not made to look slow.
    """
    repeats = max(1, math.ceil(MIN_SAMPLE_S / time_calls(operation.call, 1)))
    samples = []
    gc.disable()
    start, processor_start = time.perf_counter(), time.process_time()
    while len(samples) < MIN_SAMPLES or time.perf_counter() < start + seconds:
        samples.append(time_calls(operation.call, repeats))
    share = (time.process_time() - processor_start) / (time.perf_counter() - start)
    gc.enable()
    each = repeats * operation.batch
    return statistics.median(samples) / each, len(samples) * each, share


def time_calls(call, repeats):
    """Returns seconds of processor time that `repeats` calls take together, never 0."""
    start = time.process_time()
    for _ in range(repeats):
        call()
    return max(time.process_time() - start, 1e-9)
