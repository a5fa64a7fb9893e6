"""The scripts of `horae completion`, one for each shell: tables of the commands, and the code that reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from string import Template
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from horae.cli.commands.completion import CommandEntry

_BASH = Template("""\
# What Tab offers after horae, in bash. Made by: horae completion bash

_horae_commands() {
    case "$$1" in
$commands
    esac
}

_horae_options() {
    case "$$1" in
$options
    esac
}

# How many values an option takes, and what they are.
_horae_option() {
    takes=0 kind=""
    case "$$1 $$2" in
$values
    esac
}

_horae_argument() {
    kind=""
    case "$$1 $$2" in
$arguments
    esac
}

_horae() {
    local line="$$COMP_LINE" word blank index at="" option="" value="" kind="" takes taking=0 position=0 ended=0
    local cur inner quote="" part
    local -a typed=() place=() found=()
    COMPREPLY=()
    # Bash takes words apart at : and =, which belong to addresses and names: they are put together again.
    for ((index = 0; index <= COMP_CWORD; index++)); do
        word="$${COMP_WORDS[index]}" blank=0
        if [[ $$line == [[:space:]]* ]]; then
            blank=1 line="$${line#"$${line%%[![:space:]]*}"}"
        fi
        line="$${line#"$$word"}"
        if ((index > 0 && blank == 0)) && [[ $$word == [:=]* || $${typed[$${#typed[@]} - 1]} == *[:=] ]]; then
            typed[$${#typed[@]} - 1]+="$$word"
        else
            typed+=("$$word")
        fi
    done
    cur="$${typed[$${#typed[@]} - 1]}"
    for ((index = 1; index < $${#typed[@]} - 1; index++)); do
        word="$${typed[index]}"
        if ((ended == 0)) && [[ $$word == -- ]]; then
            ended=1 taking=0
        elif ((ended == 0)) && [[ $$word == -?* ]]; then
            option="$${word%%=*}"
            _horae_option "$$at" "$$option"
            taking=$$takes
            if [[ $$word == *=* ]]; then
                taking=0 value="$${word#*=}"
                case "$$option" in --store | --server | --token-file) place+=("$$option" "$$value") ;; esac
            elif [[ $$option == --watch && $${typed[index + 1]} =~ ^[0-9.]+$$ ]]; then
                ((index + 2 < $${#typed[@]})) && ((index++))
            fi
        elif ((taking > 0)); then
            case "$$option" in --store | --server | --token-file) place+=("$$option" "$$word") ;; esac
            ((taking < $many)) && ((taking--))
        else
            inner=" $$(_horae_commands "$$at") "
            if [[ $$inner == *" $$word "* ]]; then
                at="$${at:+$$at }$$word"
            else
                ((position++))
            fi
        fi
    done
    part="$${cur%"$${cur##*[:=]}"}"
    if ((ended == 0)) && [[ $$cur == --*=* ]]; then
        _horae_option "$$at" "$${cur%%=*}"
        cur="$${cur#*=}"
        part="$${cur%"$${cur##*[:=]}"}"
    elif ((ended == 0)) && [[ $$cur == -* ]]; then
        COMPREPLY=($$(compgen -W "$$(_horae_options "$$at")" -- "$$cur"))
        return
    elif ((taking > 0)); then
        _horae_option "$$at" "$$option"
    else
        inner="$$(_horae_commands "$$at")"
        if [[ -n $$inner ]]; then
            ((position == 0)) && COMPREPLY=($$(compgen -W "$$inner" -- "$$cur"))
            return
        fi
        _horae_argument "$$at" "$$position"
    fi
    case "$$kind" in
        "") return ;;
        words:*)
            COMPREPLY=($$(compgen -W "$${kind#words:}" -- "$$cur"))
            return
            ;;
        files)
            compopt -o filenames 2>/dev/null
            while IFS= read -r word; do COMPREPLY+=("$$word"); done < <(compgen -f -- "$$cur")
            return
            ;;
    esac
    case "$$cur" in
        \\"* | \\'*) quote="$${cur:0:1}" cur="$${cur:1}" ;;
        *) cur="$${cur//\\\\/}" ;;
    esac
    while IFS= read -r word; do found+=("$$word"); done < <(
        "$${COMP_WORDS[0]}" __complete "$$kind" "$$cur" "$${place[@]}" 2>/dev/null
    )
    for word in "$${found[@]}"; do
        [[ -n $$quote ]] || printf -v word '%q' "$$word"
        COMPREPLY+=("$${word#"$$part"}")
    done
}

complete -F _horae horae
""")

_ZSH = Template("""\
#compdef horae
# What Tab offers after horae, in zsh. Made by: horae completion zsh

_horae_commands() {
    case "$$1" in
$commands
    esac
}

_horae_options() {
    case "$$1" in
$options
    esac
}

# How many values an option takes, and what they are.
_horae_option() {
    takes=0 kind=""
    case "$$1 $$2" in
$values
    esac
}

_horae_argument() {
    kind=""
    case "$$1 $$2" in
$arguments
    esac
}

_horae() {
    local word at="" option="" kind="" takes=0
    local -i index taking=0 position=0 ended=0
    local -a place found offered
    for ((index = 2; index < CURRENT; index++)); do
        word="$${(Q)words[index]}"
        if ((ended == 0)) && [[ "$$word" == "--" ]]; then
            ended=1 taking=0
        elif ((ended == 0)) && [[ "$$word" == -?* ]]; then
            option="$${word%%=*}"
            _horae_option "$$at" "$$option"
            taking=$$takes
            if [[ "$$word" == *=* ]]; then
                taking=0
                case "$$option" in (--store|--server|--token-file) place+=("$$option" "$${word#*=}") ;; esac
            elif [[ "$$option" == "--watch" && "$${words[index + 1]}" == <->(|.<->) ]] && ((index + 1 < CURRENT)); then
                index+=1
            fi
        elif ((taking > 0)); then
            case "$$option" in (--store|--server|--token-file) place+=("$$option" "$$word") ;; esac
            ((taking < $many)) && taking=$$((taking - 1))
        else
            offered=()
            _horae_commands "$$at"
            if (($${offered[(I)$${(b)word}:*]})); then
                at="$${at:+$$at }$$word"
            else
                position+=1
            fi
        fi
    done
    offered=()
    if ((ended == 0)) && [[ "$$PREFIX" == --*=* ]]; then
        _horae_option "$$at" "$${PREFIX%%=*}"
        compset -P '*='
    elif ((ended == 0)) && [[ "$$PREFIX" == -* ]]; then
        _horae_options "$$at"
        _describe -t options 'option' offered
        return
    elif ((taking > 0)); then
        _horae_option "$$at" "$$option"
    else
        _horae_commands "$$at"
        if (($${#offered})); then
            ((position == 0)) && _describe -t commands 'command' offered
            return
        fi
        _horae_argument "$$at" "$$position"
    fi
    case "$$kind" in
        ("") return 1 ;;
        (files) _files ;;
        (words:*)
            found=("$${(@s: :)kind#words:}")
            compadd -a found
            ;;
        (*)
            found=("$${(@f)$$("$${(Q)words[1]}" __complete "$$kind" "$${(Q)PREFIX}" "$${place[@]}" 2>/dev/null)}")
            found=("$${(@)found:#}")
            compadd -a found
            ;;
    esac
}

if [[ "$${funcstack[1]}" == "_horae" ]]; then
    _horae "$$@"
else
    compdef _horae horae
fi
""")

_FISH = Template("""\
# What Tab offers after horae, in fish. Made by: horae completion fish

# Whether what was typed is the command that is named, its actions still to come where it has any.
function __horae_at
    set -l given (commandline -opc)
    set -e given[1]
    set -l said
    for word in $$given
        string match -q -- '-*' $$word; or set -a said $$word
    end
    switch (count $$argv)
        case 0
            test (count $$said) -eq 0
        case 1
            test (count $$said) -ge 1; and test "$$said[1]" = "$$argv[1]"
            and begin; not contains -- $$argv[1] $groups; or test (count $$said) -eq 1; end
        case 2
            test (count $$said) -ge 2; and test "$$said[1] $$said[2]" = "$$argv[1] $$argv[2]"
    end
end

function __horae_names
    set -l given (commandline -opc)
    set -l place
    set -l option
    for word in $$given
        if test -n "$$option"
            set -a place $$option $$word
            set option
        else if contains -- $$word --store --server --token-file
            set option $$word
        else if string match -qr -- '^--(store|server|token-file)=' $$word
            set -a place $$word
        end
    end
    $$given[1] __complete $$argv[1] (commandline -ct) $$place 2>/dev/null
end

complete -c horae -f
$lines
""")


def bash(places: Sequence[CommandEntry]) -> str:
    return _BASH.substitute(
        commands=_cases((place.path, f"echo {_quoted(_words(place))}") for place in places if place.commands),
        options=_cases(
            (place.path, f"echo {_quoted(' '.join(name for option in place.options for name in option.names))}")
            for place in places
        ),
        **_tables(places),
    )


def zsh(places: Sequence[CommandEntry]) -> str:
    return _ZSH.substitute(
        commands=_cases((place.path, _described(place.commands)) for place in places if place.commands),
        options=_cases(
            (
                place.path,
                _described([(name, option.summary) for option in place.options for name in option.names]),
            )
            for place in places
        ),
        **_tables(places),
    )


def fish(places: Sequence[CommandEntry]) -> str:
    lines = []
    for place in places:
        at = f"complete -c horae -n {_quoted(f'__horae_at {place.path}'.strip())}"
        lines += [f"{at} -a {name} -d {_fish(summary)}" for name, summary in place.commands]
        for option in place.options:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
            value = "" if not option.takes else " -r -F" if option.kind == "files" else " -x"
            if option.takes and option.kind not in ("", "files"):
                value += f" -a {_fish(_offered(option.kind))}"
            lines.append(f"{at} {names}{value} -d {_fish(option.summary)}")
        for kind in dict.fromkeys(place.arguments):
            if kind == "files":
                lines.append(f"{at} -F")
            elif kind:
                lines.append(f"{at} -a {_fish(_offered(kind))}")
    groups = " ".join(place.path for place in places if place.path and place.commands)
    return _FISH.substitute(groups=groups, lines="\n".join(lines))


SCRIPTS: Mapping[str, Callable[[Sequence[CommandEntry]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}


def _tables(places: Sequence[CommandEntry]) -> dict[str, str]:
    """Returns the tables of option values and arguments, in the syntax that bash and zsh share."""
    from horae.cli.commands.completion import MANY

    values = [
        (f"{place.path} {name}", f"takes={option.takes} kind={_quoted(option.kind)}")
        for place in places
        for option in place.options
        for name in option.names
        if option.takes or option.kind
    ]
    arguments = [
        (f"{place.path} {number}", f"kind={_quoted(kind)}")
        for place in places
        for number, kind in enumerate(place.arguments)
        if kind and not (place.endless and number == len(place.arguments) - 1)
    ]
    endless = [
        (f"{place.path} ", f"kind={_quoted(place.arguments[-1])}")
        for place in places
        if place.endless and place.arguments[-1]
    ]
    return {
        "values": _cases(values),
        "arguments": "\n".join(
            part for part in (_cases(arguments), "\n".join(_case(f"{_quoted(at)}*", do) for at, do in endless)) if part
        ),
        "many": str(MANY),
    }


def _cases(pairs: Iterable[tuple[str, str]]) -> str:
    """Returns the branches of a `case`. Keys with the same commands share a branch."""
    by_work: dict[str, list[str]] = {}
    for key, work in pairs:
        by_work.setdefault(work, []).append(_quoted(key))
    return "\n".join(_case(" | ".join(keys), work) for work, keys in by_work.items())


def _case(pattern: str, work: str) -> str:
    return f"        {pattern}) {work} ;;"


def _words(place: CommandEntry) -> str:
    return " ".join(name for name, _ in place.commands)


def _described(pairs: Iterable[tuple[str, str]]) -> str:
    return "offered=(" + " ".join(_quoted(f"{name}:{summary}") for name, summary in pairs) + ")"


def _offered(kind: str) -> str:
    return kind.removeprefix("words:") if kind.startswith("words:") else f"(__horae_names {kind})"


def _quoted(text: str) -> str:
    """Returns the text quoted for bash and zsh."""
    return "'" + text.replace("'", "'\\''") + "'"


def _fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
