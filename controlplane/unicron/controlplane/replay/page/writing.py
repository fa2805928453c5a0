"""The postmortem, to be copied and written on."""

from unicron.controlplane.replay.page.cells import folded
from unicron.controlplane.replay.page.postmortem import postmortem_of
from unicron.controlplane.replay.page.tree import Element, each, el
from unicron.controlplane.replay.story import IncidentStory


def postmortem(story: IncidentStory) -> Element:
    """As Markdown, a line in an element each; the page's script adds a button that copies it."""
    lines = (el("div", *line, part=True) for line in postmortem_of(story))
    return folded("Its skeleton in Markdown", each("div", lines, class_="markdown", tabindex="0"))
