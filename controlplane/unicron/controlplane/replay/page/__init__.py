"""The same views as a page: one HTML file that asks for nothing else.

Pure: strings from the views of `replay`, never from a log itself, so that text, JSON and page tell
the same. No network, no clock: the same views give the same bytes.
"""

from unicron.controlplane.replay.page.document import Frame, incident_page, overview_page

__all__ = ["Frame", "incident_page", "overview_page"]
