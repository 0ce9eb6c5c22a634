"""The commands that the program has, as its parser knows them."""

import argparse
from collections.abc import Iterator


def commands(
    of: argparse.ArgumentParser, words: tuple[str, ...] = ()
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Each by its words, `topic list`, with its own parser."""
    families = [each for each in of._actions if isinstance(each, argparse._SubParsersAction)]
    if not families:
        yield " ".join(words), of
    for family in families:
        for word, command in family.choices.items():
            yield from commands(command, (*words, word))


def options(of: argparse.ArgumentParser) -> set[str]:
    return {
        text
        for action in of._actions
        for text in action.option_strings
        if text.startswith("--") and text != "--help"
    }
