// Registers the partitioners and passes of a library in its host. Included by the definitions of
// library.hpp.
#ifndef OPKIT_PLUGIN_LOAD_LIBRARY_PARTITIONERS_HPP_
#define OPKIT_PLUGIN_LOAD_LIBRARY_PARTITIONERS_HPP_

#include <algorithm>
#include <optional>
#include <set>

#include "opkit/graph/abi_graph.hpp"
#include "opkit/graph/partition/partition.hpp"
#include "opkit/graph/partition/partitioner.hpp"
#include "opkit/graph/partition/symbol_json.hpp"
#include "opkit/graph/passes/named_pass.hpp"
#include "opkit/plugin/load/library_ops.hpp"
#include "opkit/plugin/load/library_parts.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Options as two arrays of C strings, which point into the options given.
class AbiOptions {
 public:
  explicit AbiOptions(const std::vector<std::pair<std::string, std::string>>& options) {
    for (const auto& [name, value] : options) {
      names_.push_back(name.c_str());
      values_.push_back(value.c_str());
    }
  }
  template <class Struct>
  void FillIn(Struct& to) const {
    to.num_options = names_.size();
    to.option_names = names_.data();
    to.option_values = values_.data();
  }

 private:
  std::vector<const char*> names_, values_;
};

// Runs a partitioner of a library over one graph.
class LibraryPartitionWork final : public PartitionWork {
 public:
  LibraryPartitionWork(LibraryImagePtr image, IntrusivePtr<FunctionUse> in_use,
                       const opkit_partitioner* partitioner, const PartitionView& view,
                       PartitionArguments arguments)
      : image_(std::move(image)),
        in_use_(std::move(in_use)),
        partitioner_(partitioner),
        view_(view),
        arguments_(std::move(arguments)),
        options_(arguments_),
        graph_(MakeIntrusive<AbiGraph>(view.structure(), std::string(), &view.types())) {
    partition_.size = sizeof partition_;
    partition_.context = this;
    partition_.graph = &graph_->view;
    for (const int node : graph_->order) taken_.push_back(view.node(node).is_taken());
    partition_.taken = taken_.data();
    options_.FillIn(partition_);
    partition_.json = &Json;
    work_ = const_cast<void*>(partitioner->author);
    if (!partitioner->begin) return;
    work_ = nullptr;
    Ask("begin", [&] { return partitioner_->begin(partitioner_, &partition_, &work_); });
    began_ = true;
  }
  ~LibraryPartitionWork() override {
    if (!began_ || !partitioner_->end) return;
    const HostErrorScope message;
    CallGuarded([&] { return partitioner_->end(work_), OPKIT_OK; });
  }

  void Mark(PartitionAnswer& answer) override {
    answer_ = &answer;
    partition_.take = &Take;
    partition_.refuse = &Refuse;
    Ask("mark", [&] { return partitioner_->mark(work_, &partition_); });
    partition_.take = nullptr;
    partition_.refuse = nullptr;
    answer_ = nullptr;
    json_.reset();
  }
  void Review(SubgraphReview& review) override {
    if (!partitioner_->review) return;
    if (number_.empty()) {
      number_.resize(Index(view_.num_nodes()));
      for (size_t i = 0; i < graph_->order.size(); ++i) number_[Index(graph_->order[i])] = i;
    }
    const GraphView body(review.body());
    const GraphTypes types = InferGraph(body, {}, UnknownOperators::kAllowed);
    const AbiGraph subgraph(body, {}, &types);
    const AbiNode op(review.def());
    std::vector<uint64_t> nodes;
    for (const int node : review.nodes()) nodes.push_back(number_[Index(node)]);
    body_ = &body;
    body_types_ = &types;
    review_ = &review;
    opkit_partition question = partition_;
    question.subgraph = &subgraph.view;
    question.op = &op.node();
    question.id = review.id();
    question.kind = review.kind();
    question.num_nodes = nodes.size();
    question.nodes = nodes.data();
    question.reject = &Reject;
    question.set_attr = &SetAttr;
    question.add_constant = &AddConstant;
    Ask("review", [&] { return partitioner_->review(work_, &question); });
    review_ = nullptr;
    body_ = nullptr;
    json_.reset();
  }

 private:
  template <class Call>
  void Ask(const char* function, Call call) const {
    AskLibrary(image_->name, call, function, " of partitioner ", partitioner_->name);
  }
  static LibraryPartitionWork& Of(const opkit_partition* partition) {
    if (!partition) Throw(ErrorCode::kInvalidArgument, "a function of a partition is given none");
    return *static_cast<LibraryPartitionWork*>(partition->context);
  }
  // Returns the argument of the current Mark or Review; throws kFailedPrecondition outside of it.
  PartitionAnswer& answer() const {
    if (!answer_)
      Throw(ErrorCode::kFailedPrecondition, "nodes are taken and refused in mark alone");
    return *answer_;
  }
  SubgraphReview& review() const {
    if (!review_) Throw(ErrorCode::kFailedPrecondition, "subgraphs are changed in review alone");
    return *review_;
  }
  // Returns the graph's own number of a node from the library's number.
  int NodeOf(uint64_t number) const {
    if (number >= graph_->order.size())
      Throw(ErrorCode::kOutOfRange, "the answer names node ", number, " of a graph that has ",
            graph_->order.size());
    return graph_->order[number];
  }

  static opkit_status Json(const opkit_partition* partition, const char** text, uint64_t* num_nodes,
                           const int64_t** nodes) {
    return AnswerCaller([&] {
      LibraryPartitionWork& self = Of(partition);
      RequireRoom(text, "json()");
      RequireRoom(num_nodes, "json()");
      RequireRoom(nodes, "json()");
      auto& json = self.json_;
      if (!json) {
        json.emplace();
        const bool whole = !self.body_;
        static_cast<SymbolJson&>(*json) =
            whole ? WriteSymbolJson(self.view_.structure(), self.view_.types())
                  : WriteSymbolJson(*self.body_, *self.body_types_, self.review_->IsArg());
        std::vector<int> number(Index(self.view_.num_nodes()), -1);
        if (whole)
          for (size_t i = 0; i < self.graph_->order.size(); ++i)
            number[Index(self.graph_->order[i])] = static_cast<int>(i);
        for (const int node : json->nodes)
          json->numbers.push_back(node < 0 || !whole ? node : number[Index(node)]);
      }
      *text = json->text.c_str();
      *num_nodes = json->numbers.size();
      *nodes = json->numbers.data();
    });
  }
  static opkit_status Take(const opkit_partition* partition, uint64_t node, int32_t kind,
                           int32_t set) {
    return AnswerCaller([&] {
      LibraryPartitionWork& self = Of(partition);
      self.answer().Take(self.NodeOf(node), kind, set);
    });
  }
  static opkit_status Refuse(const opkit_partition* partition, uint64_t node, const char* why) {
    return AnswerCaller([&] {
      LibraryPartitionWork& self = Of(partition);
      self.answer().Refuse(self.NodeOf(node), TextOfAbi(why));
    });
  }
  static opkit_status Reject(const opkit_partition* partition, const char* why) {
    return AnswerCaller([&] { Of(partition).review().Reject(TextOfAbi(why)); });
  }
  static opkit_status SetAttr(const opkit_partition* partition, const opkit_attr* attr) {
    return AnswerCaller([&] {
      for (const NamedAttribute& one : ArgumentsOfAbi(&attr, 1))
        Of(partition).review().SetAttribute(one.name, one.value);
    });
  }
  static opkit_status AddConstant(const opkit_partition* partition, const char* name,
                                  const opkit_tensor* value) {
    return AnswerCaller([&] {
      if (!name || !*name) Throw(ErrorCode::kInvalidArgument, "a constant has no name");
      if (const std::string problem = ProblemOfView(value); !problem.empty())
        Throw(ErrorCode::kInvalidArgument, "constant '", TextOfAbi(name), "' ", problem);
      Of(partition).review().AddConstant(TextOfAbi(name), CopyConstant({}, *value));
    });
  }

  // The JSON of a graph, with the library's number of each node.
  struct NumberedJson : SymbolJson {
    std::vector<int64_t> numbers;
  };

  const LibraryImagePtr image_;
  const IntrusivePtr<FunctionUse> in_use_;
  const opkit_partitioner* const partitioner_;
  const PartitionView& view_;
  const PartitionArguments arguments_;
  const AbiOptions options_;
  const IntrusivePtr<AbiGraph> graph_;
  std::vector<uint8_t> taken_;  // by the library's number of a node
  opkit_partition partition_{};
  void* work_ = nullptr;
  bool began_ = false;
  std::vector<uint64_t> number_;  // the library's number of each node
  std::optional<NumberedJson> json_;
  // Set during a call of Mark or Review.
  PartitionAnswer* answer_ = nullptr;
  SubgraphReview* review_ = nullptr;
  const GraphView* body_ = nullptr;
  const GraphTypes* body_types_ = nullptr;
};

// A partitioner of a library, as the host registers it.
class LibraryPartitioner final : public Partitioner {
 public:
  LibraryPartitioner(LibraryImagePtr image, IntrusivePtr<FunctionUse> in_use,
                     const opkit_partitioner& partitioner)
      : image_(std::move(image)),
        in_use_(std::move(in_use)),
        partitioner_(&partitioner),
        name_(partitioner.name) {}
  const std::string& name() const override { return name_; }
  std::string SubgraphOperator(int kind) const override {
    std::string op;
    AskLibrary(
        image_->name,
        [&] {
          const char* const answer = partitioner_->subgraph_op(partitioner_, kind);
          if (!answer || !*answer) return OPKIT_FAILED;
          op = TextOfAbi(answer);
          return OPKIT_OK;
        },
        "subgraph_op of partitioner ", name_);
    return op;
  }
  std::unique_ptr<PartitionWork> Begin(const PartitionView& view,
                                       const PartitionArguments& arguments) const override {
    return std::make_unique<LibraryPartitionWork>(image_, in_use_, partitioner_, view, arguments);
  }
  std::string library() const override { return image_->name; }

 private:
  const LibraryImagePtr image_;
  const IntrusivePtr<FunctionUse> in_use_;
  const opkit_partitioner* const partitioner_;
  const std::string name_;
};

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
    for (const GraphInput& input : graph_.inputs())
      result.AddInput(input.name, input.info.dtype, input.info.shape, input.info.device);
    for (const GraphConstant& constant : graph_.constants())
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
    AskLibrary(
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

// Registers a library's partitioners and passes, all or none, and removes them.
class LibraryPartitioners {
 public:
  static void Register(LoadedLibrary& loaded) {
    const opkit_library& library = *loaded.image->library;
    if (library.abi_minor < 3) return;  // their members were reserved before 1.3
    try {
      AddParts(loaded, library.num_partitioners, library.partitioners, "partitioner",
               &AddPartitioner);
      AddParts(loaded, library.num_passes, library.passes, "pass", &AddPass);
    } catch (...) {
      Remove(loaded);
      throw;
    }
  }
  static void Remove(LoadedLibrary& loaded) {
    for (const auto& one : loaded.partitioners) PartitionerRegistry::Global().Unregister(*one);
    for (const auto& one : loaded.passes) UnregisterPass(*one);
    loaded.idle_count -= static_cast<int64_t>(loaded.partitioners.size() + loaded.passes.size());
    loaded.partitioners.clear();
    loaded.passes.clear();
  }

 private:
  static void AddPartitioner(LoadedLibrary& loaded, const opkit_partitioner& one) {
    if (!one.subgraph_op || !one.mark)
      RefuseDescription(loaded.image->name, StrCat("has partitioner '", one.name, "' without ",
                                                   one.mark ? "subgraph_op" : "mark"));
    if (one.begin && !one.end)
      RefuseDescription(loaded.image->name,
                        StrCat("has partitioner '", one.name, "' with begin, but without end"));
    IntrusivePtr<const Partitioner> made =
        MakeIntrusive<LibraryPartitioner>(loaded.image, loaded.in_use, one);
    if (PartitionerRegistry::Global().Has(one.name) ||
        !RegisterPartitioner(made, FileOf(loaded), one.line))
      RefuseTaken(loaded, "partitioner", one.name);
    ++loaded.idle_count;
    loaded.partitioners.push_back(std::move(made));
  }
  static void AddPass(LoadedLibrary& loaded, const opkit_pass& one) {
    if (!one.run)
      RefuseDescription(loaded.image->name, StrCat("has pass '", one.name, "' without run"));
    IntrusivePtr<const NamedPass> made =
        MakeIntrusive<LibraryPass>(loaded.image, loaded.in_use, one);
    const std::vector<std::string> known = RegisteredPasses();
    if (std::ranges::count(known, one.name) || !RegisterPass(made, FileOf(loaded), one.line))
      RefuseTaken(loaded, "pass", one.name);
    ++loaded.idle_count;
    loaded.passes.push_back(std::move(made));
  }
  static const char* FileOf(const LoadedLibrary& loaded) { return loaded.image->name.c_str(); }
  [[noreturn]] static void RefuseTaken(const LoadedLibrary& loaded, const char* what,
                                       const char* name) {
    RefuseDescription(loaded.image->name,
                      StrCat("brings ", what, " '", name, "', which this program has already"),
                      "rename one", ErrorCode::kAlreadyExists);
  }
};

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_PLUGIN_LOAD_LIBRARY_PARTITIONERS_HPP_
