"""Reads pages back: what a browser would make of the markup, and what the page's script would draw
of the packed stories."""

import base64
import json
import zlib
from html.parser import HTMLParser

from unicron.controlplane.replay.page import Frame
from unicron.controlplane.replay.page.tree import Element

FRAME = Frame(
    cluster="c",
    log="x.ndjson",
    upto=9,
    holds=True,
    record="the record is verified to #9",
    command_end="--log x.ndjson",
)
VOID = {"meta", "br"}


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.root = ("page", {}, [])
        self.open = [self.root]

    def handle_starttag(self, tag, attrs):
        node = (tag, dict(attrs), [])
        assert len(node[1]) == len(attrs), f"an attribute twice in <{tag}>"
        self.open[-1][2].append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag, f"</{tag}> ends something else"

    def handle_data(self, data):
        self.open[-1][2].append(data)

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data}")


def parsed(page):
    """The page as nested (tag, attributes, children)."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == [reader.root]
    return reader.root


def text(node):
    return node if isinstance(node, str) else "".join(map(text, node[2]))


def every(node, tag=None, **attributes):
    """All elements in it with this tag and these attributes, in the order of the page."""
    found = []
    for child in node[2]:
        if isinstance(child, str):
            continue
        wanted = attributes.items() <= {k.rstrip("_"): v for k, v in child[1].items()}.items()
        if wanted and tag in (None, child[0]):
            found.append(child)
        found += every(child, tag, **attributes)
    return found


def skeleton(node):
    """Its elements and the names of their attributes, without any text."""
    return (
        node[0],
        sorted(node[1]),
        [skeleton(child) for child in node[2] if not isinstance(child, str)],
    )


def island(page):
    (script,) = every(parsed(page), "script", id="stories")
    return json.loads(text(script))


def drawn(page):
    """The stories in it, in the order of the list, as the page's script draws them; None where one
    is left out."""
    data = island(page)
    packed = json.loads(zlib.decompress(base64.b64decode(data["packed"])))
    left = data["last"] + 1 - data["told"]
    stories = [_draw(packed, item) for item in packed["elements"][::-1]]
    assert len(stories) == data["told"]
    return [None] * left + stories


def _draw(packed, item):
    own = iter(item[1:])

    def value():
        given = next(own)
        return packed["texts"][given] if isinstance(given, int) else given

    def build(shape):
        tag, attributes, children = shape
        pairs = tuple((name, value() if same is None else same) for name, same in attributes)
        content = []
        for child in children:
            if isinstance(child, list):
                content.append(build(child))
                continue
            for _ in range(child):
                given = value()
                content.append(_draw(packed, given) if isinstance(given, list) else given)
        return Element(tag, pairs, tuple(content))

    element = build(packed["shapes"][item[0]])
    assert next(own, None) is None
    return element


def plain(element):
    """The element without what is not packed."""
    children = () if element.tag == "circle" else element.children
    return Element(
        element.tag,
        element.attributes,
        tuple(c if isinstance(c, str) else plain(c) for c in children),
    )
