"""The order in which units of a model are used, as it was in the last step."""


class UseOrder:
    """Predicts by the recorded step; a step that goes another way is followed, counted, and recorded anew."""

    def __init__(self):
        self._recorded, self._current, self._at = [], [], 0
        self.misses = 0

    def use(self, unit):
        """Notes a use. Counts as a miss if another unit was expected."""
        self._current.append(unit)
        if not self._recorded:
            return
        if self._at < len(self._recorded) and self._recorded[self._at] == unit:
            self._at += 1
            return
        self.misses += 1
        after = [i for i in range(self._at, len(self._recorded)) if self._recorded[i] == unit]
        if after:
            self._at = after[0] + 1

    def n_uses(self):
        return len(self._current)

    def end_step(self):
        if self._current:
            self._recorded, self._current, self._at = self._current, [], 0

    def next_units(self, n):
        """The next `n` distinct units, of the following step, too."""
        found = []
        for unit in self._recorded[self._at :] + self._recorded[: self._at]:
            if unit not in found:
                found.append(unit)
            if len(found) == n:
                break
        return found

    def furthest(self, units):
        """Which of `units` is used last from here on."""
        distance = {}
        for i, unit in enumerate(self._recorded[self._at :] + self._recorded[: self._at]):
            distance.setdefault(unit, i)
        return max(units, key=lambda unit: distance.get(unit, len(self._recorded)))
