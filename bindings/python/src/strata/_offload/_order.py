"""The order in which units of a model are used, as it was in the last step."""

import bisect

MOST_USES = 1 << 20  # without a step, as in an evaluation; then the order is recorded as if there had been one


class UseOrder:
    """Predicts by the recorded step; a step that goes another way is followed, counted, and recorded anew."""

    def __init__(self):
        self._recorded, self._current, self._at = [], [], 0
        self._positions = {}  # where each unit is in the recorded order
        self.misses = 0

    def use(self, unit):
        """Notes a use. Counts as a miss if another unit was expected."""
        self._current.append(unit)
        if len(self._current) > MOST_USES:
            self.end_step()
        if not self._recorded:
            return
        if self._at < len(self._recorded) and self._recorded[self._at] == unit:
            self._at += 1
            return
        self.misses += 1
        after = self._next_position(unit)
        if after is not None:
            self._at = after + 1

    def n_uses(self):
        return len(self._current)

    def end_step(self):
        if self._current:
            self._recorded, self._current, self._at = self._current, [], 0
            self._positions = {}
            for position, unit in enumerate(self._recorded):
                self._positions.setdefault(unit, []).append(position)

    def _next_position(self, unit):
        """Where a unit is next in the recorded order; None if not before its end."""
        positions = self._positions.get(unit, [])
        found = bisect.bisect_left(positions, self._at)
        return positions[found] if found < len(positions) else None

    def next_units(self, n):
        """The next `n` distinct units, of the following step, too."""
        found = []
        for i in range(len(self._recorded)):
            unit = self._recorded[(self._at + i) % len(self._recorded)]
            if unit not in found:
                found.append(unit)
            if len(found) == n:
                break
        return found

    def distance(self, unit):
        """How many uses later a unit is used again, in the following step, too; more than all if it is in neither."""
        if unit not in self._positions:
            return len(self._recorded)
        position = self._next_position(unit)
        return position - self._at if position is not None else self._positions[unit][0] + len(self._recorded) - self._at
