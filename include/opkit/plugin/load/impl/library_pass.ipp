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
  static constexpr const char* kStruct = "opkit_rewrite";

  LibraryRewrite(const Graph& graph, const PassArguments& options)
      : graph_(graph), view_(graph), options_(options) {
    const GraphTypes types = InferGraph(view_, {}, UnknownOperators::kAllowed);
    abi_ = MakeIntrusive<AbiGraph>(view_, std::string(), &types);
    rewrite_.size = sizeof rewrite_;
    rewrite_.context = this;
    rewrite_.graph = &abi_->view;
    options_.FillIn(rewrite_);
    rewrite_.add_node = &AnswerBy<LibraryRewrite, &LibraryRewrite::AddNode>;
    rewrite_.replace_node = &AnswerBy<LibraryRewrite, &LibraryRewrite::ReplaceNode>;
    rewrite_.remove_node = &AnswerBy<LibraryRewrite, &LibraryRewrite::RemoveNode>;
    rewrite_.replace_uses = &AnswerBy<LibraryRewrite, &LibraryRewrite::ReplaceUses>;
    rewrite_.add_constant = &AnswerBy<LibraryRewrite, &LibraryRewrite::AddConstant>;
    rewrite_.remove_constant = &AnswerBy<LibraryRewrite, &LibraryRewrite::RemoveConstant>;
    rewrite_.set_graph = &AnswerBy<LibraryRewrite, &LibraryRewrite::SetGraph>;
    edits_.resize(abi_->order.size() + 1);
  }
  LibraryRewrite(const LibraryRewrite&) = delete;
  const opkit_rewrite* view() const { return &rewrite_; }

  // Returns the changed graph. Nodes stay in the order in which the pass saw them.
  Graph Result() const {
    if (whole_) return *whole_;
    Graph result;
    for (const Graph::Input& input : graph_.inputs()) result.AddInput(input);
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
  void AddNode(uint64_t before, const opkit_node* node) {
    EditOf(before, true).before.push_back(DefinitionOfAbi(node));
  }
  void ReplaceNode(uint64_t node, const opkit_node* replacement) {
    Edit& edit = EditOf(node);
    edit.replacement = DefinitionOfAbi(replacement);
    edit.removed = false;
  }
  void RemoveNode(uint64_t node) { EditOf(node).removed = true; }
  void ReplaceUses(const char* from, const char* to) { uses_.emplace_back(Name(from), Name(to)); }
  void AddConstant(const char* name, const opkit_tensor* value) {
    RequireView(value, "constant '", Name(name), "' ");
    added_constants_.emplace_back(Name(name), CopyConstant({}, *value));
  }
  void RemoveConstant(const char* name) {
    if (!graph_.IsConstant(Name(name)))
      Throw(ErrorCode::kNotFound, "the graph has no constant '", name, "'");
    removed_constants_.insert(name);
  }
  // Replaces the graph by the pass's whole result. Shares the constants that the original graph has
  // too.
  void SetGraph(const opkit_graph* graph) {
    whole_ = GraphOfAbi(
        graph,
        [&](const std::string& name, const opkit_tensor& view) {
          const Tensor* own = graph_.FindConstant(name);
          if (own && own->raw_data() == view.data &&
              own->dtype() == static_cast<DType>(view.dtype) &&
              own->shape() == Shape(Dims(view.shape, static_cast<size_t>(view.rank))))
            return *own;
          return CopyConstant(name, view);
        },
        &graph_);
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

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_LOAD_IMPL_LIBRARY_PASS_IPP_
