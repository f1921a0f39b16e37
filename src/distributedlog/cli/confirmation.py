"""Asking before something is gone for good; where nobody can be asked, `--yes` must have been said."""

import sys

import click


def require_terminal(why: str) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError(f"{why}: add --yes if that is meant")


def confirm(question: str) -> None:
    """Goes on, or ends the command with exit code 1."""
    if not click.confirm(question, err=True):
        raise click.exceptions.Exit(1)
