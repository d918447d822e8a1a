// Runs a library's passes, and makes the changes that they request.
#ifndef OPKIT_PLUGIN_LOAD_IMPL_LIBRARY_PASS_IPP_
#define OPKIT_PLUGIN_LOAD_IMPL_LIBRARY_PASS_IPP_

#include <optional>
#include <set>

#include "opkit/graph/abi_graph.hpp"
#include "opkit/graph/passes/named_pass.hpp"
#include "opkit/plugin/load/impl/library_partitioner.ipp"
#include "opkit/plugin/load/library_ops.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Collects the changes that a library's pass requests, and makes them when the pass has returned.
class LibraryRewrite {
 public:
  LibraryRewrite(const Graph& graph, const PassArguments& options)
      : graph_(graph), view_(graph), options_(options) {
    const GraphTypes types = InferGraph(view_, {}, UnknownOperators::kAllowed);
    abi_ = MakeIntrusive<AbiGraph>(view_, std::string(), &types);
    rewrite_.size = sizeof rewrite_;
    rewrite_.context = this;
    rewrite_.graph = &abi_->view;
    options_.FillIn(rewrite_);
    rewrite_.add_node = &AddNode;
    rewrite_.replace_node = &ReplaceNode;
    rewrite_.remove_node = &RemoveNode;
    rewrite_.replace_uses = &ReplaceUses;
    rewrite_.add_constant = &AddConstant;
    rewrite_.remove_constant = &RemoveConstant;
    rewrite_.set_graph = &SetGraph;
    edits_.resize(abi_->order.size() + 1);
  }
  LibraryRewrite(const LibraryRewrite&) = delete;
  const opkit_rewrite* view() const { return &rewrite_; }

  // Returns the changed graph. Nodes stay in the order in which the pass saw them.
  Graph Result() const {
    if (whole_) return *whole_;
    Graph result;
    for (const Graph::Input& input : graph_.inputs())
      result.AddInput(input.name, input.info.dtype, input.info.shape, input.info.device);
    for (const Graph::Constant& constant : graph_.constants())
      if (!removed_constants_.contains(constant.name))
        result.AddConstant(constant.name, constant.value);
    for (const auto& [name, value] : added_constants_) result.AddConstant(name, value);
    for (size_t i = 0; i < edits_.size(); ++i) {
      const Edit& edit = edits_[i];
      for (const OperatorDef& node : edit.before) result.AddNode(node);
      if (i == abi_->order.size() || edit.removed) continue;
      result.AddNode(edit.replacement ? *edit.replacement : graph_.node(abi_->order[i]));
    }
    for (const std::string& output : graph_.outputs()) result.AddOutput(output);
    for (const auto& [from, to] : uses_) result.ReplaceUses(from, to);
    return result;
  }

 private:
  // The changes at one node.
  struct Edit {
    std::vector<OperatorDef> before;
    std::optional<OperatorDef> replacement;
    bool removed = false;
  };

  static LibraryRewrite& Of(const opkit_rewrite* rewrite) {
    if (!rewrite) Throw(ErrorCode::kInvalidArgument, "a function of a rewrite is given none");
    return *static_cast<LibraryRewrite*>(rewrite->context);
  }
  Edit& EditOf(uint64_t node, bool or_end = false) {
    if (node >= edits_.size() - (or_end ? 0 : 1))
      Throw(ErrorCode::kOutOfRange, "it names node ", node, " of a graph that has ",
            abi_->order.size());
    return edits_[node];
  }
  static std::string Name(const char* name) {
    if (!name || !*name) Throw(ErrorCode::kInvalidArgument, "a name is empty");
    return TextOfAbi(name);
  }
  static opkit_status AddNode(const opkit_rewrite* rewrite, uint64_t before,
                              const opkit_node* node) {
    return AnswerCaller(
        [&] { Of(rewrite).EditOf(before, true).before.push_back(DefinitionOfAbi(node)); });
  }
  static opkit_status ReplaceNode(const opkit_rewrite* rewrite, uint64_t node,
                                  const opkit_node* replacement) {
    return AnswerCaller([&] {
      Edit& edit = Of(rewrite).EditOf(node);
      edit.replacement = DefinitionOfAbi(replacement);
      edit.removed = false;
    });
  }
  static opkit_status RemoveNode(const opkit_rewrite* rewrite, uint64_t node) {
    return AnswerCaller([&] { Of(rewrite).EditOf(node).removed = true; });
  }
  static opkit_status ReplaceUses(const opkit_rewrite* rewrite, const char* from, const char* to) {
    return AnswerCaller([&] { Of(rewrite).uses_.emplace_back(Name(from), Name(to)); });
  }
  static opkit_status AddConstant(const opkit_rewrite* rewrite, const char* name,
                                  const opkit_tensor* value) {
    return AnswerCaller([&] {
      if (const std::string problem = ProblemOfView(value); !problem.empty())
        Throw(ErrorCode::kInvalidArgument, "constant '", Name(name), "' ", problem);
      Of(rewrite).added_constants_.emplace_back(Name(name), CopyConstant({}, *value));
    });
  }
  static opkit_status RemoveConstant(const opkit_rewrite* rewrite, const char* name) {
    return AnswerCaller([&] {
      LibraryRewrite& self = Of(rewrite);
      if (!self.graph_.IsConstant(Name(name)))
        Throw(ErrorCode::kNotFound, "the graph has no constant '", name, "'");
      self.removed_constants_.insert(name);
    });
  }
  // Takes the whole result of the pass. Constants that are the graph's own stay shared.
  static opkit_status SetGraph(const opkit_rewrite* rewrite, const opkit_graph* graph) {
    return AnswerCaller([&] {
      LibraryRewrite& self = Of(rewrite);
      self.whole_ = GraphOfAbi(
          graph,
          [&](const std::string& name, const opkit_tensor& view) {
            const Tensor* own = self.graph_.FindConstant(name);
            if (own && own->raw_data() == view.data &&
                own->dtype() == static_cast<DType>(view.dtype) &&
                own->shape() == Shape(Dims(view.shape, static_cast<size_t>(view.rank))))
              return *own;
            return CopyConstant(name, view);
          },
          &self.graph_);
    });
  }

  const Graph& graph_;
  const GraphView view_;
  const AbiOptions options_;
  IntrusivePtr<AbiGraph> abi_;
  opkit_rewrite rewrite_{};
  std::vector<Edit> edits_;  // by the library's number of a node, and one for the end
  std::vector<std::pair<std::string, std::string>> uses_;
  std::vector<std::pair<std::string, Tensor>> added_constants_;
  std::set<std::string> removed_constants_;
  std::optional<Graph> whole_;
};

// A pass of a library, as the host registers it.
class LibraryPass final : public NamedPass {
 public:
  LibraryPass(LibraryImagePtr image, IntrusivePtr<FunctionUse> in_use, const opkit_pass& pass)
      : image_(std::move(image)), in_use_(std::move(in_use)), pass_(&pass), name_(pass.name) {}
  const std::string& name() const override { return name_; }
  Graph Run(const Graph& graph, const PassArguments& options) const override {
    LibraryRewrite rewrite(graph, options);
    CallLibraryFunction(
        image_->name, [&] { return pass_->run(pass_, rewrite.view()); }, "pass ", name_);
    return rewrite.Result();
  }
  std::string place() const override {
    return StrCat(pass_->file ? pass_->file : "", ":", pass_->line);
  }
  std::string library() const override { return image_->name; }
  IntrusivePtr<RefCounted> use() const override { return in_use_; }

 private:
  const LibraryImagePtr image_;
  const IntrusivePtr<FunctionUse> in_use_;
  const opkit_pass* const pass_;
  const std::string name_;
};

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_PLUGIN_LOAD_IMPL_LIBRARY_PASS_IPP_
