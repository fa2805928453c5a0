"""A whole cluster on virtual time: the real core, engine and protocol, pretended everything else.

Public, for whoever embeds Unicron and wants to know what it does when things go wrong.
"""
