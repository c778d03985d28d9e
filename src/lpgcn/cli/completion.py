"""`lpgcn completion`."""

from __future__ import annotations

import click


@click.command(
    epilog="""\b
Examples:
  lpgcn completion bash >> ~/.bashrc
  lpgcn completion zsh >> ~/.zshrc
  lpgcn completion fish > ~/.config/fish/completions/lpgcn.fish""",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what makes a shell complete commands and options of lpgcn."""
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None, "click knows these shells"
    program = context.find_root().command
    click.echo(made(program, {}, "lpgcn", "_LPGCN_COMPLETE").source())
