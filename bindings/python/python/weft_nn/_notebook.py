"""Pages in notebooks."""

from __future__ import annotations

import html
from typing import Any


def show(page: str, height: int) -> Any:
    """Shows the page in a frame of a notebook."""
    import IPython.display

    shown: Any = IPython.display
    frame = f'<iframe srcdoc="{html.escape(page)}" width="100%" height="{height}" style="border: 0"></iframe>'
    return shown.display(shown.HTML(frame))
