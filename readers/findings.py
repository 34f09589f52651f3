"""Collects what is wrong with a data set, without drowning in it."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

from readers.records import Finding, Severity

# More of one kind tell nothing new; a million of them would fill the memory.
KEPT_PER_CODE = 1000


class FindingLog(list[Finding]):
    """A list of findings that keeps the first thousand of each code and counts the rest.

    Args:
        source: what `where` of the closing findings says.
    """

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source
        self._seen: Counter[tuple[Severity, str]] = Counter()

    def warn(self, code: str, where: str, message: str, *, action: str, **about: Any) -> None:
        """Add a finding that is listed and handled as `action` says.

        Args:
            code: short stable name.
            where: file and line, or file and id.
            message: what is wrong, with the value.
            action: what is done about it.
            about: `image_id` and `box_xyxy` of the Finding.
        """
        self._note(Finding("warning", code, where, message, action, **about))

    def fail(self, code: str, where: str, message: str, **about: Any) -> None:
        """Add a finding that stops `prepare`; arguments as for `warn`."""
        self._note(Finding("error", code, where, message, "nothing is prepared", **about))

    def close(self) -> None:
        """Add one finding for each code that had more than are kept."""
        for (severity, code), seen in self._seen.items():
            rest = seen - KEPT_PER_CODE
            if rest > 0:
                message = f"{rest} more findings of this kind"
                self.append(Finding(severity, code, self.source, message, "as above", count=rest))
        self._seen.clear()

    def _note(self, finding: Finding) -> None:
        if finding.box_xyxy is not None and not all(map(math.isfinite, finding.box_xyxy)):
            finding = replace(finding, box_xyxy=None)  # neither JSON nor a drawing can show it
        key = (finding.severity, finding.code)
        self._seen[key] += 1
        if self._seen[key] <= KEPT_PER_CODE:
            self.append(finding)
