// The cases of `opkit check --via`: those of CheckOperator, further ones for attributes, optional
// inputs and errors, and the results of each in this toolkit.
#include <algorithm>
#include <cmath>
#include <fstream>

#include "model.hpp"
#include "opkit/base/json/json_writer.hpp"
#include "opkit/base/platform.hpp"
#include "opkit/op/check/check_cases.hpp"
#include "opkit/op/invoke.hpp"
#include "via.hpp"

namespace cli {
namespace {

using namespace opkit;

struct Case {
  Arguments args;
  std::vector<Tensor> inputs;  // a default-constructed Tensor for one that is left out
};

// Makes the cases of one operator and runs them.
class ViaOperator {
 public:
  // `backend`: the only one whose kernels run; empty: any.
  ViaOperator(const OpSchema& schema, const ViaOptions& options, const std::string& library,
              const std::string& backend, const std::string& data, const ChildReporter& voice)
      : schema_(schema),
        library_(library),
        backend_(backend),
        voice_(voice),
        data_(data, std::ios::binary | std::ios::app) {
    options_.args = ParseAttributes(options.attributes);
    for (const std::string& text : options.shapes)
      options_.input_shapes.push_back(ParseShape(text));
    if (options_.input_shapes.size() == 1) options_.shapes.swap(options_.input_shapes);
  }

  ViaCases Run() {
    try {
      AddCheckCases();
    } catch (const Error& error) {
      out_.not_checked.push_back(error.message() + "; give its attributes with --attr NAME=VALUE");
      return std::move(out_);
    }
    if (first_) {
      const Case first = *first_;
      AddAttributes(first);
      AddNumbersOfInputs(first);
      AddWrongInputs(first);
    }
    return std::move(out_);
  }

 private:
  // The cases of CheckOperator, with every value of the string attributes.
  void AddCheckCases() {
    AddCasesWith(options_);
    for (const detail::AttributeSchema& attribute : schema_.attributes())
      if (attribute.type == AttributeType::kString && !options_.args.Has(attribute.name))
        for (const std::string& value : attribute.values) {
          CheckOptions with = options_;
          with.args.Set(attribute.name, value);
          if (!attribute.default_value || attribute.default_value->Get<std::string>() != value)
            AddCasesWith(std::move(with));
        }
  }
  void AddCasesWith(CheckOptions options) {
    for (const detail::AttributeSchema& attribute : schema_.attributes())
      if (attribute.required && !attribute.values.empty() && !options.args.Has(attribute.name))
        options.args.Set(attribute.name, attribute.values[0]);
    const OperatorDef def = detail::MakeCheckDef(schema_, options);
    const detail::CheckTarget target{schema_, def, options};
    for (const DType dtype : target.DTypes())
      for (detail::CheckCase& one : target.Cases(dtype)) Add({options.args, std::move(one.inputs)});
  }
  // Gives each attribute its default, and then each another value.
  void AddAttributes(const Case& first) {
    Case all = first;
    for (const detail::AttributeSchema& attribute : schema_.attributes())
      if (attribute.type && !all.args.Has(attribute.name) && ValueOf(attribute))
        all.args.Set(attribute.name, *ValueOf(attribute));
    if (all.args.size() == first.args.size()) return;
    Add(all);
    for (const detail::AttributeSchema& attribute : schema_.attributes()) {
      if (!all.args.Has(attribute.name) || first.args.Has(attribute.name)) continue;
      Case other = first;
      other.args.Set(attribute.name, Other(attribute, *all.args.Find(attribute.name)));
      Add(std::move(other));
    }
  }
  // A value that a host with float32 attributes can give too; nothing for a tensor without default.
  static std::optional<Attribute> ValueOf(const detail::AttributeSchema& attribute) {
    if (attribute.default_value) {
      auto values = MakeIntrusiveCopy(*attribute.default_value);
      for (double& number : values->floats) number = static_cast<float>(number);
      return Attribute(attribute.default_value->type(), std::move(values));
    }
    switch (*attribute.type) {
      case AttributeType::kInt:
        return Attribute(2);
      case AttributeType::kFloat:
        return Attribute(0.5);
      case AttributeType::kBool:
        return Attribute(true);
      case AttributeType::kString:
        return Attribute(attribute.values.empty() ? "text" : attribute.values[0]);
      case AttributeType::kInts:
        return Attribute({1, 2});
      case AttributeType::kFloats:
        return Attribute({0.5, 2.0});
      case AttributeType::kBools:
        return Attribute({true, false});
      case AttributeType::kStrings:
        return Attribute({std::string("a"), std::string("text")});
      default:
        return {};
    }
  }
  static detail::IntrusivePtr<Attribute::Values> MakeIntrusiveCopy(const Attribute& from) {
    auto to = detail::MakeIntrusive<Attribute::Values>();
    to->ints = from.values().ints;
    to->floats = from.values().floats;
    to->strings = from.values().strings;
    to->tensors = from.values().tensors;
    return to;
  }
  // Changes the value, and makes a list longer. The operator may refuse it: that is a case too.
  static Attribute Other(const detail::AttributeSchema& attribute, const Attribute& from) {
    auto values = MakeIntrusiveCopy(from);
    const bool bools = from.type() == AttributeType::kBool || from.type() == AttributeType::kBools;
    for (int64_t& number : values->ints) number = bools ? 1 - number : number + 1;
    for (double& number : values->floats) number = static_cast<float>(2 * number + 0.25);
    if (attribute.values.empty())
      for (std::string& text : values->strings) text += " \xc3\xa9";
    else
      for (std::string& text : values->strings) text = "no such value";
    if (from.is_list()) {
      if (!values->ints.empty()) values->ints.push_back(values->ints[0]);
      if (!values->floats.empty()) values->floats.push_back(values->floats[0]);
      if (!values->strings.empty()) values->strings.push_back(values->strings[0]);
    }
    return Attribute(from.type(), std::move(values));
  }
  // Leaves optional inputs out, at the end and in the middle, and gives more inputs. What the
  // operator refuses is no case, because hosts refuse a wrong number of inputs themselves.
  void AddNumbersOfInputs(const Case& first) {
    const size_t count = first.inputs.size();
    for (auto i = static_cast<size_t>((std::max)(schema_.min_inputs(), 1)); i < count; ++i) {
      Case shorter = first;
      shorter.inputs.resize(i);
      Add(std::move(shorter), kIfItRuns);
      Case gap = first;
      gap.inputs[i] = Tensor();
      Add(std::move(gap), kIfItRuns);
    }
    if (count == 0 || schema_.max_inputs() <= static_cast<int>(count)) return;
    Case more = first;
    for (uint64_t seed : {90, 91})
      more.inputs.push_back(RandomTensor(first.inputs[0].shape(), first.inputs[0].dtype(), seed));
    Add(std::move(more), kIfItRuns);
  }
  // Inputs that most operators refuse: other shapes and dtypes, of one input and of all.
  void AddWrongInputs(const Case& first) {
    for (size_t i = 0; i < first.inputs.size(); ++i) {
      const Tensor& input = first.inputs[i];
      Case other = first;
      other.inputs[i] = RandomTensor({5, 4, 3}, input.dtype(), 70 + i);
      Add(other);
      const DType dtype = input.dtype() == DType::kFloat64 ? DType::kFloat32 : DType::kFloat64;
      other.inputs[i] = RandomTensor(input.shape(), dtype, 80 + i);
      Add(std::move(other));
    }
    Case all = first;
    for (Tensor& input : all.inputs) input = RandomTensor(input.shape(), DType::kInt16, 60);
    Add(std::move(all));
  }

  // Returns the number of inputs that have names, or that may be given, but not "any number".
  int MaxInputs() const {
    constexpr int kMany = 16;
    return schema_.max_inputs() <= kMany ? schema_.max_inputs()
                                         : static_cast<int>(schema_.inputs().size());
  }
  // Returns the numbers of outputs that a node of the case may have. A library that computes the
  // number gives it for some nodes only.
  std::vector<int> NumbersOfOutputs(const Case& one) const {
    try {
      const int count = schema_.CalculateOutput(static_cast<int>(one.inputs.size()), one.args);
      if (count >= 0) return {count};
    } catch (const Error&) {  // wrong attributes: the run fails too
    }
    if (num_outputs_ >= 0 && one.inputs.size() == num_inputs_) return {num_outputs_};
    return {1, static_cast<int>(one.inputs.size())};
  }
  // Returns the text without what the loader of the library puts in front: "inferShape of operator
  // Axpy of library libmyops.so failed: ".
  std::string OwnText(std::string text) const {
    const std::string end = StrCat(" of library ", library_, " failed: ");
    if (const size_t at = text.find(end); at != text.npos) text.erase(0, at + end.size());
    return text;
  }

  static std::string NameOf(const OpSchema& schema, const Case& one) {
    std::string name, given;
    for (const Tensor& input : one.inputs)
      name +=
          StrCat(name.empty() ? "" : ", ", input.dtype() == DType::kUndefined
                                               ? std::string("-")
                                               : StrCat(input.dtype(), ToString(input.shape())));
    for (const detail::NamedAttribute& attribute : one.args)
      given += StrCat(given.empty() ? "; " : ", ", attribute.name, "=", ToString(attribute.value));
    return StrCat(schema.name(), "(", name, given, ")");
  }

  enum When { kAlways, kIfItRuns };
  // Runs the case and describes it and its results.
  void Add(Case one, When when = kAlways) {
    const std::string name = NameOf(schema_, one);
    if (std::ranges::count(out_.names, name) > 0) return;
    voice_.Step("a run of " + name);
    std::vector<Tensor> inputs;  // copies, because an operator may write to its inputs
    for (const Tensor& input : one.inputs) {
      inputs.emplace_back();
      if (input.dtype() != DType::kUndefined) inputs.back().CopyFrom(input);
    }
    std::vector<std::vector<Tensor>> runs;
    std::string error;
    double us = -1;
    int num_outputs = 1;
    for (const int count : NumbersOfOutputs(one)) try {
        num_outputs = count;
        ResolvedOperator op(schema_.name(), detail::PresentInputs(inputs), one.args,
                            {.backends = backend_, .num_outputs = count});
        for (int run = 0; run < (schema_.is_stateful() ? 2 : 1); ++run)
          runs.push_back(op(std::span<const Tensor>(inputs)));
        us = TimeOf(op, inputs, runs[0]);
        error.clear();
        break;
      } catch (const Error& thrown) {
        if (error.empty()) error = OwnText(thrown.message());
        runs.clear();
      }
    if (!error.empty()) num_outputs = NumbersOfOutputs(one)[0];
    if (when == kIfItRuns && !error.empty()) return;
    if (!first_ && error.empty())
      first_ = one, num_inputs_ = one.inputs.size(), num_outputs_ = num_outputs;

    OperatorDef def(schema_.name(), {}, {}, one.args);
    std::vector<TensorInfo> types, inferred(static_cast<size_t>(num_outputs));
    for (size_t i = 0; i < one.inputs.size(); ++i) {
      def.Input(one.inputs[i].dtype() == DType::kUndefined ? "" : StrCat("input", i));
      types.push_back(TensorInfo::Of(one.inputs[i]));
    }
    for (int o = 0; o < num_outputs; ++o) def.Output(StrCat("output", o));
    try {
      inferred = schema_.InferOutputs(def, std::move(types));
    } catch (const Error&) {  // the run fails too
    }
    std::string line;
    detail::JsonWriter json(line);
    json.BeginObject().Member("op", schema_.name()).Member("name", name);
    json.Key("inputs").BeginArray();
    for (const Tensor& input : one.inputs) Put(json, input);
    json.EndArray().Key("given").BeginArray();
    for (const detail::NamedAttribute& attribute : one.args) Put(json, attribute);
    json.EndArray().Key("attributes").BeginArray();
    for (const detail::AttributeSchema& attribute : schema_.attributes())
      json.Value(attribute.name);
    json.EndArray().Key("inferred").BeginArray();
    for (const TensorInfo& info : inferred) Put(json, info);
    json.EndArray().Key("runs").BeginArray();
    for (const std::vector<Tensor>& run : runs) {
      json.BeginArray();
      for (const Tensor& output : run) Put(json, output);
      json.EndArray();
    }
    json.EndArray();
    if (!error.empty()) json.Member("error", error);
    json.Member("same", !schema_.runs_may_differ()).Member("stateful", schema_.is_stateful());
    json.Member("max_inputs", MaxInputs());
    if (us >= 0 && error.empty()) json.Member("us", us);
    json.EndObject();
    out_.lines.push_back(std::move(line));
    out_.names.push_back(name);
  }

  // Returns the median time of a call on the operator's smallest inputs; -1 for other inputs.
  double TimeOf(ResolvedOperator& op, const std::vector<Tensor>& inputs,
                std::vector<Tensor> outputs) {
    int64_t elements = 0;
    for (const Tensor& input : inputs) elements += input.numel();
    if (elements == 0 || elements >= smallest_ || schema_.is_stateful()) return -1;
    smallest_ = elements;
    std::vector<double> times;
    constexpr int kCalls = 20;
    for (int sample = 0; sample < 21; ++sample) {
      const int64_t begin = detail::MonotonicNs();
      for (int call = 0; call < kCalls; ++call) op.Run(inputs, outputs);
      times.push_back(static_cast<double>(detail::MonotonicNs() - begin) / kCalls * 1e-3);
    }
    std::ranges::nth_element(times, times.begin() + 10);
    return times[10];
  }

  void Put(detail::JsonWriter& json, const Tensor& tensor) {
    if (tensor.dtype() == DType::kUndefined) {
      json.Item() += "null";
      return;
    }
    const Tensor dense = tensor.Contiguous();
    const auto bytes = static_cast<std::streamsize>(dense.nbytes());
    json.BeginObject().Member("dtype", ToString(dense.dtype()));
    json.Member("shape", ExtentsOf(dense.shape()));
    json.Member("at", static_cast<int64_t>(data_.tellp())).Member("bytes", dense.nbytes());
    json.EndObject();
    if (bytes > 0) data_.write(static_cast<const char*>(dense.raw_data()), bytes);
  }
  static void Put(detail::JsonWriter& json, const TensorInfo& info) {
    json.BeginArray();
    if (info.dtype == DType::kUndefined)
      json.Item() += "null";
    else
      json.Value(ToString(info.dtype));
    if (info.shape.is_known())
      json.Value(ExtentsOf(info.shape.ToShape()));
    else
      json.Item() += "null";
    json.EndArray();
  }
  void Put(detail::JsonWriter& json, const detail::NamedAttribute& attribute) {
    const Attribute::Values& values = attribute.value.values();
    const bool bools = attribute.value.type() == AttributeType::kBool ||
                       attribute.value.type() == AttributeType::kBools;
    json.BeginArray().Value(attribute.name).Value(ToString(attribute.value.type())).BeginArray();
    for (const int64_t number : values.ints) bools ? json.Value(number != 0) : json.Value(number);
    for (const double number : values.floats)
      std::isfinite(number) ? json.Value(number) : json.Value(StrCat(number));
    for (const std::string& text : values.strings) json.Value(text);
    for (const Tensor& tensor : values.tensors) Put(json, tensor);
    json.EndArray().EndArray();
  }
  static std::vector<int64_t> ExtentsOf(const Shape& shape) {
    return {shape.data(), shape.data() + shape.rank()};
  }

  const OpSchema& schema_;
  const std::string library_, backend_;
  const ChildReporter& voice_;
  CheckOptions options_;
  std::ofstream data_;
  std::optional<Case> first_;  // the first case that runs
  size_t num_inputs_ = 0;      // of the first case, as num_outputs_
  int num_outputs_ = -1;
  int64_t smallest_ = 1 << 20;
  ViaCases out_;
};

}  // namespace

ViaCases MakeViaCases(const Library& library, const std::string& op, const ViaOptions& options,
                      const std::string& data, const ChildReporter& voice) {
  const OpSchema& schema = OpRegistry::Global().GetSchema(op);
  const auto no_cases = [](const char* why) {
    ViaCases none;
    none.not_checked.push_back(why);
    return none;
  };
  if (schema.needs_subgraph()) return no_cases("it needs a graph from a partitioner");
  const auto kernels = OpRegistry::Global().KernelsOf(op);
  if (std::ranges::none_of(kernels, [&](const Kernel* kernel) {
        return kernel->origin == library.name() && IsHostAccessible(kernel->device);
      }))
    return no_cases("it has no kernel for memory that this program reaches");
  voice.Step("the inference of " + op);
  // The library's own kernel of an operator that this program has too.
  const std::string backend = schema.origin() == library.name() ? "" : library.backend();
  return ViaOperator(schema, options, library.name(), backend, data, voice).Run();
}

}  // namespace cli
