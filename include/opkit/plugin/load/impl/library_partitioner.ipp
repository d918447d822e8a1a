// Runs a library's partitioners over graphs of the host.
#ifndef OPKIT_PLUGIN_LOAD_IMPL_LIBRARY_PARTITIONER_IPP_
#define OPKIT_PLUGIN_LOAD_IMPL_LIBRARY_PARTITIONER_IPP_

#include <optional>

#include "opkit/graph/abi_graph.hpp"
#include "opkit/graph/partition/partition.hpp"
#include "opkit/graph/partition/partitioner.hpp"
#include "opkit/graph/partition/symbol_json.hpp"
#include "opkit/plugin/load/library_ops.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Options as two arrays of C strings, which point into the caller's options.
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
  static constexpr const char* kStruct = "opkit_partition";

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
    partition_.json = &AnswerBy<LibraryPartitionWork, &LibraryPartitionWork::Json>;
    work_ = const_cast<void*>(partitioner->author);
    if (!partitioner->begin) return;
    work_ = nullptr;
    Call("begin", [&] { return partitioner_->begin(partitioner_, &partition_, &work_); });
    began_ = true;
  }
  ~LibraryPartitionWork() override {
    if (!began_ || !partitioner_->end) return;
    const HostErrorScope message;
    CallGuarded([&] { return partitioner_->end(work_), OPKIT_OK; });
  }

  void Mark(PartitionAnswer& answer) override {
    answer_ = &answer;
    partition_.take = &AnswerBy<LibraryPartitionWork, &LibraryPartitionWork::Take>;
    partition_.refuse = &AnswerBy<LibraryPartitionWork, &LibraryPartitionWork::Refuse>;
    Call("mark", [&] { return partitioner_->mark(work_, &partition_); });
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
    question.reject = &AnswerBy<LibraryPartitionWork, &LibraryPartitionWork::Reject>;
    question.set_attr = &AnswerBy<LibraryPartitionWork, &LibraryPartitionWork::SetAttr>;
    question.add_constant = &AnswerBy<LibraryPartitionWork, &LibraryPartitionWork::AddConstant>;
    Call("review", [&] { return partitioner_->review(work_, &question); });
    review_ = nullptr;
    body_ = nullptr;
    json_.reset();
  }

 private:
  template <class F>
  void Call(const char* function, F call) const {
    CallLibraryFunction(image_->name, call, function, " of partitioner ", partitioner_->name);
  }
  // Returns the argument of the current Mark or Review; throws kFailedPrecondition outside of it.
  PartitionAnswer& answer() const {
    if (!answer_)
      Throw(ErrorCode::kFailedPrecondition,
            "take and refuse work only while the partitioner marks nodes");
    return *answer_;
  }
  SubgraphReview& review() const {
    if (!review_)
      Throw(ErrorCode::kFailedPrecondition,
            "reject, set_attr and add_constant work only while the partitioner reviews a "
            "subgraph");
    return *review_;
  }
  // Returns the graph's own number of a node from the library's number.
  int NodeOf(uint64_t number) const {
    if (number >= graph_->order.size())
      Throw(ErrorCode::kOutOfRange, "the answer names node ", number, " of a graph that has ",
            graph_->order.size());
    return graph_->order[number];
  }

  void Json(const char** text, uint64_t* num_nodes, const int64_t** nodes) {
    RequireRoom(text, "json()");
    RequireRoom(num_nodes, "json()");
    RequireRoom(nodes, "json()");
    if (!json_) {
      json_.emplace();
      const bool whole = !body_;
      static_cast<SymbolJson&>(*json_) =
          whole ? WriteSymbolJson(view_.structure(), view_.types())
                : WriteSymbolJson(*body_, *body_types_, review_->IsArg());
      std::vector<int> number(Index(view_.num_nodes()), -1);
      if (whole)
        for (size_t i = 0; i < graph_->order.size(); ++i)
          number[Index(graph_->order[i])] = static_cast<int>(i);
      for (const int node : json_->nodes)
        json_->numbers.push_back(node < 0 || !whole ? node : number[Index(node)]);
    }
    *text = json_->text.c_str();
    *num_nodes = json_->numbers.size();
    *nodes = json_->numbers.data();
  }
  void Take(uint64_t node, int32_t kind, int32_t set) { answer().Take(NodeOf(node), kind, set); }
  void Refuse(uint64_t node, const char* why) { answer().Refuse(NodeOf(node), TextOfAbi(why)); }
  void Reject(const char* why) { review().Reject(TextOfAbi(why)); }
  void SetAttr(const opkit_attr* attr) {
    for (const NamedAttribute& one : ArgumentsOfAbi(&attr, 1))
      review().SetAttribute(one.name, one.value);
  }
  void AddConstant(const char* name, const opkit_tensor* value) {
    if (!name || !*name) Throw(ErrorCode::kInvalidArgument, "a constant has no name");
    RequireView(value, "constant '", TextOfAbi(name), "' ");
    review().AddConstant(TextOfAbi(name), CopyConstant({}, *value));
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
    CallLibraryFunction(
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

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_LOAD_IMPL_LIBRARY_PARTITIONER_IPP_
