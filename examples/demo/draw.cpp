#include "draw.hpp"

#include <cstdlib>
#include <opkit/base/output_file.hpp>
#include <opkit/graph/dot.hpp>
#include <opkit/graph/draw_plan.hpp>

namespace demo {
namespace {

using namespace opkit;

std::string Write(const std::string& path, const std::string& text) {
  SaveFile(path, text);
  return path;
}

// Quotes a text as one word of the shell, whatever its characters are.
std::string Quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

std::vector<std::string> DrawPlan(const Plan& plan, const std::string& folder,
                                  const std::string& name) {
  if (!plan.has_shapes()) return {};
  const std::string dot =
      Write(folder + "/" + name + "_graph.dot", ToDot(plan, {.constants = false}));
  const std::string svg = folder + "/" + name + "_graph.svg";
  const std::string command = "dot -Tsvg -o" + Quoted(svg) + " <" + Quoted(dot) + " 2>/dev/null";
  const bool drawn = std::system(command.c_str()) == 0;
  return {Write(folder + "/" + name + "_memory.svg", ToSvg(plan)), drawn ? svg : dot};
}

}  // namespace demo
