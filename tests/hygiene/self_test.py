#!/usr/bin/env python3
"""Tests check.py: a small clean tree passes every check, and each change below is flagged by the
check it names, with the sentence it names, and by no other. Prints `ok NAME` or `FAIL NAME: why`
for each, exits 1 when one failed."""
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import check  # noqa: E402


def header(path, body="", includes=()):
    guard = "".join(c if c.isalnum() else "_" for c in path).upper() + "_"
    lines = "".join(f"#include {i}\n" for i in includes)
    return (f"// A header of the test.\n#ifndef {guard}\n#define {guard}\n{lines}{body}\n"
            f"#endif  // {guard}\n")


def tree(**headers):
    return {f"include/{path}": header(path, **how) for path, how in headers.items()}


OPEN = "namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {\n"
CLEAN = tree(**{
    "opkit/version.hpp": dict(body="#define OPKIT_INLINE_NAMESPACE v0_1"),
    "opkit/base/error.hpp": dict(includes=['"opkit/version.hpp"', "<string>"],
                                 body=OPEN + "}  // namespace opkit\n// using namespace in prose"),
    "opkit/core/shape.hpp": dict(includes=['"opkit/base/error.hpp"'],
                                 body="#define OPKIT_TMP 1\n#undef OPKIT_TMP"),
    "opkit/core/device.hpp": dict(includes=['"opkit/base/error.hpp"']),
    "opkit/graph/graph.hpp": dict(includes=['"opkit/core/shape.hpp"', '"opkit/core/device.hpp"']),
    "opkit/plugin/load/shared_object.hpp": dict(
        body='#ifdef OPKIT_DEFINITIONS\n#include "opkit/plugin/load/impl/shared_object.ipp"\n#endif'),
    "opkit/plugin/load/impl/shared_object.ipp": dict(includes=["<dlfcn.h>", "<link.h>"]),
    "opkit/ops/all.hpp": dict(includes=['"opkit/core/shape.hpp"', "<functional>"]),
    "opkit/interop/party.hpp": dict(includes=["<third/party.h>"]),
    "opkit/opkit.hpp": dict(includes=['"opkit/core/shape.hpp"', '"opkit/core/device.hpp"']),
    "opkit/graph.hpp": dict(includes=['"opkit/graph/graph.hpp"', '"opkit/opkit.hpp"']),
    "opkit/all.hpp": dict(includes=['"opkit/graph.hpp"']),
}) | {"src/plugin.cpp": '#include "opkit/plugin/load/impl/shared_object.ipp"\n',
     "tests/hygiene/macros.txt": "OPKIT_INLINE_NAMESPACE\n", "README.md": "See build/home/x, /usr/bin/env.\n"}


def changed(path, **how):
    return tree(**{path: how})


SHAPE, ERROR = "opkit/core/shape.hpp", "opkit/base/error.hpp"
BASE = ['"opkit/base/error.hpp"']
FUNCTION = "inline int Twice(int x) { return 2 * x; }"
COVERED = "tests/hygiene/covered_by.txt"

# (check, words of its sentence, files that are written over the clean tree)
CASES = [
    ("layers", "graph/ lies below base/",
     changed("opkit/base/extra.hpp", includes=['"opkit/graph/leaf.hpp"'])
     | changed("opkit/graph/leaf.hpp") | changed("opkit/all.hpp", includes=[
         '"opkit/graph.hpp"', '"opkit/base/extra.hpp"'])),
    ("layers", "ops/ lies beside plugin/",
     changed("opkit/plugin/library.hpp", includes=['"opkit/ops/all.hpp"'])),
    ("layers", "backends/onednn/ lies beside backends/eigen/",
     changed("opkit/backends/eigen/a.hpp", includes=['"opkit/backends/onednn/b.hpp"'])
     | changed("opkit/backends/onednn/b.hpp")),
    ("layers", "the umbrella is for programs",
     changed("opkit/interop/party.hpp", includes=['"opkit/opkit.hpp"'])),
    ("layers", "ops/ is included by name",
     changed("opkit/all.hpp", includes=['"opkit/graph.hpp"', '"opkit/ops/all.hpp"'])),
    ("layers", "a folder that no layer names", changed("opkit/misc/x.hpp")),
    ("cycles", "shape.hpp -> opkit/core/device.hpp -> opkit/core/shape.hpp",
     changed(SHAPE, includes=['"opkit/core/device.hpp"'] + BASE)
     | changed("opkit/core/device.hpp", includes=['"opkit/core/shape.hpp"'])),
    ("definitions", "shared_object.ipp is compiled by 0 sources", {"src/plugin.cpp": ""}),
    ("definitions", "src/plugin.cpp includes opkit/plugin/impl/gone.ipp, which is no header",
     {"src/plugin.cpp": '#include "opkit/plugin/load/impl/shared_object.ipp"\n'
                        '#include "opkit/plugin/impl/gone.ipp"\n'}),
    ("definitions", "elsewhere than in its `#ifdef OPKIT_DEFINITIONS",
     changed("opkit/plugin/load/shared_object.hpp",
             includes=['"opkit/plugin/load/impl/shared_object.ipp"'])),
    ("ordinary-classes", "core/shape.hpp:7 makes BasicGraph a template",
     changed(SHAPE, includes=BASE, body="\n\ntemplate <class T> class BasicGraph;")),
    ("ordinary-classes", "whose arguments all have defaults (`class G = int`)",
     changed(SHAPE, includes=BASE, body="template <class G = int> void Check(const G&);")),
    ("includes-resolve", 'expected "opkit/..."',
     changed("opkit/interop/party.hpp", includes=['"helper.hpp"'])),
    ("includes-resolve", "write it in quotes",
     changed("opkit/interop/party.hpp", includes=["<opkit/version.hpp>"])),
    ("umbrella", "all.hpp does not reach opkit/device/event.hpp", changed("opkit/device/event.hpp")),
    ("umbrella", "all.hpp does not reach opkit/profile.hpp",
     changed("opkit/profile.hpp", includes=['"opkit/opkit.hpp"'])),
    ("tiers", "opkit/opkit.hpp reaches opkit/graph/graph.hpp, which it does without",
     changed("opkit/opkit.hpp", includes=['"opkit/graph/graph.hpp"'])),
    ("tiers", "opkit/graph.hpp reaches opkit/plugin/load/shared_object.hpp",
     changed("opkit/graph.hpp", includes=[
         '"opkit/graph/graph.hpp"', '"opkit/opkit.hpp"', '"opkit/plugin/load/shared_object.hpp"'])),
    ("tiers", "opkit/opkit.hpp reaches opkit/op/function/impl/call.ipp",
     changed("opkit/op/call.hpp", body='#ifdef OPKIT_DEFINITIONS\n'
             '#include "opkit/op/function/impl/call.ipp"\n#endif')
     | changed("opkit/op/function/impl/call.ipp", includes=['"opkit/op/call.hpp"'])
     | changed("opkit/opkit.hpp", includes=['"opkit/core/shape.hpp"', '"opkit/core/device.hpp"',
                                            '"opkit/op/call.hpp"'])
     | {"src/op.cpp": '#include "opkit/op/function/impl/call.ipp"\n'}),
    ("all-of-a-folder", "opkit/ops/all.hpp does not reach opkit/ops/relu.hpp",
     changed("opkit/ops/relu.hpp") | changed("opkit/ops/all.hpp")),
    ("operator-sources", "ops/relu.hpp registers operators and is included by 0 sources",
     changed("opkit/ops/relu.hpp", body="OPKIT_OP(Relu);")
     | changed("opkit/ops/all.hpp", includes=['"opkit/ops/relu.hpp"'])),
    ("operator-sources", "expected one: src/a.cpp, src/ops/b.cpp",
     changed("opkit/backends/mine/relu.hpp", body="REGISTER_CPU_OPERATOR(Relu, ReluOp);")
     | {f"src/{name}.cpp": '#include "opkit/backends/mine/relu.hpp"\n' for name in ("a", "ops/b")}),
    ("device-names", "core/shape.hpp:7 names cuda",
     changed(SHAPE, includes=BASE, body="// cuda in prose\n\nbool IsCUDA();")),
    ("null-comparisons", "core/shape.hpp:7 has `!= nullptr`",
     changed(SHAPE, includes=BASE, body="// == nullptr in prose\n\nbool a = p != nullptr;")),
    ("null-comparisons", "src/plugin.cpp:2 has `nullptr ==`",
     {"src/plugin.cpp": '#include "opkit/plugin/load/impl/shared_object.ipp"\nbool b = nullptr == "";\n'}),
    ("index-casts", "core/shape.hpp:5 has `[static_cast<size_t>(`",
     changed(SHAPE, includes=BASE, body="int a = v[static_cast<size_t>(i)];")),
    ("folder-size", "opkit/ops/ holds 21 headers, more than 20",
     changed("opkit/ops/all.hpp", includes=[f'"opkit/ops/op{i}.hpp"' for i in range(20)])
     | tree(**{f"opkit/ops/op{i}.hpp": {} for i in range(20)})),
    ("guards", "#ifndef OPKIT_CORE_SHAPE_HPP_",
     {f"include/{SHAPE}": header(SHAPE, includes=BASE).replace("CORE_SHAPE", "SHAPE")}
     | {"tests/hygiene/macros.txt": "OPKIT_INLINE_NAMESPACE OPKIT_SHAPE_HPP_"}),
    ("guards", "does not end with",
     {f"include/{SHAPE}": header(SHAPE, includes=BASE).replace("#endif  //", "#endif //  ")}),
    ("opening-comment", "does not begin with",
     {f"include/{SHAPE}": header(SHAPE, includes=BASE).split("\n", 1)[1]}),
    ("size", "more than 800", changed(SHAPE, includes=BASE, body="\n" * 800)),
    ("tests-mirror-headers", "core/shape.hpp has no tests/core/shape_test.cpp",
     changed(SHAPE, includes=BASE, body=FUNCTION)),
    ("tests-mirror-headers", "names core/shape.hpp, which has tests/core/shape_test.cpp",
     changed(SHAPE, includes=BASE, body=FUNCTION)
     | {"tests/core/shape_test.cpp": "", COVERED: "core/shape.hpp core/a_test.cpp Twice\n"}),
    ("tests-mirror-headers", "`core/shape.hpp` is not `header test words`",
     changed(SHAPE, includes=BASE, body=FUNCTION) | {COVERED: "# why\n\ncore/shape.hpp\n"}),
    ("tests-mirror-headers", "there is no tests/core/a_test.cpp",
     changed(SHAPE, includes=BASE, body=FUNCTION) | {COVERED: "core/shape.hpp core/a_test.cpp Twice\n"}),
    ("tests-mirror-headers", "`Twice` does not stand in tests/core/a_test.cpp",
     changed(SHAPE, includes=BASE, body=FUNCTION)
     | {COVERED: "core/shape.hpp core/a_test.cpp Twice\n", "tests/core/a_test.cpp": "Thrice\n"}),
    ("tests-mirror-headers", "`in prose` does not stand in opkit/core/shape.hpp",
     changed(SHAPE, includes=BASE, body=FUNCTION + "  // in prose")
     | {COVERED: "core/shape.hpp core/a_test.cpp in prose\n", "tests/core/a_test.cpp": "in prose"}),
    ("tests-mirror-headers", "covered_by.txt names core/shape.hpp twice",
     changed(SHAPE, includes=BASE, body=FUNCTION)
     | {COVERED: "core/shape.hpp core/a_test.cpp Twice\n" * 2, "tests/core/a_test.cpp": "Twice"}),
    ("tests-mirror-headers", "names core/gone.hpp, which is no header",
     {COVERED: "core/gone.hpp core/a_test.cpp Gone\n"}),
    ("namespaces", "`using namespace`",
     changed(SHAPE, includes=["<string>"] + BASE, body="using namespace std;")),
    ("namespaces", "without the inline namespace",
     changed(SHAPE, includes=BASE, body="namespace opkit { }")),
    ("std-includes", "too heavy", changed(SHAPE, includes=["<sstream>"] + BASE)),
    ("std-includes", "neither a C++ header",
     changed("opkit/ops/all.hpp", body="#if 0\n#include <third/party.h>\n#endif")),
    ("std-includes", "one header holds them all",
     changed(SHAPE, includes=["<unistd.h>"] + BASE)
     | changed("opkit/core/device.hpp", includes=["<poll.h>"] + BASE)),
    ("std-includes", "core/shape.hpp includes the loader's headers, which opkit/",
     changed(SHAPE, includes=["<dlfcn.h>"] + BASE)),
    ("macros", "OPKIT_NEW survives", changed(SHAPE, includes=BASE, body="#define OPKIT_NEW 1")),
    ("macros", "OPKIT_OLD is listed", {"tests/hygiene/macros.txt": "OPKIT_INLINE_NAMESPACE\nOPKIT_OLD\n"}),
    ("macros", "OPKIT_PARTY survives",
     changed("opkit/interop/party.hpp", body="#define OPKIT_PARTY 1\n#define OPKIT_M\n#undef OPKIT_M")),
    ("macros", "does not preprocess", changed("opkit/ops/all.hpp", body="#error no")),
    ("macro-prefix", "REGISTER_IT survives",
     {"tests/hygiene/macros.txt": "OPKIT_INLINE_NAMESPACE\nREGISTER_IT\n"}
     | changed(SHAPE, includes=BASE, body="#define REGISTER_IT 1")),
    ("short-macros", "SHORT stands for OPKIT_LONG",
     {"tests/hygiene/macros.txt": "OPKIT_INLINE_NAMESPACE\nOPKIT_SHORTER\nSHORT\nSHORTER\n"}
     | changed(SHAPE, includes=BASE, body="#ifndef OPKIT_NO_SHORT_MACROS\n"
               "#define SHORT(...) \\\n  OPKIT_LONG(__VA_ARGS__)\n"
               "#define SHORTER(x) OPKIT_SHORTER(x)\n"
               "#endif\n#define OPKIT_SHORTER(x)")),
    ("public-names", "opkit/opkit.hpp brings the type Extent",
     changed(SHAPE, includes=BASE, body=OPEN + "namespace detail {\nclass Hidden {};\n}\n"
             "template <class T>\nclass Extent { struct Inner {}; };\n}}  // namespace opkit")),
    ("public-names", "public_names.txt lists `opkit/opkit.hpp Gone`",
     {"tests/hygiene/public_names.txt": "opkit/opkit.hpp Gone\n"}),
    ("plain-comments", "shape.hpp:5 begins with 'Whether'",
     changed(SHAPE, includes=BASE, body="// Whether it is full.")),
    ("plain-comments", "shape.hpp:5 begins with 'Of'",
     changed(SHAPE, includes=BASE, body="int x = 0;  // Of a node.")),
    ("plain-comments", "shape.hpp:5 says 'nobody'",
     changed(SHAPE, includes=BASE, body="// A value that\n// nobody reads.")),
    ("plain-comments", "tests/op/case_test.cpp:2 begins with 'What'",
     {"tests/op/case_test.cpp": "int x;\n// What it holds.\n"}),
    ("machine-paths", "docs.md:2", {"docs.md": "fine\nsee " + "/home" + "/someone/opkit\n"}),
]
# A unit that does not preprocess fails every check of macros.
ALSO = {"does not preprocess": {"macro-prefix", "short-macros"}}


def flagged(files):
    """What the checks say of a tree of these files: {check: [sentence, ...]}, the failed ones."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            target = Path(folder) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        subject = check.Tree(Path(folder), os.environ.get("CXX", "g++"))
        found = {name: check.problems(function, subject) for name, function in check.CHECKS.items()}
    return {name: sentences for name, sentences in found.items() if sentences}


def main():
    failed = 0

    def report(name, why):
        nonlocal failed
        failed += bool(why)
        print(f"FAIL {name}: {why}" if why else f"ok {name}")

    found = flagged(CLEAN)
    report("clean tree", f"flagged: {found}" if found else "")
    for name, words, files in CASES:
        found = flagged(CLEAN | files)
        others = set(found) - {name} - ALSO.get(words, set())
        why = ""
        if not any(words in sentence for sentence in found.get(name, [])):
            why = f"expected {words!r}, found {found}"
        elif others:
            why = f"flagged by {others} as well: {found}"
        report(f"{name} ({words})", why)
    untested = set(check.CHECKS) - {name for name, _, _ in CASES}
    report("every check has a case", f"none for {sorted(untested)}" if untested else "")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
