// The main function of every test executable: doctest's own, and `./dev test graph/memory` chooses
// the cases of a folder by OPKIT_TEST_SOURCE_FILES=*tests/graph/memory/*. In an emulator, which
// CMake names in OPKIT_TEST_EMULATOR, it leaves out what skips.txt says that emulators cannot run.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "support/thread_sanitizer.hpp"

namespace {

// Names of cases, and why they are left out.
std::map<std::string, std::string>& LeftOut() {
  static std::map<std::string, std::string> left_out;
  return left_out;
}

void ReadLeftOut() {
  std::ifstream file(OPKIT_TEST_SKIPS);
  for (std::string line; std::getline(file, line);)
    if (const size_t end = line.find(": in an emulator, "); end != line.npos)
      LeftOut()[line.substr(0, end)] = line.substr(end + 2);
}

// Reports a left-out case in the way of a case that ran, for summary.py.
struct TellLeftOut : doctest::IReporter {
  explicit TellLeftOut(const doctest::ContextOptions&) {}
  void test_case_skipped(const doctest::TestCaseData& test) override {
    if (const auto found = LeftOut().find(test.m_name); found != LeftOut().end())
      std::printf("TEST CASE:  %s\nskipped: %s\n", test.m_name, found->second.c_str());
  }
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_start(const doctest::TestCaseData&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
};
REGISTER_LISTENER("left_out", 0, TellLeftOut);

}  // namespace

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  if (const char* files = std::getenv("OPKIT_TEST_SOURCE_FILES"))
    context.addFilter("source-file", files);
  if (std::getenv("OPKIT_TEST_EMULATOR")) ReadLeftOut();
  for (const auto& left_out : LeftOut()) {
    std::string pattern = left_out.first;
    std::replace(pattern.begin(), pattern.end(), ',', '?');  // a comma would end it
    context.addFilter("test-case-exclude", pattern.c_str());
  }
  return context.run();
}
