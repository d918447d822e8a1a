#!/usr/bin/env python3
"""Writes the manual page and the bash completion of a command-line program from its own help.

usage: manual.py PROGRAM --man FILE --completion FILE

The program's --help lists its subcommands, and each of them has a --help of the same form. The same help
gives the same files: they hold no date and no path.
"""
import argparse
import os
import re
import subprocess

SECTION = re.compile(r"(options|positionals|subcommands):", re.I)


class Command:
    """The help of one command: `name` has every word after the program's."""

    def __init__(self, program, name):
        self.name = name
        run = subprocess.run([program, *name, "--help"], capture_output=True, text=True, check=True,
                             env={**os.environ, "COLUMNS": "80"})
        lines = run.stdout.rstrip().splitlines()
        self.description, self.usage = lines[0], lines[1].split(":", 1)[1].strip()
        self.entries = {"options": [], "positionals": [], "subcommands": []}  # (head, text)
        at = 2
        section = None
        while at < len(lines):
            found = SECTION.fullmatch(lines[at].strip())
            if found:
                section = found[1].lower()
            elif lines[at].startswith("  ") and section:
                self.read_entry(self.entries[section], lines[at])
            elif lines[at]:
                break
            at += 1
        self.footer = lines[at:]

    def read_entry(self, entries, line):
        """The text of an entry begins in column 30, in the next line if the head is too long."""
        if not line[:20].strip():  # the text, or more of it
            head, text = entries.pop()
            entries.append((head, f"{text} {line.strip()}".strip()))
        elif line[29:30] in ("", " "):
            entries.append((line[:30].strip(), line[30:].strip()))
        else:
            entries.append((line.strip(), ""))

    def option_names(self):
        """-o and --output of "-o,--output FILE"."""
        return [name for head, _ in self.entries["options"]
                for name in re.findall(r"(?:^|[, ])(--?[A-Za-z][\w-]*)", head.split("  ")[0])]


def read_commands(program, name=()):
    """The program's own help, then that of each command, depth first."""
    command = Command(program, list(name))
    out = [command]
    for head, _ in command.entries["subcommands"]:
        out += read_commands(program, [*name, head.split()[0]])
    return out


def escape(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


def write_footer(footer, heading):
    """Paragraphs; those that begin with "Examples:" or the like keep their lines under a heading."""
    lines = []
    for paragraph in "\n".join(footer).strip().split("\n\n"):
        first, _, rest = paragraph.partition("\n")
        if first.endswith(":") and rest:
            lines += [f"{heading} {first[:-1] if heading == '.B' else first[:-1].upper()}", ".nf",
                      *map(escape, rest.splitlines()), ".fi"]
        elif paragraph:
            lines += [".PP", *map(escape, paragraph.splitlines())]
    return lines


def manual(commands, version):
    program = commands[0]
    lines = [f'.TH OPKIT 1 "" "{version}" "User Commands"', ".SH NAME",
             f"opkit \\- {escape(program.description[0].lower() + program.description[1:])}", ".SH SYNOPSIS",
             ".B opkit", "COMMAND [OPTION]...", ".SH COMMANDS"]
    for command in commands[1:]:
        lines += [f".SS opkit {' '.join(command.name)}", escape(command.description) + ".", ".PP",
                  escape(command.usage)]
        for section in ("positionals", "options"):
            for head, text in command.entries[section]:
                if not head.startswith("-h,"):
                    lines += [".TP", f".B {escape(head)}", escape(text)]
        lines += [".PP"] + write_footer(command.footer, ".B") if not command.entries["subcommands"] else []
    lines += write_footer(program.footer, ".SH")
    return "\n".join(lines) + "\n"


def completion(commands):
    """A function of bash that completes commands, options and names of files."""
    cases = []
    for command in commands:
        words = [head.split()[0] for head, _ in command.entries["subcommands"]] + command.option_names()
        cases.append(f'    "{" ".join(command.name)}") words="{" ".join(words)}" ;;')
    known = "|".join(f'"{" ".join(command.name)}"' for command in commands[1:])
    return "\n".join([
        "# bash completion of opkit, made from its help.",
        "_opkit() {",
        "  local word=${COMP_WORDS[COMP_CWORD]} command= words i",
        "  for ((i = 1; i < COMP_CWORD; ++i)); do",
        '    case "${command:+$command }${COMP_WORDS[i]}" in',
        f"      {known}) command=${{command:+$command }}${{COMP_WORDS[i]}} ;;",
        "    esac",
        "  done",
        '  case "$command" in',
        *cases,
        "  esac",
        "  COMPREPLY=()",
        '  if [[ $word == -* || $command == "" || $command == trace ]]; then',
        '    COMPREPLY=($(compgen -W "$words" -- "$word"))',
        "  fi",
        "}",
        "complete -o default -F _opkit opkit",
        ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--man", required=True)
    parser.add_argument("--completion", required=True)
    arguments = parser.parse_args()
    program = os.path.abspath(arguments.program)
    commands = read_commands(program)
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    for path, text in ((arguments.man, manual(commands, version)), (arguments.completion, completion(commands))):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main()
