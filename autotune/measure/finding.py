"""What somebody found who looked whether measurements can be trusted here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that was looked at.

    Attributes:
        about: what it is, in a word or two.
        text: how it is.
        advice: what to do; empty where all is well.
        harmful: numbers that are measured now would be wrong, or late, or lost; not only less good than they could be.
    """

    about: str
    text: str
    advice: str = ""
    harmful: bool = False
