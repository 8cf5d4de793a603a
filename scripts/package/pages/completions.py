"""Completions for bash, zsh and fish from the help texts of muster, its commands, and musterd.

A program of the user's own and everything behind it is completed as files. Each shell gets the options with what they are
for (where it can show that), the words that an option accepts, and files or directories where FILE or DIR is to come.
"""
from pathlib import Path


def kind_of_value(option):
    """"none" for a flag, "words", "directory", "file" or "anything"."""
    if not option.metavar:
        return "none"
    if option.choices():
        return "words"
    return {"DIR": "directory", "FILE": "file"}.get(option.metavar, "anything")


def commands_of(helps):
    """"checkpoint" -> its help, of muster's commands."""
    return {text.program.split()[1]: text for text in helps if " " in text.program}


# ---- bash ----


def bash_table(helps):
    """One line for each option that takes a value: "muster:--log-dir=directory", "muster:--prefix=worker host"."""
    rows = []
    for text in helps:
        for option in text.options():
            kind = kind_of_value(option)
            if kind == "none":
                continue
            value = " ".join(option.choices()) if kind == "words" else f"@{kind}"
            rows += [f'    ["{text.program} {name}"]="{value}"' for name in (option.long, option.short) if name]
    return "\n".join(rows)


def bash(helps):
    options = [f'    ["{text.program}"]="{" ".join(option.long for option in text.options())}"' for text in helps]
    template = (Path(__file__).parent / "completion.bash.in").read_text()
    return (template.replace("@VALUES@", bash_table(helps)).replace("@OPTIONS@", "\n".join(options))
            .replace("@COMMANDS@", " ".join(commands_of(helps))))


# ---- zsh ----


def zsh_quoted(text):
    return text.replace("'", "'\\''").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")


def zsh_arguments(text):
    rows = []
    for option in text.options():
        action = {"none": "", "words": f":value:({' '.join(option.choices())})", "directory": ":directory:_files -/",
                  "file": ":file:_files", "anything": f":{zsh_quoted(option.metavar)}: "}[kind_of_value(option)]
        for name in filter(None, (option.short, option.long)):
            sign = "=" if action and name == option.long else ""
            about = f"[{zsh_quoted(option.summary())}]" if option.text else ""
            rows.append(f"        '{name}{sign}{about}{action}' \\")
    return "\n".join(rows)


def zsh(helps):
    lines = ["#compdef muster musterd", "# Made from what the programs say for --help.", ""]
    for text in helps:
        name = text.program.replace(" ", "_")
        rest = "'*:::program:_muster_program'" if text.program == "muster" else "'*:file:_files'"
        lines += [f"_{name}_options() {{", "    _arguments -S -s : \\", zsh_arguments(text), f"        {rest}", "}", ""]
    lines += ["# The user's program, and what is its own.", "_muster_program() {",
              "    if (( CURRENT == 1 )); then", "        _alternative 'commands:command:(" +
              " ".join(commands_of(helps)) + ")' 'files:program:_files'", "    else", "        _files", "    fi", "}", "",
              "_muster() {", '    case "$service:$words[2]" in', "        musterd:*) _musterd_options ;;"]
    for command in commands_of(helps):
        lines.append(f"        muster:{command}) (( CURRENT > 2 )) && shift words && (( CURRENT-- )) && "
                     f"_muster_{command}_options && return; _muster_options ;;")
    lines += ["        *) _muster_options ;;", "    esac", "}", "", '_muster "$@"', ""]
    return "\n".join(lines)


# ---- fish ----


def fish_quoted(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def fish_options(text, condition):
    program = text.program.split()[0]
    lines = []
    for option in text.options():
        words = ["complete", "-c", program]
        if condition:
            words += ["-n", fish_quoted(condition)]
        if option.short:
            words += ["-s", option.short[1:]]
        words += ["-l", option.long[2:]]
        words += {"none": [], "words": ["-x", "-a", fish_quoted(" ".join(option.choices()))],
                  "directory": ["-x", "-a", "'(__fish_complete_directories)'"], "file": ["-r", "-F"],
                  "anything": ["-x"]}[kind_of_value(option)]
        lines.append(" ".join([*words, "-d", fish_quoted(option.summary())]))
    return lines


def fish(helps, program):
    """Of one program: fish looks for a file of its name."""
    commands = commands_of(helps)
    seen = f"__fish_seen_subcommand_from {' '.join(commands)}"
    lines = ["# Made from what the program says for --help."]
    for text in helps:
        if text.program.split()[0] != program:
            continue
        command = text.program.removeprefix(program).strip()
        if not command:
            lines += fish_options(text, f"not {seen}" if program == "muster" else "")
        else:
            lines.append(f"complete -c {program} -n '__fish_is_first_token' -a {command} "
                         f"-d {fish_quoted(text.about)}")
            lines += fish_options(text, f"__fish_seen_subcommand_from {command}")
    return "\n".join(lines) + "\n"
