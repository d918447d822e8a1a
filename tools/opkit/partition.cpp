// opkit partition: shows which parts of a model a partitioner takes and why the others stay, and
// writes the resulting graph. The program has the partitioner by_operator; libraries bring more.
#include "partition.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>

#include "file.hpp"
#include "model.hpp"
#include "opkit/graph/partition/partition.hpp"
#include "opkit/graph/partition/register_partitioner.hpp"
#include "opkit/graph/passes.hpp"
#include "opkit/interop/json.hpp"
#include "opkit/interop/onnx_writer.hpp"
#include "options.hpp"
#include "terminal.hpp"

namespace cli {
namespace {

using namespace opkit;

// Takes the operators of its option `ops`, which the program itself runs. Shows the subgraphs that
// a library with these operators would get.
void TakeByOperator(const PartitionView& view, PartitionAnswer& answer,
                    const PartitionArguments& options) {
  std::string ops;
  for (const auto& [name, value] : options) {
    if (name != "ops")
      Throw(ErrorCode::kInvalidArgument, "there is no option '", name,
            "'; by_operator has the option ops and the options of every partitioner");
    ops = "," + value + ",";
  }
  if (ops.size() < 3)
    Throw(ErrorCode::kInvalidArgument, "expected the option ops=NAME,..., the operators to take");
  for (const PartitionNode& node : view.nodes())
    if (ops.find("," + node.op() + ",") != std::string::npos) answer.Take(node);
}

struct PartitionCommand {
  ModelOptions model;
  std::string output, dot;
  bool dry_run = false, json = false;
};

void WriteSvg(const std::string& path, const std::string& dot) {
  std::string quoted = "'";
  for (const char c : path) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  std::FILE* const graphviz = popen(("dot -Tsvg -o " + quoted + "' 2> /dev/null").c_str(), "w");
  // If the shell finds no program dot, the write raises SIGPIPE, which would end this program.
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  bool written = graphviz && std::fwrite(dot.data(), 1, dot.size(), graphviz) == dot.size();
  if (graphviz) written = pclose(graphviz) == 0 && written;
  std::signal(SIGPIPE, before);
  if (!written)
    throw Failure(ExitCode::kBadFile, "Graphviz did not draw '" + path + "'",
                  "install its program dot, or give a name that ends with .dot");
}

void PartitionModel(PartitionCommand& command) {
  const std::vector<PartitionerRequest> partitioners = RequestsOf(command.model.partition);
  if (partitioners.empty())
    throw Failure(ExitCode::kUsage, "expected --partition NAME",
                  StrCat("there are ", PartitionerRegistry::Global().Names()));
  const OnnxModel model = LoadModel(command.model);
  const auto shapes = KnownShapes(model.graph, command.model);
  PartitionReport report;
  std::string graph;
  if (command.dry_run) {
    FailWith(ExitCode::kBadModel, "", [&] {
      const Graph prepared =
          DefaultPasses().Run(WithShapes(model.graph, shapes), {}, UnknownOperators::kAllowed);
      return Partition(prepared, partitioners, &report);
    });
  } else {
    const Plan plan = MakePlan(model.graph, shapes, command.model);
    report = plan.partition_report();
    if (command.output.ends_with(".onnx"))
      FailWith(ExitCode::kBadModel, "", [&] {
        OnnxWriteOptions options;
        for (const OnnxOpset& opset : model.opsets)
          if (!opset.domain.empty() && opset.version > 0) options.domain_versions.push_back(opset);
        return graph = ToOnnx(plan.graph(), options);
      });
    else if (!command.output.empty())
      graph = SaveGraphJson(plan.graph());
  }
  if (command.dot.ends_with(".svg"))
    WriteSvg(command.dot, ToDot(report, {.constants = false}));
  else if (!command.dot.empty())
    WriteFile(command.dot, ToDot(report, {.constants = false}));
  if (!graph.empty()) WriteFile(command.output, graph);
  if (command.dot == "-" || (command.output == "-" && !graph.empty())) return;
  WriteFile("-", command.json ? ToJson(report) : ToString(report));
}

}  // namespace

REGISTER_PARTITIONER(by_operator).setSupportedOps(TakeByOperator);

void AddPartitionOptions(CLI::App& app, PartitionOptions* options) {
  app.add_option(
         "--partition", options->partitioners,
         "Gives parts of the model to this partitioner; several partitioners choose in this order")
      ->allow_extra_args(false)
      ->option_text("NAME ...");
  app.add_option("--option", options->options,
                 "Sets an option of the partitioners, such as min_size=2; opkit partition --help "
                 "lists the options")
      ->allow_extra_args(false)
      ->option_text("NAME=VALUE ...");
}

std::vector<PartitionerRequest> RequestsOf(const PartitionOptions& options) {
  PartitionArguments arguments;
  for (const std::string& text : options.options)
    arguments.push_back(SplitSetting("--option", text));
  if (!arguments.empty() && options.partitioners.empty())
    throw Failure(ExitCode::kUsage, "--option needs a partitioner", "give --partition NAME");
  std::vector<PartitionerRequest> requests;
  for (const std::string& name : options.partitioners) requests.emplace_back(name, arguments);
  return requests;
}

void CheckPartitioners(const PartitionOptions& options) {
  for (const std::string& name : options.partitioners) try {
      static_cast<void>(PartitionerRegistry::Global().Requested(name));
    } catch (const Error& error) {
      throw Failure(ExitCode::kBadModel, Describe(error),
                    "load the partitioners of a library with --library FILE.so");
    }
}

void AddPartitionCommand(CLI::App& program) {
  auto command = std::make_shared<PartitionCommand>();
  CLI::App* app = program.add_subcommand(
      "partition", "Show which parts of a model a partitioner takes, and why others stay");
  AddModelOptions(*app, &command->model);
  app->add_flag("--dry-run", command->dry_run,
                "Only reports: unknown operators are allowed, and nothing is compiled");
  app->add_option("-o,--output", command->output,
                  "Writes the graph that runs, as an ONNX model if the name ends with .onnx, "
                  "otherwise as JSON; - is standard output")
      ->option_text("FILE");
  app->add_option("--dot", command->dot,
                  "Writes a drawing of the model with a box around each subgraph, for Graphviz, or "
                  "as SVG if the name ends with .svg; - is standard output")
      ->option_text("FILE");
  app->add_flag("--json", command->json, "Prints the report as JSON");
  app->footer(
      "Options of every partitioner: exclude_ops=NAME,... exclude_nodes=NAME,... min_size=N\n"
      "max_size=N max_subgraphs=N require_all=true see_taken=true accept_if_faster=true\n"
      "accept_if_faster measures, and needs --shape if the model leaves extents open.\n"
      "The built-in partitioner by_operator takes the operators of its option ops=NAME,...\n\n"
      "Examples:\n"
      "  opkit partition model.onnx --partition by_operator --option ops=Conv,Relu\n"
      "  opkit partition model.onnx --partition my_prop --library libmy.so --dry-run\n"
      "  opkit partition model.onnx --partition my_prop --library libmy.so --dot parts.svg\n"
      "  opkit partition model.onnx --partition my_prop --library libmy.so -o parted.onnx\n"
      "  opkit run parted.onnx --random --library libmy.so");
  app->callback([command] { PartitionModel(*command); });
}

}  // namespace cli
