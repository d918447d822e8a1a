// opkit inspect: shows the nodes of a model, their kernels and costs, and the memory plan.
#include <CLI/CLI.hpp>
#include <memory>

#include "file.hpp"
#include "model.hpp"
#include "opkit/graph/dot.hpp"
#include "opkit/graph/draw_plan.hpp"
#include "options.hpp"
#include "ranks.hpp"
#include "terminal.hpp"
#include "timing.hpp"

namespace cli {
namespace {

using namespace opkit;

struct InspectCommand {
  ModelOptions model;
  std::string dot, svg;
  int ranks = 0;  // 0: one process
};

// Costs are summed as doubles, because sums of integers could overflow.
std::string Bytes(double value) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  int unit = 0;
  for (; value >= 1024 && unit < 6; ++unit) value /= 1024;
  return Fixed(value, unit == 0 ? 0 : 2) + " " + kUnits[unit];
}
std::string Bytes(int64_t bytes) { return Bytes(static_cast<double>(bytes)); }

std::string Heading(const char* text) { return "\n" + Bold(text, stdout) + "\n"; }

std::string About(const OnnxModel& model, const Plan& plan, const std::string& path) {
  int64_t bytes = 0;
  for (const Graph::Constant& constant : model.graph.constants())
    if (!IsObject(constant.value.dtype())) bytes += constant.value.nbytes();
  std::string out = StrCat(path, model.name.empty() ? "" : ", '" + Printable(model.name) + "'",
                           model.producer.empty() ? "" : ", by " + Printable(model.producer), "\n");
  out += StrCat("IR ", model.ir_version, ", opset ", model.opset(), "; ",
                Counted(static_cast<size_t>(model.graph.num_nodes()), "node"), ", of which ",
                StrCat(plan.graph().num_nodes(), " run; ", "weights of ", Bytes(bytes), "\n"));
  return out;
}

std::string OutputTypes(const Plan& plan, const OperatorDef& def) {
  std::string types;
  for (const std::string& output : def.outputs())
    if (!output.empty()) types += (types.empty() ? "" : " ") + ToString(plan.type(output));
  return types;
}
// Returns the text of the node without its operator.
std::string ValuesOf(const OperatorDef& def) {
  const std::string text = ToString(def);
  return Printable(text.substr(std::min(text.size(), def.type().size() + 1)));
}

// Lists the declared types of the inputs, the shapes chosen here, and the outputs.
std::string Interface(const Graph& graph, const Plan& plan) {
  Table table("lll");
  for (const Graph::Input& input : graph.inputs()) {
    const std::string declared = ToString(input.info), chosen = ToString(plan.type(input.name));
    std::string here = declared == chosen ? "" : "here " + chosen;
    if (input.has_default()) here += here.empty() ? "has a default" : ", has a default";
    table.Add({"  " + Printable(input.name), Printable(declared), here});
  }
  std::string out = Heading("inputs") + table.Format(false, stdout);
  Table outputs("ll");
  for (const std::string& output : graph.outputs())
    outputs.Add({"  " + Printable(output), Printable(ToString(plan.type(output)))});
  return out + Heading("outputs") + outputs.Format(false, stdout);
}

// Lists the nodes of a plan with open shapes, whose kernels and costs are not known.
std::string OpenNodes(const Plan& plan) {
  Table table("rlll");
  table.Add({"node", "operator", "output", "values"});
  for (int node = 0; node < plan.graph().num_nodes(); ++node) {
    const OperatorDef& def = plan.graph().node(node);
    table.Add({StrCat(node), def.type(), Printable(OutputTypes(plan, def)), ValuesOf(def)});
  }
  return Heading("nodes") + table.Format(true, stdout);
}

std::string Nodes(const Plan& plan) {
  const Graph& graph = plan.graph();
  Table table("rlllrrl");
  table.Add({"node", "operator", "backend", "output", "MFLOP", "KiB moved", "values"});
  double flops = 0, moved = 0;
  for (int node = 0; node < graph.num_nodes(); ++node) {
    const OperatorDef& def = graph.node(node);
    const OpCost cost = CostOf(plan, node);
    const double bytes =
        static_cast<double>(cost.bytes_read) + static_cast<double>(cost.bytes_written);
    flops += static_cast<double>(cost.flops);
    moved += bytes;
    table.Add({StrCat(node), def.type(), plan.choice(node).name(),
               Printable(OutputTypes(plan, def)),
               cost.flops > 0 ? Fixed(static_cast<double>(cost.flops) * 1e-6, 3) : "-",
               bytes > 0 ? Fixed(bytes / 1024, 1) : "-", ValuesOf(def)});
  }
  std::string out =
      Heading("nodes") + table.Format(true, stdout) +
      StrCat("together ", Fixed(flops * 1e-6, 3), " MFLOP, ", Bytes(moved), " moved\n");
  const Explanation explanation = plan.Explain();
  for (const Explanation::Node& node : explanation.nodes)
    if (node.is_converter())
      out += StrCat("  ", Printable(node.text), ": ", node.from, " -> ", node.to, ", ",
                    Bytes(node.bytes), "\n");
  return out;
}

std::string Memory(const Plan& plan) {
  const MemorySummary memory = plan.memory();
  return Heading("memory between nodes") +
         StrCat("  arena ", Bytes(memory.arena_bytes), " (", memory.arena_bytes,
                " bytes, at least ", memory.lower_bound_bytes, ", ratio ",
                Fixed(memory.ratio(), 4)) +
         StrCat("; one by one ", Bytes(memory.naive_bytes), ")\n  ",
                Counted(static_cast<size_t>(memory.planned_values), "value"), ", ",
                memory.inplace_values, " in place of an input",
                memory.bounded_values == 0
                    ? "\n"
                    : StrCat(", ", memory.bounded_values,
                             " with a bound, because a run decides their size\n"));
}

constexpr const char* kNothingToDraw = "no value is kept in memory between nodes";

bool IsOpen(const std::vector<Graph::Input>& shapes) {
  for (const Graph::Input& input : shapes)
    if (input.info.dtype == DType::kUndefined || !input.info.shape.is_known()) return true;
  return false;
}

// Returns the plan. An extent is 1 if neither the model nor the command line gives it. If these
// extents cannot be 1, returns the plan for open extents and sets `why`.
Plan PlanToInspect(const Graph& graph, const ModelOptions& options, std::string* why) {
  const std::vector<Graph::Input> known = KnownShapes(graph, options);
  if (!IsOpen(known)) return MakePlan(graph, known, options);
  try {
    return MakePlan(graph, ChooseShapes(graph, options), options);
  } catch (const Failure& failure) {
    if (failure.code() != ExitCode::kBadInput) throw;
    *why = failure.what();
    return MakePlan(graph, known, options);
  }
}

void Inspect(InspectCommand& command) {
  const OnnxModel model = LoadModel(command.model);
  std::string why_open;
  const Plan plan = PlanToInspect(model.graph, command.model, &why_open);
  if (command.ranks > 0) {
    std::vector<Graph::Input> shapes;
    for (const Graph::Input& input : model.graph.inputs())
      shapes.push_back({input.name, plan.type(input.name)});
    return WriteFile("-", About(model, plan, command.model.path) + Interface(model.graph, plan) +
                              DescribeRanks(model.graph, shapes, command.ranks));
  }
  if (!command.dot.empty())
    WriteFile(command.dot, plan.has_shapes() ? ToDot(plan) : ToDot(plan.graph(), plan.types()));
  if (!why_open.empty()) {
    if (!command.svg.empty())
      throw Failure(ExitCode::kBadInput, "there is no memory plan to draw: " + why_open,
                    "give --shape NAME=1x3x48x320");
    if (command.dot == "-") return;
    return WriteFile("-",
                     About(model, plan, command.model.path) + Interface(model.graph, plan) +
                         OpenNodes(plan) +
                         "\nThe extents that the model leaves open cannot all be 1; give --shape "
                         "NAME=1x3x48x320 for backends, costs and memory:\n  " +
                         Printable(why_open) + "\n");
  }
  if (!command.svg.empty() && plan.memory().arena_bytes > 0) {
    WriteFile(command.svg, ToSvg(plan));
  } else if (command.svg == "-") {
    throw Failure(ExitCode::kNoPlan, kNothingToDraw);
  } else if (!command.svg.empty()) {
    std::fprintf(stderr, "opkit: %s: '%s' is not written\n", kNothingToDraw,
                 Printable(command.svg).c_str());
  }
  if (command.dot == "-" || command.svg == "-") return;  // standard output has the drawing only
  WriteFile("-", About(model, plan, command.model.path) + Interface(model.graph, plan) +
                     Nodes(plan) + Memory(plan));
}

}  // namespace

void AddInspectCommand(CLI::App& program) {
  auto command = std::make_shared<InspectCommand>();
  CLI::App* app =
      program.add_subcommand("inspect", "Show a model's nodes, shapes, costs and memory plan");
  AddModelOptions(*app, &command->model);
  AddDeviceOption(*app, &command->model);
  CLI::Option* const ranks =
      app->add_option(
             "--ranks", command->ranks,
             "Shows the stages of a pipeline of N ranks, and the values that cross between "
             "them, instead of nodes and memory")
          ->check(WholeNumber(1, 4096))
          ->option_text("N");
  app->add_option("--dot", command->dot,
                  "Writes a drawing of the graph that runs, for Graphviz; - is standard output")
      ->option_text("FILE.dot");
  app->add_option("--svg", command->svg,
                  "Writes a drawing of the memory plan; - is standard output")
      ->option_text("FILE.svg");
  for (const char* option : {"--dot", "--svg"}) ranks->excludes(app->get_option(option));
  app->footer(
      "Examples:\n"
      "  opkit inspect model.onnx --shape x=1x3x48x320\n"
      "  opkit inspect model.onnx --svg memory.svg\n"
      "  opkit inspect model.onnx --ranks 4\n"
      "  opkit inspect model.onnx --dot - | dot -Tsvg > graph.svg");
  app->callback([command] { Inspect(*command); });
}

}  // namespace cli
