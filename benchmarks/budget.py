"""A budget of wall-clock time: its clock, its learning rate, and its curve."""

import contextlib
import json
import time

# The optimizer of all sides is AdamW with these.
WEIGHT_DECAY, EPSILON = 0.01, 1e-8
# Steps, of which a budget always allows fewer.
FOREVER = 10**9


class Stopwatch:
    """Seconds of a budget that have been used, with pauses.

    Args:
        budget: float. Seconds.
        clock: function without arguments that returns seconds.
    """

    def __init__(self, budget, clock=time.perf_counter):
        self.budget = budget
        self._clock = clock
        self._used = 0.0
        self._since = clock()

    def elapsed(self):
        """Seconds used so far; a pause that isn't over uses none."""
        running = 0.0 if self._since is None else self._clock() - self._since
        return self._used + running

    def share(self):
        """How much of the budget is used, 1 or more when it is spent."""
        return self.elapsed() / self.budget

    @contextlib.contextmanager
    def paused(self):
        """Uses no time for what is done inside."""
        self._used, self._since = self.elapsed(), None
        try:
            yield
        finally:
            self._since = self._clock()


def rate_factor(share, warmup):
    """Linear warm-up to 1 and linear decay to 0 at the end of the budget.

    Args:
        share: float, `Stopwatch.share()`.
        warmup: float in [0, 1), the share of the budget that is warm-up.
    """
    if share < warmup:
        return share / warmup
    return max(0.0, (1.0 - share) / (1.0 - warmup))


class Curve:
    """What a model has learned, over the time that it used.

    Args:
        stopwatch: `Stopwatch`.
        points: int. In how many equal parts the budget is cut; each ends in an
            evaluation, on which the clock stands still.
        path: where a line of JSON is added for each point.
        known: dict. What all lines have.
    """

    def __init__(self, stopwatch, points, path, known):
        self.stopwatch = stopwatch
        self.steps = 0
        self._points, self._done = points, 0
        self._path, self._known = path, known

    def after_step(self, evaluate):
        """Counts a step that is computed, and evaluates where a part has ended.

        Args:
            evaluate: function without arguments that returns a dict of numbers.

        Returns:
            Whether the budget is spent.
        """
        self.steps += 1
        share = self.stopwatch.share()
        reached = min(int(share * self._points), self._points)
        if reached > self._done:
            self._done = reached
            with self.stopwatch.paused():
                seconds = self.stopwatch.elapsed()
                point = {"seconds": round(seconds, 2), "steps": self.steps}
                point |= evaluate()
                with open(self._path, "a", encoding="utf-8") as file:
                    file.write(json.dumps(self._known | point) + "\n")
        return share >= 1
