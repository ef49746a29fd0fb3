"""Pages in notebooks."""

from __future__ import annotations

import html
from typing import Any


def show(page: str, height: int) -> Any:
    """Shows the page in a frame of a notebook."""
    from IPython.display import HTML, display

    frame = f'<iframe srcdoc="{html.escape(page)}" width="100%" height="{height}" style="border: 0"></iframe>'
    return display(HTML(frame))
