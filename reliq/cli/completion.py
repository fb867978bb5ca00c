"""`reliq completion SHELL`: a script that completes commands, options and their choices; made from the parser.

The script holds everything it needs: a shell that completes a word does not start Python.
"""

import argparse
from collections.abc import Iterator
from typing import Any


def add_to(commands: Any, parser: argparse.ArgumentParser) -> None:
    """Add the command to the parser, all commands of which the script completes."""
    what = "print a script that completes commands and options in a shell"
    one = commands.add_parser("completion", help=what, description=what[0].upper() + what[1:] + ".")
    one.add_argument("shell", choices=sorted(_SCRIPTS), help="the shell, as in: source <(reliq completion bash)")
    one.set_defaults(run=lambda options: completion(parser, options.shell))


def completion(parser: argparse.ArgumentParser, shell: str) -> int:
    """Print the script of a shell."""
    print(_SCRIPTS[shell](list(_places(parser, ()))), end="")
    return 0


Place = tuple[
    str, list[tuple[str, str]], dict[str, list[str]]
]  #: words so far; what may follow; choices by option with a value


def _places(parser: argparse.ArgumentParser, words: tuple[str, ...]) -> Iterator[Place]:
    """Yield each place on the command line: what may follow, each with its help, and the choices of its options."""
    follow: list[tuple[str, str]] = []
    choices: dict[str, list[str]] = {}
    below: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            helps = {one.dest: one.help or "" for one in action._choices_actions}  # noqa: SLF001
            below = {word: one for word, one in action.choices.items() if word in helps}  # without the former words
            follow += [(word, helps[word]) for word in below]
        elif action.help != argparse.SUPPRESS:
            given = [str(one) for one in action.choices or ()]
            follow += [(option, action.help or "") for option in action.option_strings]
            follow += [] if action.option_strings else [(one, "") for one in given]
            choices |= {option: given for option in action.option_strings if action.nargs != 0}
    if words == ("worker",):  # needs no verb
        _, more, its_choices = next(_places(below["run"], ()))
        follow += [one for one in more if one not in follow]
        choices |= its_choices
    yield " ".join(words), follow, choices
    for word, one in below.items():
        yield from _places(one, (*words, word))


def _bash(places: list[Place]) -> str:
    follow, choices = _cases(places, 'follow="{}"'), _choices(places, 'follow="{}"')
    return f"""# bash: source <(reliq completion bash)
_reliq() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" place="" follow="" one
    local places=" {_names(places)} "
    for one in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        [[ "$places" == *" ${{place:+$place/}}$one "* ]] && place="${{place:+$place/}}$one"
    done
    case "$place" in
{follow}    esac
    case "$place $before" in
{choices}    esac
    COMPREPLY=($(compgen -W "$follow" -- "$word"))
}}
complete -o default -F _reliq reliq
"""


def _zsh(places: list[Place]) -> str:
    follow, choices = _cases(places, "follow=({})"), _choices(places, "follow=({})")
    return f"""#compdef reliq
# zsh: source <(reliq completion zsh)
_reliq() {{
    local place="" before="${{words[CURRENT-1]}}" one places=" {_names(places)} "
    local -a follow
    for one in "${{(@)words[2,CURRENT-1]}}"; do
        [[ "$places" == *" ${{place:+$place/}}$one "* ]] && place="${{place:+$place/}}$one"
    done
    case "$place" in
{follow}    esac
    case "$place $before" in
{choices}    esac
    compadd -- $follow || _files
}}
compdef _reliq reliq
"""


def _names(places: list[Place]) -> str:
    return " ".join(place.replace(" ", "/") for place, *_ in places if place)


def _cases(places: list[Place], set_to: str) -> str:
    lines = [(place.replace(" ", "/"), " ".join(word for word, _ in follow)) for place, follow, _ in places]
    return "".join(f'        "{place}") {set_to.format(words)} ;;\n' for place, words in lines)


def _choices(places: list[Place], set_to: str) -> str:
    return "".join(
        f'        "{place.replace(" ", "/")} {option}") {set_to.format(" ".join(given))} ;;\n'
        for place, _, choices in places
        for option, given in choices.items()
        if given
    )


def _fish(places: list[Place]) -> str:
    lines = [
        f"""# fish: reliq completion fish | source
function __reliq_at
    set -l place
    for one in (commandline -opc)[2..]
        set -l next (string join -- / $place $one)
        contains -- $next {_names(places)}; and set place $next
    end
    test "$place" = "$argv"
end
complete -c reliq -f"""
    ]
    for place, follow, choices in places:
        condition = f'__reliq_at "{place.replace(" ", "/")}"'
        lines += [_fish_line(condition, word, text, choices.get(word)) for word, text in follow]
    return "\n".join(lines) + "\n"


def _fish_line(condition: str, word: str, text: str, given: list[str] | None) -> str:
    text = text.replace("%%", "%").replace("\\", "\\\\").replace("'", "\\'")
    what = f"-l {word[2:]}" if word.startswith("--") else f"-s {word[1:]}" if word.startswith("-") else f"-a {word}"
    values = "" if given is None else f" -x -a '{' '.join(given)}'" if given else " -r -F"  # without choices: files
    return f"complete -c reliq -n '{condition}' {what}{values} -d '{text}'"


_SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
