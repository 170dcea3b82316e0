"""For the reference of the documentation site: ``Example:`` begins a section with code."""

import re
from typing import Any

from griffe import Extension, Object

HEADING = re.compile(r"^Example:$", re.MULTILINE)


class ExampleSections(Extension):
    """Turn ``Example:`` into ``Examples:``, the only form whose doctests are shown as code."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Change the docstring of an object that was read."""
        del kwargs  # what only other extensions need
        if obj.docstring is not None:
            obj.docstring.value = HEADING.sub("Examples:", obj.docstring.value)
