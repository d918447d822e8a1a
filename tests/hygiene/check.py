#!/usr/bin/env python3
"""Static checks over include/opkit and src: prints `ok NAME` or `FAIL NAME: why` for each (further findings
of the same check indented below), exits 1 if one failed. self_test.py has, for every check,
trees that it must flag.

  check.py [--root DIR] [--cxx COMPILER]     all checks
  check.py --write-macros                    accepts the macros that survive now (macros.txt)
  check.py --write-public-names              accepts the types that umbrellas bring now (public_names.txt)
"""
import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

# The layers, top to bottom: a header includes its own folder and the rows above it. Folders on one
# row do not include each other. "." is the headers directly under include/opkit; each folder of
# backends/ without a row of its own is a folder of the row of backends/.
ROWS = [
    [".", "abi"],
    ["base"],
    ["core"],
    ["device"],
    ["engine", "profile"],
    ["op"],
    ["graph"],
    ["plugin", "ops", "report", "compat"],
    ["cluster"],
    ["backends", "interop", "export"],
    ["backends/nccl"],  # on the streams of backends/cuda
]
ROW_OF = {folder: row for row, folders in enumerate(ROWS) for folder in folders}
THIRD_PARTY_ROW = 9
# The umbrellas, by tier, and the folders and headers that each must not include, because a program pays
# for all that it includes. Includes under a condition do not count, except for definitions.
UMBRELLAS = {
    "opkit/opkit.hpp": ("opkit/op/function/", "opkit/op/gradient/", "opkit/profile/", "opkit/graph/",
                        "opkit/plugin/"),
    "opkit/functions.hpp": ("opkit/graph/", "opkit/plugin/", "opkit/profile/profiler.hpp"),
    "opkit/graph.hpp": ("opkit/graph/partition/", "opkit/op/function/", "opkit/plugin/",
                        "opkit/profile/profiler.hpp"),
    "opkit/profile.hpp": ("opkit/graph/", "opkit/op/function/", "opkit/plugin/"),
    "opkit/partition.hpp": ("opkit/plugin/", "opkit/profile/profiler.hpp"),
    "opkit/plugin.hpp": (),
    "opkit/all.hpp": ()}
ALL = "opkit/all.hpp"
UMBRELLA_ROW = 6  # it reaches every header down to this row ...
UMBRELLA_EXTRA = ("plugin",)  # ... and umbrellas may include from these,
AUTHORS = "opkit/op.hpp"  # the other one at the top: another name for plugin/author.hpp
# ... but it need not reach these: the other side of the ABI, and what only tests of operators use.
NOT_IN_UMBRELLA = (AUTHORS, "opkit/plugin/author.hpp", "opkit/abi/opkit_abi.h",
                   "opkit/abi/opkit_host.h",
                   "opkit/base/process/child_process.hpp", "opkit/base/json/json_line_reader.hpp",
                   "opkit/op/check.hpp",
                   "opkit/op/gradient/gradient_check.hpp",
                   "opkit/profile/machine_peak.hpp")
# Headers that an umbrella may reach although it must not include their folder: names of options.
IN_TIER = {"opkit/graph.hpp": ("opkit/graph/partition/request.hpp",)}
NOT_IN_UMBRELLA_FOLDERS = ("opkit/op/check/", "opkit/op/benchmark/", "opkit/profile/timing/",
                           "opkit/graph/tune/")

MAX_LINES = 800
MAX_TYPES = 76  # types that the two umbrellas of most programs bring; lower it, never raise it
DOOR = ("opkit/opkit.hpp ", "opkit/graph.hpp ")
MAX_HEADERS = 20  # directly in one folder
FORBIDDEN_TO_ROW = 5  # headers down to this row must not include:
FORBIDDEN = {"iostream", "regex", "filesystem", "sstream", "fstream", "iomanip", "functional"}
STD = set("""algorithm any array atomic barrier bit bitset cassert cctype cerrno cfenv cfloat
charconv chrono cinttypes climits clocale cmath codecvt compare complex concepts condition_variable
coroutine csetjmp csignal cstdarg cstddef cstdint cstdio cstdlib cstring ctime cuchar cwchar cwctype
deque exception execution filesystem format forward_list fstream functional future initializer_list
iomanip ios iosfwd iostream istream iterator latch limits list locale map memory memory_resource
mutex new numbers numeric optional ostream queue random ranges ratio regex scoped_allocator
semaphore set shared_mutex source_location span sstream stack stdexcept stop_token streambuf string
string_view syncstream system_error thread tuple type_traits typeindex typeinfo unordered_map
unordered_set utility valarray variant vector version cxxabi.h""".split())
C_STD = {"stddef.h", "stdint.h", "stdbool.h"}  # what the C header of the ABI may use
POSIX = set("""dirent.h errno.h fcntl.h poll.h pthread.h sched.h signal.h spawn.h syscall.h
unistd.h linux/futex.h sys/mman.h sys/prctl.h sys/resource.h sys/stat.h sys/syscall.h sys/time.h
sys/types.h sys/utsname.h sys/wait.h time.h""".split())
# The definitions of the operating system. Some stand alone, because few programs need them and the others
# do not pay for their headers: the checker forks, and a library is built by a compiler.
POSIX_DEFINITIONS = {"opkit/backends/mpi/impl/progress.ipp",
                     "opkit/base/process/impl/child_process.ipp", "opkit/base/impl/platform.ipp",
                     "opkit/base/process/impl/run_program.ipp", "opkit/base/cache/impl/file_state.ipp"}

# The loader and its file format: the second place to change for another system.
LOADER = {"dlfcn.h", "elf.h", "link.h"}
LOADER_HEADERS = {"opkit/plugin/load/impl/elf_file.ipp", "opkit/plugin/load/impl/shared_object.ipp",
                  "opkit/export/impl/host_symbol.ipp",
                  "opkit/profile/impl/tool_ranges.ipp",
                  "opkit/profile/timing/impl/energy_counter.ipp", "opkit/backends/onednn/threads.hpp"}

# Roots under which people and machines keep checkouts.
MACHINE_PATH = re.compile(r"(?<![\w.~}<>/-])/(?:home|root|Users|work|workspace|mnt|scratch)/[\w.-]"
                          r"|[A-Z]:\\\\?Users")

TOKEN = re.compile(r'R"(?P<d>[^()\s\\]{0,16})\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"'
                   r"|(?<!\w)\d(?:'?[\w.])*|'(?:\\.|[^'\\\n])+'|//[^\n]*|/\*.*?\*/", re.DOTALL)


def without_comments(text, strings=True):
    """The code, comments blanked (and with strings=False literals too); line numbers stay."""
    def keep(match):
        token = match.group()
        comment = token.startswith(("//", "/*"))
        literal = token.startswith(('"', "R", "'"))
        if comment or (literal and not strings):
            return re.sub(r"[^\n]", " ", token)
        return token
    return TOKEN.sub(keep, text)


class Tree:
    """The headers and .ipp files of a checkout: text, code without comments, and includes with their lines."""

    def __init__(self, root, cxx="g++"):
        self.root, self.include, self.cxx = root, root / "include", cxx
        self.text = {p.relative_to(self.include).as_posix(): p.read_text()
                     for pattern in ("*.h*", "*.ipp")
                     for p in sorted((self.include / "opkit").rglob(pattern))}
        self.sources = {p.relative_to(root).as_posix(): p.read_text()
                        for pattern in ("*.cpp", "*.cu")
                        for p in sorted((root / "src").rglob(pattern))}
        self.code = {h: without_comments(t, strings=False) for h, t in self.text.items()}
        self.includes = {h: self._includes(t) for h, t in self.text.items()}
        self.own = {h: [t[1:-1] for _, t in i if t[0] == '"'] for h, i in self.includes.items()}
        self.always = {h: self._always(t) for h, t in self.text.items()}
        self.owners = {}  # of each .ipp: the headers that include it
        for header, targets in self.own.items():
            for target in targets:
                if target.endswith(".ipp"):
                    self.owners.setdefault(target, []).append(header)

    @staticmethod
    def _includes(text):
        code = without_comments(text)
        pattern = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"][^>"\n]+[>"])', re.MULTILINE)
        return [(code.count("\n", 0, m.start()) + 1, m.group(1)) for m in pattern.finditer(code)]

    @staticmethod
    def _always(text):
        """Its own includes, of definitions too, without those under another condition."""
        found, conditions = [], []
        for line in without_comments(text).splitlines():
            directive = re.match(r'[ \t]*#[ \t]*(if|ifdef|ifndef|endif|include)\b[ \t]*(.*)', line)
            kind, rest = directive.groups() if directive else ("", "")
            if kind == "endif":
                conditions and conditions.pop()
            elif kind.startswith("if"):
                conditions.append(f"{kind} {rest.strip()}")
            elif kind == "include" and rest[0] == '"' and \
                    all(c == "ifdef OPKIT_DEFINITIONS" for c in conditions[1:]):
                found.append(rest.split('"')[1])
        return found

    def reach(self, header, edges=None):
        seen, todo = set(), [header]
        while todo:
            for target in (edges or self.own).get(todo.pop(), []):
                if target not in seen:
                    seen.add(target)
                    todo.append(target)
        return seen

    def guard(self, header):
        return re.sub(r"\W", "_", header).upper() + "_"


def folder_of(header):
    parts = header.split("/")[1:-1]
    depth = 2 if parts[:1] == ["backends"] else 1
    return "/".join(parts[:depth]) or "."


def row_of(header):
    folder = folder_of(header)
    return ROW_OF.get(folder, ROW_OF.get(folder.split("/")[0]))


CHECKS = {}


def check(name):
    def register(function):
        CHECKS[name] = function
        return function
    return register


@check("layers")
def layers(tree):
    for header, includes in tree.includes.items():
        folder = folder_of(header)
        if row_of(header) is None:
            yield f"{header} lies in a folder that no layer names"
            continue
        for line, target in includes:
            to = target[1:-1]
            if target[0] != '"' or to not in tree.text or row_of(to) is None:
                continue
            where = f"{header}:{line} includes {to}"
            if header in UMBRELLAS or header == AUTHORS:
                if row_of(to) > UMBRELLA_ROW and folder_of(to) not in UMBRELLA_EXTRA:
                    yield f"{where}: {folder_of(to)}/ is included by name, not by an umbrella"
            elif to in UMBRELLAS and folder != "compat":
                yield f"{where}: the umbrella is for programs"
            elif folder_of(to) != folder and row_of(to) >= row_of(header):
                relation = "beside" if row_of(to) == row_of(header) else "below"
                yield f"{where}: {folder_of(to)}/ lies {relation} {folder}/ (rows {row_of(to)}, " \
                      f"{row_of(header)})"


@check("cycles")
def cycles(tree):
    """A header and its definitions count as one, since header-only programs read them as one."""
    done, path = set(), []

    def owner(name):
        return owner(tree.owners[name][0]) if name in tree.owners else name

    edges = {}
    for name, targets in tree.own.items():
        edges.setdefault(owner(name), {}).update(dict.fromkeys(owner(t) for t in targets))

    def visit(header):
        if header in path:
            yield "include cycle " + " -> ".join(path[path.index(header):] + [header])
        elif header not in done:
            path.append(header)
            for target in edges.get(header, {}):
                if target != header:
                    yield from visit(target)
            path.pop()
            done.add(header)

    for header in edges:
        yield from visit(header)


# Classes that were templates of one instantiation, made only to postpone it; `Basic` stood before
# many of their names.
ORDINARY = set("""AbiAttributes AbiGraph AbiNode AbiValues ArenaPlan BoundNodes BoundPlan BufferUses
Completion ConstantFolder DeferredRun DotWriter ElfReader Engine EngineCore Executor ExportedOp
FailureLog FrozenTaskGraph FunctionBody FunctionGradient FunctionOpHost GradientBuilder
GradientMaker GradientMakerBase GradientNames GradientNodes GradientRegistry Graph GraphInNode
GraphInference GraphPrinter GraphTypes GraphView HandedOn HashChains HostFunctions InvokedOperator
Library LibraryCheck LibraryGradientCall LibraryHooks LibraryInstance LibraryLoader LineDiff
LiveNodes LowestFit MatrixFit MaxWeightAntichain MemorySvg NaiveEngine
NamedTensors NetBenchmark OpResource PassList Plan PlanState ReadyQueue ReplayCore ReplayTuner
ResolvedOperator RunVerifier Schedule SharedObject SimpleNet SkylineSearch Specialization StepOrder
SubexpressionMerger SymbolTable TaskGraph TaskStore TypedSchema ValleySearch
ValueMerger""".split())
TEMPLATE_HEAD = r"\btemplate\s*<((?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*)>"
TEMPLATE = re.compile(TEMPLATE_HEAD + r"\s*"
                      r"(?:requires [^{;]*?\s)?(?:(?:class|struct)\s+(?:\[\[\w+\]\]\s*)?(\w+))?")
# Templates whose every argument has a default and yet has other values: the structs of DLPack, ours
# or the real header's.
DEFAULTED = {"opkit/backends/cuda/dlpack.hpp", "opkit/core/dlpack.hpp"}


@check("ordinary-classes")
def ordinary_classes(tree):
    """A class is no template only to postpone its instantiation, which is always the same."""
    for header, code in tree.code.items():
        for found in TEMPLATE.finditer(code):
            line = code.count("\n", 0, found.start()) + 1
            parameters, name = found.groups()
            if name and re.sub("^Basic", "", name) in ORDINARY:
                yield f"{header}:{line} makes {name} a template; it is an ordinary class"
            each = re.split(r",(?![^<(]*[>)])", parameters)
            if parameters.strip() and all("=" in p for p in each) and header not in DEFAULTED \
                    and not any("enable_if" in p or "auto" in p for p in each):
                yield f"{header}:{line} has a template whose arguments all have defaults " \
                      f"(`{parameters}`): write the ordinary {'class' if name else 'function'}"


@check("definitions")
def definitions(tree):
    """Each .ipp is read by one header, where OPKIT_DEFINITIONS asks for it, and by one source; or
    it is a part of another .ipp."""
    for header in tree.text:
        if not header.endswith(".ipp"):
            continue
        owners = tree.owners.get(header, [])
        if len(owners) != 1:
            yield f"{header} is included by {len(owners)} headers, expected one: " \
                  f"{', '.join(owners) or 'end its header with #ifdef OPKIT_DEFINITIONS'}"
        elif owners[0].endswith(".ipp"):
            continue
        else:
            block = re.search(r'#ifdef OPKIT_DEFINITIONS\n(?:#include "[^"]+"\n)+#endif\n',
                              tree.text[owners[0]])
            if not block or f'#include "{header}"\n' not in block.group():
                yield f"{owners[0]} includes {header} elsewhere than in its " \
                      "`#ifdef OPKIT_DEFINITIONS … #endif`"
        sources = [s for s, text in tree.sources.items() if f'#include "{header}"\n' in text]
        if len(sources) != 1:
            yield f"{header} is compiled by {len(sources)} sources of src/, expected one" + \
                  (f": {', '.join(sources)}" if sources else "")
    for source, text in tree.sources.items():
        if text.count("\n") > MAX_LINES:
            yield f"{source} has {text.count(chr(10))} lines, more than {MAX_LINES}: split it"
        for target in re.findall(r'^#include "([^"]+)"', text, re.MULTILINE):
            if target not in tree.text and not ((tree.root / source).parent / target).is_file():
                yield f"{source} includes {target}, which is no header"


# What registers an operator in a header of ops/ or of a backend.
REGISTRATION = re.compile(r"\b(?:OPKIT_)?(?:REGISTER_(?!BACKEND_(?:RANK|VERSION))\w+|(?:STANDARD_)?OPERATOR_SCHEMA|OP)\(")


DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:[^\n]*\\\n)*[^\n]*)\n", re.MULTILINE)


def registers(code):
    """True if a header registers operators, by the toolkit's macros or by its own macro over them."""
    own = [name for name, body in DEFINE.findall(code) if REGISTRATION.search(body)]
    rest = DEFINE.sub("", code)
    return REGISTRATION.search(rest) or any(re.search(rf"\b{name}\(", rest) for name in own)


@check("operator-sources")
def operator_sources(tree):
    """A header that registers operators is compiled by one source, or its operators are missing."""
    for header, code in tree.code.items():
        folder, rest = header.split("/")[1], header.split("/")[2:]
        if folder not in ("ops", "backends") or "support" in rest or not registers(code):
            continue
        sources = [s for s, text in tree.sources.items() if f'#include "{header}"\n' in text]
        if len(sources) != 1:
            yield f"{header} registers operators and is included by {len(sources)} sources of " \
                  f"src/, expected one" + (f": {', '.join(sources)}" if sources else "")


# Where a device may be named: in its backend, where its number and its compiler are, and where other
# hosts' names of it are.
DEVICE_NAMES = {"cuda": ("opkit/backends/cuda/", "opkit/backends/nccl/", "opkit/core/device_type.hpp", "opkit/config.hpp",
                         "opkit/abi/", "opkit/export/")}


@check("device-names")
def device_names(tree):
    """Only its backend names a device; code for every device does not."""
    for header, code in tree.code.items():
        for name, places in DEVICE_NAMES.items():
            for number, line in enumerate(code.splitlines(), 1):
                if name in line.lower() and not header.startswith(places):
                    yield f"{header}:{number} names {name}, which is for {', '.join(places)}"


# Spellings that have a shorter one: (pattern, what to write).
SPELLINGS = {
    "null-comparisons": (re.compile(r"[=!]=\s*nullptr\b|\bnullptr\s*[=!]="), "`if (p)`, `if (!p)`"),
    "index-casts": (re.compile(r"\[static_cast<(?:std::)?size_t>\("), "`v[Index(i)]`"),
}


def misspelled(tree, name):
    pattern, instead = SPELLINGS[name]
    sources = {s: without_comments(t, strings=False) for s, t in tree.sources.items()}
    for file, code in (tree.code | sources).items():
        for found in pattern.finditer(code):
            line = code.count("\n", 0, found.start()) + 1
            yield f"{file}:{line} has `{found.group()}`: write {instead}"


@check("null-comparisons")
def null_comparisons(tree):
    """A condition tests a pointer without nullptr."""
    return misspelled(tree, "null-comparisons")


@check("index-casts")
def index_casts(tree):
    """A signed number indexes a container through Index of base/index.hpp."""
    return misspelled(tree, "index-casts")


@check("includes-resolve")
def includes_resolve(tree):
    for header, includes in tree.includes.items():
        for line, target in includes:
            if target[0] == '"' and target[1:-1] not in tree.text:
                yield f'{header}:{line} includes {target}, expected "opkit/..." of a present header'
            if target.startswith("<opkit/"):
                yield f"{header}:{line} includes {target}: write it in quotes"


@check("umbrella")
def umbrella(tree):
    if ALL in tree.text:
        reached = tree.reach(ALL)
        for header in tree.text:
            inside = row_of(header) is not None and row_of(header) <= UMBRELLA_ROW
            owner = tree.owners.get(header, [header])[0]  # whose definitions it holds
            if inside and header not in reached and owner not in (ALL, *NOT_IN_UMBRELLA) \
                    and not header.startswith(NOT_IN_UMBRELLA_FOLDERS):
                yield f"{ALL} does not reach {header}"


@check("tiers")
def tiers(tree):
    """An umbrella reaches no header of a tier that it must not include."""
    for header, without in UMBRELLAS.items():
        if header not in tree.text:
            continue
        for reached in sorted(tree.reach(header, tree.always)):
            if reached.startswith(without) and reached not in IN_TIER.get(header, ()):
                yield f"{header} reaches {reached}, which it does without"


@check("all-of-a-folder")
def all_of_a_folder(tree):
    for header in tree.text:
        if not header.endswith("/all.hpp") or header == ALL:
            continue
        reached = tree.reach(header)
        for other in tree.text:
            if folder_of(other) == folder_of(header) and other not in reached and other != header:
                yield f"{header} does not reach {other}"


@check("guards")
def guards(tree):
    for header, text in tree.text.items():
        guard = tree.guard(header)
        directives = re.findall(r"^[ \t]*#[ \t]*(\w+)[ \t]*(\S*)", tree.code[header], re.MULTILINE)
        if directives[:2] != [("ifndef", guard), ("define", guard)]:
            yield f"{header} does not open with #ifndef {guard}, #define {guard}"
        elif not re.search(rf"^#endif\s+(//|/\*) {guard}( \*/)?\n\Z", text, re.MULTILINE):
            yield f"{header} does not end with `#endif  // {guard}`"


@check("opening-comment")
def opening_comment(tree):
    for header, text in tree.text.items():
        if not text.startswith(("// ", "/* ")):
            yield f"{header} does not begin with a comment that says what it is"


@check("folder-size")
def folder_size(tree):
    """A folder has at most MAX_HEADERS headers: the parts of an idea go to a folder of their own."""
    folders = {}
    for header in tree.text:
        if not header.endswith(".ipp"):
            folders.setdefault(header.rsplit("/", 1)[0], []).append(header)
    for folder, headers in folders.items():
        if len(headers) > MAX_HEADERS:
            yield f"{folder}/ holds {len(headers)} headers, more than {MAX_HEADERS}: make a room " \
                  "of some"


@check("size")
def size(tree):
    for header, text in tree.text.items():
        if text.count("\n") > MAX_LINES:
            yield f"{header} has {text.count(chr(10))} lines, more than {MAX_LINES}: split it"


FUNCTION_BODY = re.compile(r"\)[\w\s&:<>,*-]*\{")  # of a function, or of a loop in one


@check("tests-mirror-headers")
def tests_mirror_headers(tree):
    """A header with functions of its own, rows 1 to that of plugin/, is tested by the file of its
    name, or covered_by.txt says `header test words`: words that stand in both, such as the class,
    or what an Error says."""
    path = tree.root / "tests" / "hygiene" / "covered_by.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    covered = {}
    for line in lines:
        if line and not line.startswith("#"):
            if line.split()[0] in covered:
                yield f"covered_by.txt names {line.split()[0]} twice"
            covered[line.split()[0]] = line
    tests = tree.root / "tests"
    for header in tree.text:
        name = header.removeprefix("opkit/").removesuffix(".hpp")
        if header.endswith((".ipp", ".h", "/all.hpp", "/fwd.hpp")) or row_of(header) is None or \
                not ROW_OF["base"] <= row_of(header) <= ROW_OF["plugin"]:
            continue
        own = (tests / f"{name}_test.cpp").exists()
        parts = [header]
        for part in parts:  # and the .ipp files of it
            parts += [t for t in tree.own[part] if t in tree.owners]
        line = covered.pop(name + ".hpp", None)
        if line is None:
            code = "".join(re.sub(r"^[ \t]*#(?:.*\\\n)*.*", "", tree.code[part], flags=re.MULTILINE)
                           for part in parts)
            if not own and FUNCTION_BODY.search(code):
                yield f"{header} has no tests/{name}_test.cpp, and covered_by.txt names no other test"
        elif own:
            yield f"covered_by.txt names {name}.hpp, which has tests/{name}_test.cpp"
        elif len(line.split(None, 2)) < 3:
            yield f"covered_by.txt: `{line}` is not `header test words`"
        else:
            _, test, words = line.split(None, 2)
            if not (tests / test).exists():
                yield f"covered_by.txt: there is no tests/{test}"
            elif words not in (tests / test).read_text():
                yield f"covered_by.txt: `{words}` does not stand in tests/{test}"
            elif not any(words in without_comments(tree.text[part]) for part in parts):
                yield f"covered_by.txt: `{words}` does not stand in {header}"
    for name in covered:
        yield f"covered_by.txt names {name}, which is no header of these rows"


@check("namespaces")
def namespaces(tree):
    for header, code in tree.code.items():
        for number, line in enumerate(code.splitlines(), 1):
            # The names of Caffe2's sources are in its own namespace.
            if re.search(r"\busing\s+namespace\b", line) and header != "opkit/compat/caffe2.hpp":
                yield f"{header}:{number} has `using namespace`"
            if re.search(r"\bnamespace\s+opkit\b(?! \{ inline namespace OPKIT_INLINE_NAMESPACE\b)(?!\s*;)", line):
                yield f"{header}:{number} opens namespace opkit without the inline namespace"


@check("std-includes")
def std_includes(tree):
    posix, loader = set(), set()
    for header, includes in tree.includes.items():
        row = row_of(header)
        for line, target in includes:
            name, where = target[1:-1], f"{header}:{line} includes {target}"
            if target[0] == '"' or row is None:
                continue
            if name in LOADER:
                loader.add(header)
            elif name in POSIX:
                posix |= {header} - POSIX_DEFINITIONS
            elif name in FORBIDDEN and row <= FORBIDDEN_TO_ROW:
                yield f"{where}, too heavy for rows 0 to {FORBIDDEN_TO_ROW}"
            elif name in C_STD and header.endswith(".h"):
                pass
            elif name not in STD and row < THIRD_PARTY_ROW:
                yield f"{where}: neither a C++ header nor allowed outside interop/ and backends/"
    if len(posix) > 1:
        yield f"POSIX headers are included by {', '.join(sorted(posix))}: one header holds them all"
    for header in sorted(loader - LOADER_HEADERS):
        yield f"{header} includes the loader's headers, which {', '.join(sorted(LOADER_HEADERS))} " \
              "alone may"


def preprocessed_macros(tree, headers, *flags):
    unit = "".join(f"#include {h}\n" for h in headers)
    command = [*tree.cxx.split(), "-std=c++20", f"-I{tree.include}", *flags, "-dM", "-E"]
    run = subprocess.run([*command, "-x", "c++", "-"], input=unit, capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError("a unit of all headers does not preprocess: " + run.stderr[:500].strip())
    return set(re.findall(r"^#define (\w+)", run.stdout, re.MULTILINE))


def surviving_macros(tree, *flags):
    """Macros that remain in a program that includes every header, except guards. Headers that need
    third-party code are not compiled but read, for the macros that they define and do not undefine."""
    headers = [h for h in tree.text if row_of(h) is not None and row_of(h) < THIRD_PARTY_ROW]
    known = STD | C_STD | POSIX | LOADER
    angled = sorted({t for h in headers for _, t in tree.includes[h] if t[1:-1] in known})
    baseline = preprocessed_macros(tree, angled)
    result = preprocessed_macros(tree, angled + [f'"{h}"' for h in headers], *flags) - baseline
    for header in set(tree.text) - set(headers):
        code = tree.code[header]
        if "-DOPKIT_NO_SHORT_MACROS" in flags:
            code = re.sub(r"#ifndef OPKIT_NO_SHORT_MACROS\n.*?#endif", "", code, flags=re.DOTALL)
        for kind, name in re.findall(r"^[ \t]*#[ \t]*(define|undef)[ \t]+(\w+)", code, re.MULTILINE):
            (result.add if kind == "define" else result.discard)(name)
    switches = {f[2:].split("=")[0] for f in flags if f.startswith("-D")}
    return result - {tree.guard(h) for h in tree.text} - switches


@check("macros")
def macros(tree):
    now = surviving_macros(tree)
    path = tree.root / "tests" / "hygiene" / "macros.txt"
    listed = set(path.read_text().split()) if path.exists() else set()
    for name in sorted(now - listed):
        yield f"{name} survives the headers: #undef it, or add it with check.py --write-macros"
    for name in sorted(listed - now):
        yield f"{name} is listed in macros.txt and no longer defined: check.py --write-macros"


@check("macro-prefix")
def macro_prefix(tree):
    for name in sorted(surviving_macros(tree, "-DOPKIT_NO_SHORT_MACROS")):
        if not name.startswith("OPKIT_"):
            yield f"{name} survives with OPKIT_NO_SHORT_MACROS and has no OPKIT_ prefix"


@check("short-macros")
def short_macros(tree):
    """A short alias of a macro that does not exist fails only where a user writes it."""
    known = surviving_macros(tree)
    alias = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(?!OPKIT_)(\w+)(?:\([^)]*\))?"
                       r"[ \t\\\n]+(OPKIT_\w+)", re.MULTILINE)
    for header, code in tree.code.items():
        for name, target in alias.findall(code):
            if name in known and target not in known:
                yield f"{header}: {name} stands for {target}, which no header defines"


def tracked_files(root):
    run = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, text=True)
    names = run.stdout.split("\0")[:-1] if run.returncode == 0 else []
    found = [root / n for n in names] or [p for p in root.rglob("*") if ".git" not in p.parts]
    return [p for p in found if p.is_file()]


@check("machine-paths")
def machine_paths(tree):
    for path in tracked_files(tree.root):
        data = path.read_bytes()
        if b"\0" in data[:4096]:
            continue
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            found = MACHINE_PATH.search(line)
            if found:
                yield f"{path.relative_to(tree.root)}:{number} names a path of one machine: " \
                      f"{line[found.start():found.start() + 40].strip()}"


# A comment needs a subject, a verb and a concrete noun.
VAGUE = re.compile(r"\b(tells?|told|whoever|nobody|hands? on|handed on)\b", re.I)
OPENING = re.compile(r"(Of|What|That of|Who|Whether|Its?|They|Their|This|These|Those)\b")
CODE = re.compile(r"`[^`]*`|\w+::\w+")
COMMENT_LINE = re.compile(r"\s*// ?(?!NOLINT)(.*)")
COMMENT_BESIDE = re.compile(r"""^[^"']*[;,{})]\s+// (.*)""")


def comment_blocks(text):
    """Each comment with the number of its first line; lines that follow each other are one."""
    block, begin = [], 0
    for number, line in enumerate(text.splitlines() + [""], 1):
        if found := COMMENT_LINE.fullmatch(line):
            begin = begin if block else number
            block.append(found[1])
            continue
        if block:
            yield begin, " ".join(block).strip()
            block = []
        if found := COMMENT_BESIDE.match(line):
            yield number, found[1]


@check("plain-comments")
def plain_comments(tree):
    for folder in ("include", "src", "tools", "examples", "bench", "tests"):
        for path in sorted((tree.root / folder).rglob("*")):
            if path.suffix not in (".hpp", ".ipp", ".cpp", ".cc", ".cu", ".h"):
                continue
            for number, comment in comment_blocks(path.read_text()):
                where = f"{path.relative_to(tree.root)}:{number}"
                if found := OPENING.match(comment):
                    yield f"{where} begins with '{found[0]}': name the thing, or begin with a verb"
                elif found := VAGUE.search(CODE.sub("", comment)):
                    yield f"{where} says '{found[0]}': use the plain verb or noun"

TYPE = re.compile(r"\b(?:enum\s+(?:class\s+)?|class\s+|struct\s+|union\s+|concept\s+)"
                  r"(?:OPKIT_\w+\s+|\[\[[^\]]*\]\]\s*|alignas\([^)]*\)\s*)*(\w+)[^;={}()]*$")
ALIAS = re.compile(r"\b(?:using|concept)\s+(\w+)\s*=")


def public_types(code):
    """The types that a header defines in namespace opkit: not those in detail, nor in a class."""
    found, scopes, statement = set(), [], ""
    for part in re.split(r"([{};])", re.sub(r"^[ \t]*#.*$", "", DEFINE.sub("", code), flags=re.MULTILINE)):
        outside = all(scope == "namespace" for scope in scopes)
        if part == "{":
            namespace = re.search(r"\bnamespace\s*([\w:]*)\s*$", statement)
            if namespace:
                scopes.append("detail" if namespace[1] in ("", "detail") else "namespace")
            else:
                defined = TYPE.search(re.sub(TEMPLATE_HEAD, "", statement))
                if outside and defined:
                    found.add(defined[1])
                scopes.append("other")
        elif part == "}":
            scopes and scopes.pop()
        elif part != ";":
            statement = part
            if outside:
                found.update(ALIAS.findall(part))
            continue
        statement = ""
    return found


def public_names(tree):
    """For each umbrella, by tier, the types that it brings and that the umbrellas before it do not."""
    declarations = {h: [t for t in targets if not t.endswith(".ipp")]
                    for h, targets in tree.always.items()}
    seen, lines = set(), []
    for umbrella in UMBRELLAS:
        headers = tree.reach(umbrella, declarations) if umbrella in tree.code else set()
        names = set().union(*(public_types(tree.code[h]) for h in headers if h in tree.code)) - seen
        lines += [f"{umbrella} {name}" for name in sorted(names)]
        seen |= names
    return lines


@check("public-names")
def public_names_are_listed(tree):
    """A list has the names that umbrellas give a program, so that a name becomes public on purpose."""
    path = tree.root / "tests" / "hygiene" / "public_names.txt"
    now, listed = public_names(tree), path.read_text().splitlines() if path.exists() else []
    for line in now:
        if line not in listed:
            umbrella, name = line.split()
            yield f"{umbrella} brings the type {name}: move it to detail, or accept it with " \
                  "check.py --write-public-names"
    for line in listed:
        if line not in now:
            yield f"public_names.txt lists `{line}`, which is no more: check.py --write-public-names"
    door = sum(line.startswith(DOOR) for line in now)
    if door > MAX_TYPES:
        yield f"opkit.hpp and graph.hpp bring {door} types, more than {MAX_TYPES}"


def problems(function, tree):
    try:
        return list(function(tree))
    except RuntimeError as error:
        return [str(error)]


def write_list(tree, name, lines):
    (tree.root / "tests" / "hygiene" / name).write_text("".join(f"{line}\n" for line in lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--cxx", default=os.environ.get("CXX", "g++"))
    parser.add_argument("--write-macros", action="store_true")
    parser.add_argument("--write-public-names", action="store_true")
    options = parser.parse_args()
    tree = Tree(options.root, options.cxx)
    if options.write_macros:
        write_list(tree, "macros.txt", sorted(surviving_macros(tree)))
    if options.write_public_names:
        write_list(tree, "public_names.txt", public_names(tree))
    if options.write_macros or options.write_public_names:
        return
    failed = False
    for name, function in CHECKS.items():
        found = problems(function, tree)
        failed |= bool(found)
        print(f"FAIL {name}: " + "\n    ".join(found) if found else f"ok {name}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
