#!/usr/bin/env python3
"""The reference of the façade: a page for each class that programs name, made of the comments in its header.

Usage: api_reference.py ROOT FOLDER      writes FOLDER/NAME.md for each page, and FOLDER/index.md
       api_reference.py ROOT --check     exits with 1 and lists public members that have no comment

A page has the comment of its class, and each group of public members with the comment above the group: members on lines
that follow each other, without a blank line or another comment between, are one group. Copying, moving, comparing and
destroying need no comment. Names are found wherever a header of include/opkit defines them, but in
compat/, whose classes have the names of other libraries' classes.
"""
import pathlib
import re
import sys

# For each page: its text in the index, the header to include, and its classes and functions. `header.hpp:name` takes a
# name from that header alone.
PAGES = {
    "Tensor": ("elements of one type on a device", "opkit/opkit.hpp", ["Tensor"]),
    "OperatorDef": ("a node as data: operator, inputs, outputs, attributes", "opkit/opkit.hpp",
                    ["OperatorDef"]),
    "OpSchema": ("what is true of an operator on every device", "opkit/opkit.hpp", ["OpSchema"]),
    "Operator": ("the base of operators that are classes", "opkit/opkit.hpp",
                 ["Operator", "OperatorBase"]),
    "OPKIT_OP": ("operators that are typed functions", "opkit/opkit.hpp", ["OPKIT_OP", "TypedOp"]),
    "Invoke": ("calls of an operator by its name", "opkit/opkit.hpp",
               ["Invoke", "InvokeAsync", "InvokeOptions", "ResolvedOperator", "PendingOutputs"]),
    "Error": ("the exception of everything here", "opkit/opkit.hpp", ["Error", "ErrorCode"]),
    "Event": ("the end of work on a device", "opkit/opkit.hpp", ["Event"]),
    "Graph": ("operators over named values", "opkit/graph.hpp",
              ["Graph", "ToDot", "AddGradients", "GradientOptions"]),
    "Plan": ("a graph whose kernels, order and memory are chosen", "opkit/graph.hpp",
             ["Compile", "Plan", "plan.hpp:ToString", "PlanOptions"]),
    "Executor": ("runs of a plan", "opkit/graph.hpp", ["Executor", "NamedTensors"]),
    "Partition": ("parts of a graph for another runtime", "opkit/partition.hpp",
                  ["Partition", "PartitionView", "PartitionNode", "PartitionAnswer"]),
    "Library": ("operators of a shared object", "opkit/plugin.hpp",
                ["Library", "LoadOptions", "UnloadReport"]),
    "Profiler": ("where the time goes", "opkit/profile.hpp",
                 ["Profiler", "MakeProfileTable", "SaveChromeTrace", "SavePerfettoTrace",
                  "ProfileOptions", "ProfileScope", "ProfileCount", "ProfileMark",
                  "ProfileFrame"]),
    "Models": ("graphs of ONNX files", "opkit/interop/onnx.hpp",
               ["LoadOnnx", "OnnxOptions", "SaveOnnx", "OnnxWriteOptions"]),
    "Engine": ("closures in the order of the variables that they read and write",
               "opkit/all.hpp", ["Engine", "EngineOptions", "PushOptions"]),
}
COMMENT = re.compile(r"^( *)// ?(.*)$")
HIDE = {ord(c): 0xe000 + ord(c) for c in "{}();,"}  # such characters in a literal are no code
SHOW = {hidden: plain for plain, hidden in HIDE.items()}
LITERAL = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'|//.*$')


class Group:
    """Members on lines that follow each other, and the comment above them."""

    def __init__(self, comment):
        self.comment, self.members = list(comment), []  # members: (declaration, trailing comment)


def declaration(lines, start):
    """The declaration that begins at lines[start], without its body, and the line behind it."""
    text, depth, i, body, requires = "", 0, start, False, False
    while i < len(lines):
        for c in LITERAL.sub(lambda m: " " if m[0].startswith("//") else m[0].translate(HIDE),
                             lines[i]):
            if requires:  # of a requires expression
                requires = depth > 1 or c != "}"
            elif not body:
                clause = re.search(r"\brequires requires\s*(?:\([^()]*\))?\s*$", text)
                if c == "{" and depth == 0 and clause:
                    text, requires = text[:clause.start()], True
                elif c == "{" and depth == 0 and not re.search(r"[=(,]\s*$|\boperator$", text):
                    body = True
                elif c == ";" and depth == 0:
                    return text, i + 1
                else:
                    text += c
            depth += (c in "({") - (c in ")}")
            if body and depth == 0:
                if re.match(r"\s*(?:class|struct|enum|union)\b", text):
                    body = text + ";"
                return text, i + 1
        text += " "
        i += 1
    raise ValueError(f"a declaration does not end: {lines[start]}")


def signature(text):
    """A declaration on one line: without initialisers of members and default member values."""
    text = re.sub(r"\s+", " ", text.translate(SHOW)).strip()
    text = re.sub(r"\b(?:OPKIT_COLD|OPKIT_INLINE|OPKIT_IMAGE_LOCAL) ", "", text)
    text = re.sub(r"(\)[^()]*?) : \w+(?:<[^>]*>)?\(.*$", r"\1", text)
    return text


def unspoken(text):
    """True for members that need no comment: copies, moves, destructors, comparisons, friends that print."""
    return bool(re.search(r"= (?:default|delete)\s*$|~|\boperator(?:==|<=>|!=|=)|^friend class"
                          r"|^friend std::ostream", text) or
                re.match(r"(?:explicit )?(\w+)\(const \1& ?\w*\)|(\w+)\(\2&& ?\w*\)", text))


def name_of(text):
    text = re.sub(r"^template <.*?> (?=\w|\[|~)", "", text)
    found = re.search(r"(operator\s*(?:\(\)|\[\]|[^\s(]+)|~?\w+)\s*\(", re.sub(r"requires .*?\} ", "", text))
    using = re.match(r"(?:using|class|struct|enum|enum class) (\w+)", text)
    member = re.search(r"(\w+)(?:\s*=.*|\[.*\])?$", text)
    return (using or (found if found and "(" in text.split("=")[0] else None) or member)[1]


class Header:
    def __init__(self, path, text):
        self.path, self.lines = path, text.split("\n")

    def comment_above(self, i):
        """The comment that ends above line i, above `template` and `requires` lines too."""
        while i > 0 and re.match(r"\s*(?:template <|requires)", self.lines[i - 1]):
            i -= 1
        end = i
        while i > 0 and COMMENT.match(self.lines[i - 1]):
            i -= 1
        return [COMMENT.match(line)[2] for line in self.lines[i:end]]

    def function_comment(self, i):
        """The comment above a function, or above those on the lines directly before it."""
        while not (comment := self.comment_above(i)) and i > 0 and \
                not re.match(r"[#}]|namespace|\s*$", self.lines[i - 1]):
            i -= 1
        return comment

    def groups(self, start):
        """The groups of public members of the class whose first line is `start`."""
        lines, i = self.lines, start
        public = lines[start].startswith(("struct", "enum"))
        enum = lines[start].startswith("enum")
        while "{" not in LITERAL.sub("", lines[i]):
            i += 1
        if "};" in lines[i]:
            return []
        i += 1
        found, comment, group = [], [], None
        while not lines[i].startswith("}"):
            line = lines[i]
            access = re.match(r" (public|private|protected):", line)
            note = COMMENT.match(line)
            if access:
                public, comment, group = access[1] == "public", [], None
            elif not line.strip():
                comment, group = [], None
            elif note:
                comment, group = comment + [note[2]], None
            elif enum:
                trailing = re.search(r"// (.*)", line)
                group = group or Group(comment)
                if group not in found:
                    found.append(group)
                group.members.append((LITERAL.sub("", line).strip().rstrip(","),
                                      trailing and trailing[1]))
                comment = []
            elif line.lstrip().startswith(("static_assert", "#")):
                while ";" not in lines[i] and not line.lstrip().startswith("#"):
                    i += 1
            else:
                text, after = declaration(lines, i)
                trailing = re.search(r"(?<!\S)// (.*)", lines[after - 1])
                text = signature(text)
                while after < len(lines) and trailing and re.match(r" {6,}// ", lines[after]):
                    trailing = re.match(r"(.*)", trailing[1] + " " + COMMENT.match(lines[after])[2])
                    trailing = [None, trailing[1]]
                    after += 1
                if public and not text.startswith("friend class"):
                    if group is None:
                        group = Group(comment)
                        found.append(group)
                    group.members.append((text, trailing and trailing[1]))
                comment = []
                i = after
                continue
            i += 1
        return found


class Reference:
    def __init__(self, root):
        include = root / "include"
        self.headers = [Header(path.relative_to(include).as_posix(), path.read_text())
                        for path in sorted((include / "opkit").rglob("*.hpp"))
                        if path.parent.name != "compat"]

    def find(self, name):
        """(header, line, is a class) of each definition of a class or macro, or declaration of a function."""
        folder, _, name = name.rpartition(":")
        headers = [header for header in self.headers if header.path.endswith(folder)]
        classes = re.compile(rf"^(?:class|struct|enum(?: class)?) (?:OPKIT_\w+ )?{name}\b(?!.*;\s*(?://.*)?$)")
        functions = re.compile(rf"^(?!friend|using|#|return|//)\S.*[ &*]{name}\(")
        macro = re.compile(rf"^#define {name}\(")
        for kind, pattern in ((True, classes), (False, functions), (False, macro)):
            found = [(header, i, kind) for header in headers
                     for i, line in enumerate(header.lines) if pattern.match(line)]
            if found:
                return found
        sys.exit(f"no header of include/opkit defines {name}")

    def missing(self):
        for page, (_, _, names) in PAGES.items():
            for name in names:
                for header, line, is_class in self.find(name):
                    if not is_class:
                        if not header.function_comment(line):
                            yield f"{header.path}: {name}: has no comment"
                        continue
                    for group in header.groups(line):
                        if group.comment:
                            continue
                        for text, trailing in group.members:
                            if not trailing and not unspoken(text):
                                yield f"{header.path}: {name}::{name_of(text)} has no comment"

    def page(self, page):
        _, include, names = PAGES[page]
        parts = [f"# {page}", f"`#include <{include}>`"]
        for name in names:
            for header, line, is_class in self.find(name):
                if is_class:
                    parts += [f"## {name}", f"Defined in `{header.path}`.",
                              prose(header.comment_above(line))]
                    for group in header.groups(line):
                        shown = [(t, c) for t, c in group.members if not t.startswith("friend bool")]
                        if not shown or (not group.comment and
                                         all(unspoken(t) and not c for t, c in shown)):
                            continue
                        heads = list(dict.fromkeys(name_of(t) for t, _ in shown))
                        parts += ["### " + escape(", ".join(heads)), code(shown), prose(group.comment)]
                else:
                    text = header.lines[line]
                    if text.startswith("#define"):
                        text = text[len("#define "):text.index(")") + 1]
                    else:
                        text, _ = declaration(header.lines, line)
                    above = header.lines[line - 1]
                    if above.startswith("template"):
                        text = above + " " + text
                    heading = f"## {name.rpartition(':')[2]}"
                    parts += [*([] if heading in parts else [heading]),
                              f"Defined in `{header.path}`.", code([(signature(text), None)]),
                              prose(header.function_comment(line))]
        return "\n\n".join(part for part in parts if part) + "\n"


def escape(text):
    """Comment text as Markdown; text in backticks is unchanged."""
    return "".join(part if i % 2 else re.sub(r"([\\*_<>\[\]#|])", r"\\\1", part)
                   for i, part in enumerate(re.split(r"(`[^`]*`)", text)))


def prose(lines):
    """A comment as paragraphs; lines that are indented are code."""
    out, in_code, last = [], False, ""
    for line in lines:
        is_code = line.startswith("  ") or (in_code and not line.strip())
        if is_code != in_code:
            if in_code:
                while out[-1] == "":
                    out.pop()
            out += ["```", ""] if in_code else ["```cpp"] if out[-1:] == [""] else ["", "```cpp"]
            in_code = is_code
        out.append(line[2:] if is_code else escape(line))
    if in_code:
        out.append("```")
    return "\n".join(out).strip("\n")


def wrap(text, width=90):
    """A long declaration over several lines, broken behind commas."""
    lines = []
    while len(text) > width and ", " in text[20:width]:
        cut = text.rindex(", ", 0, width) + 1
        lines.append(text[:cut])
        text = "    " + text[cut:].lstrip()
    return "\n".join([*lines, text])


def code(members):
    return "```cpp\n" + "\n".join(wrap(text + ";") + (f"  // {trailing}" if trailing else "")
                                  for text, trailing in members) + "\n```"


def write(root, folder):
    reference = Reference(root)
    folder.mkdir(parents=True, exist_ok=True)
    rows = "\n".join(f"| [{page}]({page}.md) | {what} | `{include}` |"
                     for page, (what, include, _) in PAGES.items())
    (folder / "index.md").write_text(
        "# Reference of the API\n\nThese pages are made of the comments in the headers.\n\n"
        f"| | what it is | include |\n| --- | --- | --- |\n{rows}\n")
    for page in PAGES:
        (folder / f"{page}.md").write_text(reference.page(page))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    root = pathlib.Path(sys.argv[1])
    if sys.argv[2] != "--check":
        return write(root, pathlib.Path(sys.argv[2]))
    missing = list(Reference(root).missing())
    print("\n".join(missing) or f"every public member of {len(PAGES)} pages has a comment")
    sys.exit(bool(missing))


if __name__ == "__main__":
    main()
