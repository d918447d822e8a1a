#include "graphs.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.hpp"
#include "attributes.hpp"
#include "opkit/graph/draw_plan.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/graph/gradient/gradients.hpp"
#include "opkit/graph/graph_view.hpp"
#include "opkit/graph/plan.hpp"
#include "opkit/graph/tune/tune.hpp"
#include "opkit/interop/onnx.hpp"
#include "opkit/interop/onnx_writer.hpp"
#include "opkit/op/op_registry.hpp"
#include "values.hpp"

namespace opkit_python {
namespace {

using namespace opkit;

// Returns a shape of numbers, symbols (str) and unknown extents (None); None alone is a shape of
// unknown rank.
SymbolicShape ToShape(nb::handle shape) {
  if (shape.is_none()) return {};
  std::vector<Dim> dims;
  for (nb::handle extent : shape)
    if (extent.is_none())
      dims.emplace_back();
    else if (nb::isinstance<nb::str>(extent))
      dims.push_back(Sym(nb::cast<std::string>(extent)));
    else
      dims.emplace_back(nb::cast<int64_t>(nb::steal(PyNumber_Index(extent.ptr()))));
  return SymbolicShape(std::move(dims));
}

nb::object FromShape(const SymbolicShape& shape) {
  if (!shape.has_rank()) return nb::none();
  nb::list out;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const Dim& dim = shape.dim(axis);
    if (dim.is_known())
      out.append(dim.value());
    else if (dim.is_symbol())
      out.append(dim.symbol());
    else
      out.append(nb::none());
  }
  return nb::tuple(out);
}

nb::list InputsOf(const Graph& graph) {
  nb::list out;
  for (const Graph::Input& input : graph.inputs())
    out.append(nb::make_tuple(input.name, TypeText(input.info), FromShape(input.info.shape)));
  return out;
}

nb::dict DefaultsOf(const Graph& graph) {
  nb::dict out;
  for (const Graph::Input& input : graph.inputs())
    if (input.has_default())
      out[input.name.c_str()] = ToArrayLike(input.default_value.Contiguous(), nullptr);
  return out;
}

nb::list NodesOf(const Graph& graph) {
  nb::list out;
  for (const OperatorDef& node : graph.nodes()) {
    nb::dict item;
    item["op"] = node.type();
    item["name"] = node.name();
    item["inputs"] = node.inputs();
    item["outputs"] = node.outputs();
    nb::dict attributes;
    for (const auto& attribute : node.args())
      attributes[attribute.name.c_str()] = FromAttribute(attribute.value);
    item["attributes"] = attributes;
    out.append(item);
  }
  return out;
}

std::string TextOf(const Graph& graph) {
  std::string out =
      StrCat("Graph of ", graph.num_nodes(), graph.num_nodes() == 1 ? " node" : " nodes");
  for (const Graph::Input& input : graph.inputs())
    out += StrCat("\n  input ", input.name, ": ", input.info.dtype, input.info.shape);
  for (const OperatorDef& node : graph.nodes()) out += StrCat("\n  ", node);
  for (const std::string& output : graph.outputs()) out += StrCat("\n  output ", output);
  return out;
}

std::vector<std::string> Names(nb::handle names) {
  if (nb::isinstance<nb::str>(names)) return {nb::cast<std::string>(names)};
  return nb::cast<std::vector<std::string>>(names);
}

Graph& AddNode(Graph& graph, const std::string& op, nb::handle inputs, nb::handle outputs,
               const std::string& name, const std::string& backends, const nb::kwargs& attributes) {
  OperatorDef def(op, Names(inputs), Names(outputs));
  const OpSchema* schema = OpRegistry::Global().FindSchema(op);
  for (auto [key, value] : attributes) {
    const std::string text = nb::cast<std::string>(key);
    def.Arg(text, ToAttribute(schema, text.c_str(), value));
  }
  if (!name.empty()) def.Name(name);
  if (!backends.empty()) def.Backends(backends);
  graph.AddNode(std::move(def));
  return graph;
}

Plan CompileGraph(const Graph& graph, int threads, nb::handle backends, nb::handle tuned,
                  bool deterministic, int64_t capacity_bytes, bool flush_denormals) {
  PlanOptions options;
  options.threads = threads;
  if (!backends.is_none()) options.backends = Names(backends);
  options.schedule.deterministic = deterministic;
  options.schedule.flush_denormals = flush_denormals;
  options.memory.capacity_bytes = capacity_bytes;
  using Use = PlanOptions::TuningOptions::Use;
  if (nb::isinstance<nb::str>(tuned)) {
    options.tuning.use = Use::kMeasure;
    options.tuning.cache = nb::cast<std::string>(tuned);
  } else if (nb::cast<bool>(nb::bool_(tuned))) {
    options.tuning.use = Use::kMeasure;
  }
  const nb::gil_scoped_release release;
  return Compile(graph, options);
}

// An executor, and the arrays that its run returns.
class PythonExecutor {
 public:
  explicit PythonExecutor(const Plan& plan) : plan_(plan), executor_(plan) {}

  nb::dict Run(const nb::dict& inputs) {
    std::vector<NamedTensor> named;
    PyObject* like = nullptr;
    for (auto [name, array] : inputs) {
      NamedTensor input;
      input.name = nb::cast<std::string>(name);
      const Graph::Input* declared = plan_.graph().FindInput(input.name);
      input.tensor = FromValue(array.ptr(), ("input '" + input.name + "'").c_str(),
                               declared ? declared->info : TensorInfo());
      if (!like) like = LikeOf(array.ptr());
      named.push_back(std::move(input));
    }
    NamedTensors outputs;
    {
      const nb::gil_scoped_release release;
      outputs = executor_.Run(named);
    }
    nb::dict out;
    for (const NamedTensor& output : outputs) {
      Tensor tensor = output.tensor;
      for (const NamedTensor& input : named)
        if (tensor.storage() && tensor.storage() == input.tensor.storage())
          tensor = tensor.Contiguous();
      out[output.name.c_str()] = ToValueLike(tensor, like);
    }
    return out;
  }
  const Plan& plan() const { return plan_; }

 private:
  const Plan plan_;
  Executor executor_;
};

nb::dict AddGradientNodes(Graph& graph, const std::string& loss, nb::handle values) {
  GradientMap gradients;
  const std::vector<std::string> names = Names(values);
  {
    const nb::gil_scoped_release release;
    gradients = AddGradients(graph, loss, names);
  }
  nb::dict out;
  for (const auto& [value, gradient] : gradients) out[value.c_str()] = gradient.dense;
  return out;
}

}  // namespace

void BindGraphs(nb::module_& m) {
  nb::class_<Graph>(m, "Graph")
      .def(nb::init<>())
      .def(
          "add_input",
          [](Graph& graph, std::string name, nb::handle dtype, nb::handle shape,
             nb::handle default_value) -> Graph& {
            Graph::Input input{std::move(name), InfoOf(dtype, ToShape(shape))};
            if (!default_value.is_none())
              input.default_value = FromArray(default_value.ptr(), "the default").Contiguous();
            return graph.AddInput(input);
          },
          nb::arg("name"), nb::arg("dtype") = "float32", nb::arg("shape").none() = nb::none(),
          nb::arg("default").none() = nb::none(), nb::rv_policy::reference_internal)
      .def(
          "add_constant",
          [](Graph& graph, std::string name, nb::handle array) -> Graph& {
            const Tensor value = FromArray(array.ptr(), "the constant");
            return graph.AddConstant(std::move(name), value.Contiguous());
          },
          nb::arg("name"), nb::arg("array"), nb::rv_policy::reference_internal)
      .def("add_node", &AddNode, nb::arg("op"), nb::arg("inputs"), nb::arg("outputs"),
           nb::arg("name") = "", nb::arg("backends") = "", nb::arg("attributes"),
           nb::rv_policy::reference_internal)
      .def("add_output", &Graph::AddOutput, nb::arg("name"), nb::rv_policy::reference_internal)
      .def("add_gradients", &AddGradientNodes, nb::arg("loss"), nb::arg("values"))
      .def("check",
           [](const Graph& graph) {
             const nb::gil_scoped_release release;
             Check(graph);
           })
      .def_prop_ro("inputs", &InputsOf)
      .def_prop_ro("defaults", &DefaultsOf)
      .def_prop_ro("nodes", &NodesOf)
      .def_prop_ro("outputs", [](const Graph& graph) { return graph.outputs(); })
      .def(
          "save_onnx",
          [](const Graph& graph, const std::string& path) {
            const nb::gil_scoped_release release;
            SaveOnnx(graph, path);
          },
          nb::arg("path"))
      .def("compile", &CompileGraph, nb::arg("threads") = 0,
           nb::arg("backends").none() = nb::none(), nb::arg("tuned").none() = nb::none(),
           nb::arg("deterministic") = false, nb::arg("capacity_bytes") = 0,
           nb::arg("flush_denormals") = false)
      .def("to_dot", [](const Graph& graph) { return ToDot(graph); })
      .def("_repr_svg_",
           [](nb::handle self) {
             return nb::module_::import_("opkit._draw").attr("graph_svg")(self);
           })
      .def("__str__", &TextOf)
      .def("__repr__", &TextOf);

  nb::class_<Plan>(m, "Plan")
      .def_prop_ro("graph", [](const Plan& plan) { return Graph(plan.graph()); })
      .def_prop_ro("threads", &Plan::threads)
      .def_prop_ro("arena_bytes", [](const Plan& plan) { return plan.memory().arena_bytes; })
      .def("to_dot", [](const Plan& plan) { return ToDot(plan); })
      .def("_repr_svg_", [](const Plan& plan) { return ToSvg(plan); })
      .def("__str__", [](const Plan& plan) { return ToString(plan); })
      .def("__repr__", [](const Plan& plan) {
        return StrCat("<opkit.Plan of ", plan.graph().num_nodes(), " nodes on ", plan.threads(),
                      plan.threads() == 1 ? " thread>" : " threads>");
      });

  nb::class_<PythonExecutor>(m, "Executor")
      .def(
          "__init__",
          [](PythonExecutor* self, const Plan& plan) {
            const nb::gil_scoped_release release;
            new (self) PythonExecutor(plan);
          },
          nb::arg("plan"))
      .def("run", &PythonExecutor::Run, nb::arg("inputs"))
      .def_prop_ro("plan", [](const PythonExecutor& executor) { return Plan(executor.plan()); });

  m.def(
      "load_onnx",
      [](const std::string& path, bool fix_defaults, bool zipmap_columns) {
        const nb::gil_scoped_release release;
        return LoadOnnx(path, {.fix_defaults = fix_defaults, .zipmap_columns = zipmap_columns});
      },
      nb::arg("path"), nb::arg("fix_defaults") = false, nb::arg("zipmap_columns") = false);
}

}  // namespace opkit_python
