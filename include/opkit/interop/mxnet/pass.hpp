// MxnetPass: runs a graph pass of a library for MXNet as a NamedPass of this program.
#ifndef OPKIT_INTEROP_MXNET_PASS_HPP_
#define OPKIT_INTEROP_MXNET_PASS_HPP_

#include "opkit/graph/passes/named_pass.hpp"
#include "opkit/interop/graph_pass.hpp"
#include "opkit/interop/mxnet/extra_inputs.hpp"
#include "opkit/interop/mxnet/partitioner.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The tensors that a pass makes while it runs; they become constants of the graph.
class MxnetNewTensors {
 public:
  // A MxnetTensorMalloc; `self` is the object. Keeps a failure, since no exception may pass
  // through C, and then leaves *data null.
  static void Allocate(const void* self, const int64_t* shape, int rank, const char* device, int,
                       int dtype, const char* name, int, void** data) noexcept {
    auto& own = *const_cast<MxnetNewTensors*>(static_cast<const MxnetNewTensors*>(self));
    if (data) *data = nullptr;
    try {
      if (!name || !*name || !data || rank < 0 || (rank > 0 && !shape))
        Throw(ErrorCode::kInvalidArgument,
              "a pass makes a tensor without a name, a shape or a pointer that gets its memory");
      if (rank > OPKIT_MAX_RANK)
        Throw(ErrorCode::kInvalidArgument, "a pass makes tensor '", name, "' with ", rank,
              " axes; ", OPKIT_MAX_RANK, " are the most");
      if (device && std::string_view(device) != "cpu")
        Throw(ErrorCode::kUnsupported, "a pass makes tensor '", name, "' on device ", device,
              "; the constants of a graph are on the CPU");
      if (dtype < 0 || dtype >= kNumMxnetTypes)
        Throw(ErrorCode::kInvalidArgument, "a pass makes tensor '", name, "' of the dtype ", dtype,
              ", which MXNet does not define");
      const Tensor tensor(Shape(Dims(shape, Index(rank))), kMxnetTypes[dtype].dtype);
      if (tensor.nbytes() > 0) std::memset(tensor.raw_mutable_data(), 0, Index(tensor.nbytes()));
      own.constants_.emplace_back(name, tensor);
      *data = tensor.raw_mutable_data();
    } catch (...) {
      if (!own.failure_) own.failure_ = std::current_exception();
    }
  }
  // Returns the tensors. Throws the first failure.
  const std::vector<std::pair<std::string, Tensor>>& constants() const {
    if (failure_) std::rethrow_exception(failure_);
    return constants_;
  }

 private:
  std::vector<std::pair<std::string, Tensor>> constants_;
  std::exception_ptr failure_;
};

class MxnetPass final : public NamedPass {
 public:
  MxnetPass(const MxnetApi& api, std::string name, MxnetFunction function)
      : api_(api), name_(std::move(name)), function_(function) {}
  const std::string& name() const override { return name_; }
  Graph Run(const Graph& graph, const PassArguments& options) const override {
    const GraphView view(graph);
    const std::string sent =
        WriteSymbolJson(view, InferGraph(view, {}, UnknownOperators::kAllowed)).text;
    const std::string json = ToMxnetJson(sent);
    MxnetTextMap texts;
    ReadMxnetOptions(options, texts);
    MxnetNamedTensors tensors(graph);
    MxnetNewTensors made;
    char* answer = nullptr;
    try {
      api_.Run([&] {
        return tensors.Apply([&](auto... named) {
          return api_->pass_call_graph_pass(function_, json.c_str(), &answer, texts.keys(),
                                            texts.values(), texts.size(), name_.c_str(), named...,
                                            &MxnetNewTensors::Allocate, &made);
        });
      });
    } catch (...) {
      static_cast<void>(made.constants());  // a tensor that was not made is the first reason
      throw;
    }
    const std::string text = answer ? answer : "";
    if (answer) api_.Free(answer);
    std::vector<std::pair<std::string, Tensor>> constants = tensors.Changed();
    for (const auto& one : made.constants()) constants.push_back(one);
    if (!answer) Throw(ErrorCode::kOperatorFailed, "it succeeded but returned no graph");
    return WithExtraInputs(ReadSymbolJson(graph, FromMxnetJson(sent, text, constants), constants));
  }

 private:
  const MxnetApi& api_;
  const std::string name_;
  const MxnetFunction function_;
};

// Reads the passes of a library.
inline std::vector<IntrusivePtr<const NamedPass>> ReadMxnetPasses(const MxnetApi& api) {
  std::vector<IntrusivePtr<const NamedPass>> all;
  const int num = api.Count(api->pass_reg_size(), "passes");
  for (int i = 0; i < num; ++i) {
    MxnetFunction function = nullptr;
    const char* name = nullptr;
    api->pass_reg_get(i, &function, &name);
    if (!name || !*name || !function)
      Throw(ErrorCode::kInvalidArgument, "library ", api.name(), " has pass ", i, " without a ",
            function ? "name" : "function");
    all.push_back(MakeIntrusive<MxnetPass>(api, name, function));
  }
  return all;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_INTEROP_MXNET_PASS_HPP_
