"""YAML of other programs: plain values only, and never more of them than the text holds.

The configuration has a reader of its own, with lines (steps/yaml_source.py).
"""

from __future__ import annotations

from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.events import AliasEvent
from yaml.nodes import Node, ScalarNode


class _PlainLoader(yaml.SafeLoader):
    """Knows no tag that makes objects; an alias may repeat a scalar, not a list or a mapping.

    Nine lists of nine aliases each, one within the other, are a page of text and a billion entries
    for whoever walks through them.
    """

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        if self.check_event(AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            known = self.anchors.get(event.anchor)
            if known is None or not isinstance(known, ScalarNode):
                message = f"the alias *{event.anchor} repeats a list or a mapping; write it out"
                raise ComposerError(None, None, message, event.start_mark)
        return super().compose_node(parent, index)


def load_plain_yaml(text: str) -> Any:
    """Return what a YAML text of one document holds: None, scalars, lists and dicts.

    Raises:
        yaml.YAMLError: if it is no YAML, has a tag that makes objects, or an alias that multiplies.
        RecursionError: if it is nested too deeply.
    """
    return yaml.load(text, Loader=_PlainLoader)
