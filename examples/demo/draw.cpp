#include "draw.hpp"

#include <fstream>
#include <opkit/graph/dot.hpp>
#include <opkit/graph/draw_plan.hpp>

namespace demo {
namespace {

using namespace opkit;

std::string Write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) Throw(ErrorCode::kInvalidArgument, "cannot write '", path, "'");
  return path;
}

}  // namespace

std::vector<std::string> DrawPlan(const Plan& plan, const std::string& folder,
                                  const std::string& name) {
  const auto latest = plan.state()->Latest();  // the shapes it ran with last
  const std::string dot = Write(folder + "/" + name + "_graph.dot",
                                ToDot(plan.graph(), latest->types(), {.constants = false}));
  const std::string svg = folder + "/" + name + "_graph.svg";
  const bool drawn =
      std::system(("dot -Tsvg -o '" + svg + "' '" + dot + "' 2>/dev/null").c_str()) == 0;
  return {Write(folder + "/" + name + "_memory.svg", DrawMemory(plan)), drawn ? svg : dot};
}

}  // namespace demo
