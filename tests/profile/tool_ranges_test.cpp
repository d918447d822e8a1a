#include "opkit/profile/tool_ranges.hpp"

#include <dlfcn.h>
#include <doctest/doctest.h>

#include "support/check_fails.hpp"

namespace tool_ranges_test {
namespace {

using namespace opkit;
using detail::ToolRanges;

std::string Tool(const char* name) {
  return std::string(OPKIT_TEST_TOOLS "/libopkit_test_") + name + ".so";
}
// The tool's record of all calls.
std::string RecordOf(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_NOLOAD);
  REQUIRE((handle != nullptr));
  const auto record = reinterpret_cast<const char* (*)()>(dlsym(handle, "tool_record"));
  REQUIRE((record != nullptr));
  const std::string found = record();
  dlclose(handle);
  return found;
}

}  // namespace

TEST_CASE("a tool gets the begin and the end of ranges, by each protocol") {
  struct Case {
    const ToolRanges* (*load)(const std::string&);
    const char* name;
  };
  for (const Case& one :
       {Case{&ToolRanges::LoadNvtx, "nvtx_tool"}, Case{&ToolRanges::LoadItt, "itt_tool"},
        Case{&ToolRanges::LoadItt, "itt_old_tool"}}) {
    CAPTURE(one.name);
    static auto* const kept = new std::vector<const ToolRanges*>;  // as long as the process
    const ToolRanges* const tool = kept->emplace_back(one.load(Tool(one.name)));
    tool->Push("Conv");
    tool->Push("MyOp::load");
    tool->Pop();
    tool->Push("MyOp::load");
    tool->Pop();
    tool->Pop();
    CHECK(RecordOf(Tool(one.name)) == "+Conv\n+MyOp::load\n-\n+MyOp::load\n-\n-\n");
  }
}

TEST_CASE("a library that is no tool is an Error that names the missing function") {
  CheckFails([] { ToolRanges::LoadNvtx("/nowhere/tool.so"); },
             "cannot load the tool's library: /nowhere/tool.so");
  CheckFails([] { ToolRanges::LoadNvtx(Tool("itt_tool")); }, "has no InitializeInjectionNvtx2");
  CheckFails([] { ToolRanges::LoadNvtx(Tool("nvtx_deaf_tool")); }, "takes no ranges by NVTX");
  CheckFails([] { ToolRanges::LoadItt(Tool("nvtx_tool")); },
             "has neither __itt_api_init nor __itt_task_begin");
}

}  // namespace tool_ranges_test
