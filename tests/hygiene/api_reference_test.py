#!/usr/bin/env python3
"""The site of the documentation: the façade's public members have comments, the pages of a small header are right, and
every page of docs/ has its place in the site."""
import importlib.util
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "docs"))
import api_reference  # noqa: E402

SPEC = importlib.util.spec_from_file_location("docs_site", ROOT / "tools" / "docs" / "site.py")
site = importlib.util.module_from_spec(SPEC)  # Python has a module `site` of its own
SPEC.loader.exec_module(site)

HEADER = """#ifndef X
class Thing;
// A thing of *one* kind.
//
//   Thing thing(3);
class Thing {
 public:
  Thing() = default;
  Thing(const Thing&) = default;
  // Takes a number.
  explicit Thing(int number) : number_(number) { Check({1, 2}); }

  // Both sizes, in bytes.
  int64_t size(const char* text = "};") const {
    return 0;
  }
  int64_t other_size() const { return 1; }

  template <class Range>
    requires requires(const Range& range) { range.data(); }
  void Silent(const Range& range, std::vector<int> numbers = {});
  friend bool operator==(const Thing&, const Thing&) = default;
  int named = 0;  // a comment beside it

 private:
  void Hidden();
};
// Makes a Thing.
Thing Make(int number,
           int other = 0);
"""


class ApiReference(unittest.TestCase):
    def reference(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "include", "opkit", "thing.hpp")
            path.parent.mkdir(parents=True)
            path.write_text(text)
            return api_reference.Reference(pathlib.Path(folder))

    def setUp(self):
        self.pages = api_reference.PAGES
        api_reference.PAGES = {"Thing": ("a thing", "opkit/thing.hpp", ["Thing", "Make"])}

    def tearDown(self):
        api_reference.PAGES = self.pages

    def test_a_public_member_without_a_comment_is_found(self):
        self.assertEqual(list(self.reference(HEADER).missing()),
                         ["opkit/thing.hpp: Thing::Silent has no comment"])

    def test_a_function_without_a_comment_is_found(self):
        text = HEADER.replace("// Makes a Thing.\n", "").replace("  template", "  // Silent.\n  template")
        self.assertEqual(list(self.reference(text).missing()), ["opkit/thing.hpp: Make: has no comment"])

    def test_a_page_has_declarations_without_bodies_and_comments(self):
        page = self.reference(HEADER).page("Thing")
        self.assertIn("A thing of \\*one\\* kind.\n\n```cpp\nThing thing(3);\n```", page)
        self.assertIn("### Thing\n\n```cpp\nexplicit Thing(int number);\n```\n\nTakes a number.", page)
        self.assertIn('### size, other\\_size\n\n```cpp\nint64_t size(const char* text = "};") const;\n'
                      "int64_t other_size() const;\n```\n\nBoth sizes, in bytes.", page)
        self.assertIn("template <class Range> void Silent(const Range& range, std::vector<int> numbers = {});",
                      page)
        self.assertIn("int named = 0;  // a comment beside it", page)
        self.assertIn("Thing Make(int number, int other = 0);\n```\n\nMakes a Thing.", page)
        self.assertNotIn("Hidden", page)

    def test_an_unknown_name_ends_with_a_sentence(self):
        api_reference.PAGES = {"Gone": ("", "", ["Gone"])}
        with self.assertRaisesRegex(SystemExit, "no header of include/opkit defines Gone"):
            self.reference(HEADER).page("Gone")

    def test_every_public_member_of_the_facade_has_a_comment(self):
        api_reference.PAGES = self.pages
        reference = api_reference.Reference(ROOT)
        self.assertEqual(list(reference.missing()), [])
        for page in self.pages:
            self.assertGreater(reference.page(page).count("```cpp"), 2, page)


class Site(unittest.TestCase):
    def test_links_to_pages_stay_and_links_to_other_files_become_text(self):
        text = "See [a page](b.md#part), [a file](../src/x.cpp), [tables](../bench/results) and [up](../README.md).\n"
        known = {"docs/b.md", "README.md", "bench/results/README.md"}
        self.assertEqual(site.site_text("docs/a.md", text, known),
                         "See [a page](b.md#part), a file, [tables](../bench/results/README.md) and [up](../README.md).\n")

    def test_comments_for_tests_are_left_out_and_lists_are_set_apart(self):
        text = "<!-- run -->\n```sh\n- no list\n```\nFour things:\n- one\n  - two\n- three\n"
        self.assertEqual(site.site_text("docs/a.md", text, set()),
                         "```sh\n- no list\n```\nFour things:\n\n- one\n    - two\n- three\n")

    def test_every_page_of_docs_stands_in_a_section(self):
        named = [path for section in site.SECTIONS.values() for path in section]
        self.assertEqual(sorted(path for path in named if path.startswith("docs/")),
                         sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")))
        self.assertEqual([path for path in named if not (ROOT / path).exists()], [])


if __name__ == "__main__":
    unittest.main()
