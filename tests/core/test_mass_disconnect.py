"""The server reports that most agents are cut off at once: that is the network, or the server."""

from tests.core.reading import kinds
from tests.core.story import running
from unicron import events as ev


def all_cut(nodes=3):
    story = running(nodes)
    for n in range(1, nodes + 1):
        story.lose(f"n{n}")
    return story


def back(story, node):
    """Its agent and its workers are connected again."""
    story.connect("agent", node, story.state.nodes[node].incarnation)
    for worker in story.state.workers.values():
        if worker.node == node:
            story.connect("worker", worker.worker, worker.incarnation)


def suspect(story, node):
    known = story.state.nodes[node]
    story.decide_input(
        ev.NodeSuspected(
            node=known.node,
            incarnation=known.incarnation,
            newest_fact=known.last_fact,
            evidence="silent for 2100 ms",
        )
    )


def test_nobody_is_given_up_while_one_after_the_other_comes_back():
    story = all_cut()
    assert kinds(story.settle()) == []
    for node in ("n2", "n1", "n3"):
        back(story, node)
        assert kinds(story.settle()) == []
    assert {n.status for n in story.state.nodes.values()} == {"healthy"}


def test_the_first_of_many_that_are_cut_off_is_not_given_up():
    """They go one after the other within the limit, as when a server shuts down gracefully."""
    story = running(3)
    story.cut("n1")
    assert kinds(story.settle()) == []
    story.cut("n2")
    for node in ("n1", "n2"):
        story.stay_closed(node)
    assert kinds(story.settle()) == []
    back(story, "n2")
    assert kinds(story.settle()) == []
    back(story, "n1")
    assert {n.status for n in story.state.nodes.values()} == {"healthy"}


def test_who_stays_away_and_silent_is_given_up():
    story = all_cut()
    story.settle()
    back(story, "n1")
    back(story, "n2")
    assert kinds(story.settle()) == []
    suspect(story, "n3")
    assert kinds(story.settle())[0] == "NodeLost"


def test_whoever_is_cut_off_alone_after_that_is_given_up_at_once():
    story = all_cut()
    for node in ("n1", "n2", "n3"):
        back(story, node)
    story.settle()
    story.lose("n3")
    assert kinds(story.settle())[0] == "NodeLost"


def test_an_older_report_of_a_connection_that_closed_with_most_changes_nothing():
    story = all_cut()
    known = dict(story.state.connections)
    opened = ev.ConnectionOpened(client="agent/n1/1", server="s", client_number=0)
    story.fact("server/s", 0, opened)
    assert story.state.connections == known
